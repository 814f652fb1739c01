// Two versions of a program: with -DCHANGED, parse works more, and new_step has taken the place of
// old_step.
#include "e2e.h"
// Work behind a call, so that it is not the last instruction of its caller.
#define BEHIND __asm__ volatile("" ::: "memory")
TRACED void work(int rounds) {
    for (int i = 0; i < rounds * 100000; i++) KEEP(i);
}
TRACED void parse(void) {
#ifdef CHANGED
    work(20);
#endif
    work(1);
    BEHIND;
}
#ifdef CHANGED
#define STEP new_step
#else
#define STEP old_step
#endif
TRACED void STEP(void) {
    work(2);
    BEHIND;
}
TRACED void serve(void) {
    parse();
    STEP();
    BEHIND;
}
int main(void) {
    for (int i = 0; i < 40; i++) serve();
    return 0;
}
