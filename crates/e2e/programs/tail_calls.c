// Tail calls of functions that take time: prints the result of each call, and its maximum duration
// by the program's own clock.
#include "e2e.h"
#include <time.h>
#include <unistd.h>

static volatile long sink;

TRACED long pauses(long x) {
    struct timespec left = {0, 20000000};
    while (nanosleep(&left, &left)) {}
    sink += x;
    return x * 3;
}
static long (*volatile table[2])(long) = {pauses, pauses};

TRACED long direct(long x) { sink++; return pauses(x + 1); }
TRACED long pointed(long x) { sink++; return table[x & 1](x + 2); }
TRACED int imported(unsigned us) { sink++; return usleep(us); }
TRACED long third(long x) { sink++; return pauses(x + 4); }
TRACED long second(long x) { sink++; return third(x + 1); }
TRACED long first(long x) { sink++; return second(x + 1); }
TRACED long either(long x) { sink++; if (x < 0) return -x; return pauses(x + 3); }
TRACED long odd(long x);
TRACED long even(long x) { sink++; if (x == 0) return pauses(x); return odd(x - 1); }
TRACED long odd(long x) { sink--; return even(x - 1); }
TRACED long outer(long x) { long r = direct(x); sink += r; return r + sink; }

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#define MEASURED(name, argument) do {                                   \
        long long begin = now();                                        \
        long result = name(argument);                                   \
        printf("about took %s %lld\n", #name, now() - begin);           \
        printf("result %s %ld\n", #name, result);                       \
    } while (0)

int main(void) {
    MEASURED(outer, 5);
    MEASURED(pointed, 7);
    MEASURED(imported, 20000);
    MEASURED(first, 11);
    MEASURED(even, 100);
    MEASURED(either, 13);
    printf("result ordinary %ld\n", either(-17));
    return 0;
}
