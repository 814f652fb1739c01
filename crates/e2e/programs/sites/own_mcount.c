/* Has a profiling function of its own, which counts how often it is called. */
#include "e2e.h"

__attribute__((visibility("hidden"))) volatile long profiled;
#define COUNTER(name) \
    __attribute__((naked, no_instrument_function)) void name(void) { \
        __asm__ volatile("lock incq profiled(%%rip)\n\tret" : : : "memory"); \
    }
COUNTER(mcount)
COUNTER(__fentry__)

COUNTED(wanted); COUNTED(other);
TRACED int wanted(int n) { HIT(wanted); return n + 1; }
TRACED int other(int n) { HIT(other); return wanted(n) + 1; }

int main(void) {
    for (int i = 0; i < 1000; i++) other(i);
    printf("profiled %ld\n", profiled);
    SHOW(wanted);
    return 0;
}
