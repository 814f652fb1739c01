/*
 * A program of 30,000 functions and so many threads: one calls all functions in turns, the others one each, now and then.
 *
 * Says "ready", and ends when its input does.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
#define ALL(M) EACH_THOUSAND(M, 0) EACH_THOUSAND(M, 1) EACH_THOUSAND(M, 2)

ALL(ONE)
static long (*const functions[])(long) = {ALL(ADDRESS)};
enum { COUNT = sizeof functions / sizeof *functions };

static void *work(void *number) {
    for (long n = (long)number;; n++) {
        for (long k = 0; k < 3000; k++)
            functions[(n + 7 * k) % COUNT](k);
        usleep(1000);
    }
}

static void *nap(void *number) {
    for (;;) {
        usleep(1000 * 1000);
        functions[(long)number % COUNT]((long)number);
    }
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long n = 1; n < threads; n++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, n == 1 ? work : nap, (void *)n))
            return 1;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
}
