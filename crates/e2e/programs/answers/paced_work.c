// Calls a function a number of times; it takes about a microsecond, or more by a share: work STEPS
// CALLS.
#include "e2e.h"
COUNTED(work);
TRACED unsigned work(unsigned steps) {
    HIT(work);
    unsigned x = steps;
    for (unsigned i = 0; i < steps; i++) {
        x = x * 1664525 + 1013904223;
        KEEP(x);
    }
    return x;
}
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    unsigned steps = atoi(argv[1]), sum = 0;
    for (long n = atol(argv[2]); n > 0; n--) sum += work(steps);
    KEEP(sum);
    SHOW(work);
    return 0;
}
