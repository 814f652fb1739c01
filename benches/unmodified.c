// Functions that a tracer finds as they are: 20,000 that differ, and one that is called all the time. Says, again and again, what a call of it costs (ns of
// the thread's own processor time, the loop included); with a number, so many times.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ONE(n) __attribute__((noinline)) long f_##n(long a) { return (a ^ (1##n * 77L)) * 13 + (a >> (1##n % 31)); }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
#define THOUSAND(n) HUNDRED(n##0) HUNDRED(n##1) HUNDRED(n##2) HUNDRED(n##3) HUNDRED(n##4) \
    HUNDRED(n##5) HUNDRED(n##6) HUNDRED(n##7) HUNDRED(n##8) HUNDRED(n##9)
#define TEN_THOUSAND(n) THOUSAND(n##0) THOUSAND(n##1) THOUSAND(n##2) THOUSAND(n##3) THOUSAND(n##4) \
    THOUSAND(n##5) THOUSAND(n##6) THOUSAND(n##7) THOUSAND(n##8) THOUSAND(n##9)
TEN_THOUSAND(0)
TEN_THOUSAND(1)

__attribute__((noinline)) long leaf(long a) {
    __asm__ volatile("" : "+r"(a));
    return a * 3 + 1;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    long rounds = argc > 1 ? atol(argv[1]) : -1, sum = 0;
    while (rounds-- != 0) {
        struct timespec a, b;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        for (int i = 0; i < 20000; i++) sum = leaf(sum);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        printf("%.2f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / 20000);
        usleep(2000);
    }
    return sum == 42;
}
