// What the interpreter calls at each entry and return of a Python function, for python.py: functions
// that do nothing, and such that read the clock.
#include <stdint.h>
#include <x86intrin.h>

void *none;
volatile uint64_t last;

int profile_nothing(void *object, void *frame, int event, void *argument) {
    (void)object, (void)frame, (void)event, (void)argument;
    return 0;
}
int profile_clock(void *object, void *frame, int event, void *argument) {
    last = __rdtsc();
    return profile_nothing(object, frame, event, argument);
}
void *monitor_nothing(void *self, void *const *arguments, intptr_t count) {
    (void)self, (void)arguments, (void)count;
    return none;
}
void *monitor_clock(void *self, void *const *arguments, intptr_t count) {
    last = __rdtsc();
    return monitor_nothing(self, arguments, count);
}
