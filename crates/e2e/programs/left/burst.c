// Makes a burst of calls, waits for a line of input, and makes some more calls, which it counts.
#include "e2e.h"
#include <time.h>

static volatile long sink;
TRACED void hot(long n) { for (int i = 0; i < 60; i++) sink += n; }
TRACED void calm(long n) { hot(n); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    getchar();
    for (double end = now() + 0.5; now() < end;)
        for (int i = 0; i < 1000; i++) hot(i);
    puts("over");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 100; i++) calm(i);
    puts("left");
    fflush(stdout);
    getchar();
    return 0;
}
