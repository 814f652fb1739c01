// Functions that take arguments from the stack when they return, as Swift's asynchronous functions
// do, and end with jumps to each other. Checks the sum that they compute.
#include "e2e.h"

#define ASYNC __attribute__((swiftasynccall))
typedef ASYNC void step(long, __attribute__((swift_async_context)) void *);
#define STEP(name) TRACED ASYNC void name(long left, __attribute__((swift_async_context)) void *sum)
#define GOES_ON __attribute__((musttail)) return

#ifdef SWIFT
// By sections of such names, files with compiled Swift are recognised.
__attribute__((used, section("swift5_types"))) static int described = 1;
#endif

COUNTED(first); COUNTED(second); COUNTED(last); COUNTED(starts); COUNTED(adds);

TRACED long adds(long *sum, long n) { HIT(adds); *sum += n; return *sum; }

STEP(last) { HIT(last); adds(sum, left); }
STEP(second);
static step *volatile next[2] = {last, second};
STEP(first) {
    HIT(first);
    adds(sum, left);
    GOES_ON next[left > 0](left - 1, sum);
}
STEP(second) {
    HIT(second);
    adds(sum, 2);
    if (left <= 0) GOES_ON last(left, sum);
    GOES_ON first(left, sum);
}

TRACED long starts(long n) {
    HIT(starts);
    long sum = 0;
    first(n, &sum);
    return sum;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    long expected = starts(5);
    for (long round = 1; round < rounds; round++) {
        if (starts(5) != expected) return 3;
    }
    SHOW(first); SHOW(second); SHOW(last); SHOW(starts); SHOW(adds);
    return 0;
}
