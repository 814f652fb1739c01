/*
 * A program whose code is changed while it runs: a thread calls 20,000 functions all the time, checks what comes out, and notes its longest wait between two calls.
 *
 * Says "ready". For each line of input, says the longest wait since the last one, in microseconds, and how many calls went wrong in all. Ends when its input does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define ONE(n) __attribute__((noipa)) static long f_##n(long x) { return x + 1##n; }
#define ADDRESS(n) f_##n,
#define TEN(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7) M(n##8) M(n##9)
#define HUNDRED(M, n) TEN(M, n##0) TEN(M, n##1) TEN(M, n##2) TEN(M, n##3) TEN(M, n##4) TEN(M, n##5) TEN(M, n##6) TEN(M, n##7) TEN(M, n##8) TEN(M, n##9)
#define THOUSAND(M, n)                                                                                               \
    HUNDRED(M, n##0) HUNDRED(M, n##1) HUNDRED(M, n##2) HUNDRED(M, n##3) HUNDRED(M, n##4)                             \
    HUNDRED(M, n##5) HUNDRED(M, n##6) HUNDRED(M, n##7) HUNDRED(M, n##8) HUNDRED(M, n##9)
#define EACH_THOUSAND(M, n)                                                                                          \
    THOUSAND(M, n##0) THOUSAND(M, n##1) THOUSAND(M, n##2) THOUSAND(M, n##3) THOUSAND(M, n##4)                        \
    THOUSAND(M, n##5) THOUSAND(M, n##6) THOUSAND(M, n##7) THOUSAND(M, n##8) THOUSAND(M, n##9)
#define ALL(M) EACH_THOUSAND(M, 0) EACH_THOUSAND(M, 1)

ALL(ONE)
static long (*const functions[])(long) = {ALL(ADDRESS)};
enum { COUNT = sizeof functions / sizeof *functions };

static _Atomic unsigned long longest, wrong;

/* What tells the time is not patched. */
#define OWN __attribute__((patchable_function_entry(0, 0)))
OWN static void *call(void *unused) {
    for (unsigned long before = __rdtsc();;)
        for (long n = 0; n < COUNT; n++) {
            if (functions[n](n) != 100000 + 2 * n) wrong++;
            unsigned long now = __rdtsc();
            if (now - before > longest) longest = now - before;
            before = now;
        }
    return unused;
}

OWN static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

OWN int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, call, NULL);
    double begin = now();
    unsigned long tick = __rdtsc();
    usleep(100000);
    double ticks_per_us = (__rdtsc() - tick) / (now() - begin);
    puts("ready"), fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n') printf("%.1f %lu\n", atomic_exchange(&longest, 0) / ticks_per_us, wrong), fflush(stdout);
    return 0;
}
