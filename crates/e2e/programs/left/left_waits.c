// A function that longjmp leads to waits and computes itself.
#define _GNU_SOURCE
#include <setjmp.h>
#include <time.h>
#define TRACED __attribute__((noinline))
static jmp_buf place;
static volatile long sum;

TRACED void deeper(int levels) {
    if (levels > 0) {
        deeper(levels - 1);
        sum++;
    } else {
        longjmp(place, 1);
    }
}

TRACED void waits_again(void) {
    if (!setjmp(place)) deeper(3);
    struct timespec time = {0, 60000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

TRACED void computes_again(void) {
    if (!setjmp(place)) deeper(3);
    for (long i = 0; i < 100000000; i++) sum += i;
}

int main(void) {
    waits_again();
    computes_again();
    return 0;
}
