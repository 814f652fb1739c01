// Two threads, each cancelled in the middle of calls or, with an argument, ended by pthread_exit
// there. A cleanup handler runs on top of the calls, and a destructor of thread-specific data after
// they have been left.
#include "e2e.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static pthread_key_t key;
static sem_t ready;
static int exits;

TRACED void cleans(int n) { KEEP(&n); }
TRACED void handler(void *p) { cleans(1); KEEP(p); }
TRACED void destructor(void *p) { cleans(2); KEEP(p); }
TRACED void ends(void) {
    if (exits) pthread_exit(NULL);
    sem_post(&ready);
    for (;;) pause();
}
TRACED void inner(void) {
    pthread_cleanup_push(handler, NULL);
    ends();
    pthread_cleanup_pop(1);
}
TRACED void outer(void) { inner(); KEEP(&exits); }

static void *begin(void *p) {
    pthread_setspecific(key, &key);
    outer();
    return p;
}

int main(int argc, char **argv) {
    (void)argv;
    exits = argc > 1;
    pthread_key_create(&key, destructor);
    sem_init(&ready, 0, 0);
    for (int n = 0; n < 2; n++) {
        pthread_t thread;
        pthread_create(&thread, NULL, begin, NULL);
        if (!exits) { sem_wait(&ready); pthread_cancel(thread); }
        pthread_join(thread, NULL);
    }
    return 0;
}
