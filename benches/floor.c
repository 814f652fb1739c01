// The least that recording an entry and a return can cost: reads the time stamp counter twice and stores two words in a ring, in a
// function that is called. Prints the nanoseconds of processor time that this adds to the call.
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

enum { WORDS = 1 << 12, CALLS = 10 * 1000 * 1000 };

static uint64_t ring[WORDS];

__attribute__((noipa)) static uint64_t leaf(uint64_t n) {
    return n + 2;
}

__attribute__((noipa)) static uint64_t recorded(uint64_t n) {
    ring[n % WORDS] = __rdtsc();
    ring[(n + 1) % WORDS] = __rdtsc();
    return n + 2;
}

static double cost(uint64_t (*function)(uint64_t)) {
    struct timespec a, b;
    uint64_t n = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < CALLS; i++) n = function(n);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / CALLS;
}

int main(void) {
    cost(recorded);
    double alone = cost(leaf);
    printf("%.2f\n", cost(recorded) - alone);
}
