// Has THREADS threads that each make CALLS calls at a line of input, and then wait: "rounds THREADS
// CALLS". Prints "ready PID", and "called".
#include "e2e.h"
#include <pthread.h>
#include <unistd.h>
static pthread_barrier_t begin, end;
static int calls;
TRACED long step(long n) { KEEP(&n); return n + 1; }
static void *work(void *p) {
    long n = 0;
    pthread_barrier_wait(&begin);
    while (n < calls) n = step(n);
    pthread_barrier_wait(&end);
    for (;;) pause();
    return p;
}
int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 8;
    char line[16];
    pthread_t thread;
    pthread_attr_t small;
    calls = argc > 2 ? atoi(argv[2]) : 100;
    setbuf(stdout, NULL);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&begin, NULL, count + 1);
    pthread_barrier_init(&end, NULL, count + 1);
    for (int i = 0; i < count; i++) if (pthread_create(&thread, &small, work, NULL)) return 77;
    printf("ready %d\n", getpid());
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    printf("called\n");
    while (fgets(line, sizeof line, stdin)) {}
    return 0;
}
