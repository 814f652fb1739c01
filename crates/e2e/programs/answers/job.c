// A job that make runs beside others: works for 20 ms of processor time, and sleeps for 100 ms.
#define _GNU_SOURCE
#include "e2e.h"
#include <time.h>

static volatile unsigned long sum;

static long used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

TRACED void work(void) {
    long begun = used();
    while (used() < begun + 20000000)
        for (int n = 0; n < 1000; n++) sum += n;
}

TRACED void nap(void) {
    struct timespec time = {0, 100000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0);
}

int main(void) {
    work();
    nap();
    return 0;
}
