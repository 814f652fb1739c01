// Threads that end in the middle of calls, in every way; the process runs until it is told to end.
#include "e2e.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t ready, never;
static long tids[4];

TRACED void inner(long n) { KEEP(&n); }
TRACED void canceled(long n) { inner(n); sem_post(&ready); for (;;) sem_wait(&never); }
TRACED void exits(long n) { inner(n); pthread_exit(NULL); }
TRACED void exits_from(long n) { exits(n); KEEP(&n); }
TRACED void ends_by_call(long n) { inner(n); syscall(SYS_exit, 0); KEEP(&n); }
TRACED void returns(long n) { inner(n); KEEP(&n); }
TRACED void after(long n) { inner(n); KEEP(&n); }

static void *begin(void *p) {
    static void (*const ways[])(long) = {canceled, exits_from, ends_by_call, returns};
    long way = (long)p;
    tids[way] = syscall(SYS_gettid);
    ways[way](way);
    return NULL;
}

/* The kernel wakes the joining thread before it takes the other out of the list. */
static void await_end(long tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld", tid);
    while (access(path, F_OK) == 0) usleep(1000);
}

int main(void) {
    sem_init(&ready, 0, 0);
    sem_init(&never, 0, 0);
    puts("ready");
    fflush(stdout);
    getchar();
    for (long way = 0; way < 4; way++) {
        pthread_t thread;
        pthread_create(&thread, NULL, begin, (void *)way);
        if (way == 0) { sem_wait(&ready); pthread_cancel(thread); }
        pthread_join(thread, NULL);
        await_end(tids[way]);
    }
    after(0);
    puts("ended");
    fflush(stdout);
    getchar();
    return 0;
}
