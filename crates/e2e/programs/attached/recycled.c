// Starts threads all the time, on stacks of earlier threads. A line of input makes it map some
// memory for good, so that the next session's memory is at another address than the last one's.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int wrong, over;

__attribute__((noinline)) long work(long n) { return n < 2 ? n : work(n - 1) + work(n - 2); }

static void *brief(void *p) {
    for (int i = 0; i < 20; i++) if (work(5) != 5) wrong = 1;
    usleep(200);
    for (int i = 0; i < 20; i++) if (work(6) != 8) wrong = 1;
    return p;
}

static void *maker(void *p) {
    while (!over) {
        pthread_t threads[6];
        for (int i = 0; i < 6; i++) if (pthread_create(&threads[i], NULL, brief, NULL)) abort();
        for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    }
    return p;
}

int main(void) {
    pthread_t makers[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 2; i++) if (pthread_create(&makers[i], NULL, maker, NULL)) abort();
    printf("ready\n");
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n') continue;
        if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort();
        printf("mapped\n");
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(makers[i], NULL);
    printf("wrong %d\n", wrong);
    return wrong;
}
