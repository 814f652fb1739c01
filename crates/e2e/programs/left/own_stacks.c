// Coroutines that yield in the middle of calls, on stacks side by side or far from each other.
// Records the caller of every call.
#include "e2e.h"
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define COROUTINES 6
#define ROUNDS 60
COUNTED(body); COUNTED(work); COUNTED(inner); COUNTED(yields); COUNTED(tick);
static ucontext_t routines[COROUTINES], home;
static int current;
TRACED void tick(void) { HIT(tick); }
TRACED int inner(int n) { HIT(inner); return n * 3 + 1; }
TRACED void yields(void) { HIT(yields); swapcontext(&routines[current], &home); __asm__ volatile("" ::: "memory"); }
TRACED int work(int n) {
    HIT(work);
    int sum = inner(n);
    if (n % 3 == 0) yields();
    return sum + inner(n + 1);
}
TRACED void body(void) {
    HIT(body);
    for (int n = 0; n < ROUNDS; n++) { if (work(n) < 0) return; yields(); }
}

int main(int argc, char **argv) {
    int far = argc > 1 && strcmp(argv[1], "far") == 0, ticks = argc > 2;
    size_t size = far ? 1 << 20 : 32 << 10;
    char *stacks = mmap(0, size * COROUTINES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&routines[i]);
        routines[i].uc_stack.ss_sp = stacks + size * i;
        routines[i].uc_stack.ss_size = size;
        routines[i].uc_link = &home;
        makecontext(&routines[i], body, 0);
    }
    // After this number of turns, the last one has returned.
    for (int turn = 0; turn < ROUNDS + ROUNDS / 3 + 1; turn++) {
        for (current = 0; current < COROUTINES; current++) {
            swapcontext(&home, &routines[current]);
            if (ticks) tick();
        }
    }
    SHOW(body); SHOW(work); SHOW(inner); SHOW(yields); SHOW(tick);
    return 0;
}
