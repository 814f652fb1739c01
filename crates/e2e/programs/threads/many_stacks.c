// Prints "ready"; at the first line of input starts thousands of coroutines, each far from the others and suspended in a call, at
// the second resumes them all, and prints "done" behind each.
#include "e2e.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { COROUTINES = 9000, GRANULE = 8 << 20, STACK = 32 << 10 };

static ucontext_t back, own[COROUTINES];
static int current;
static long calls;

TRACED void suspends(void) {
    swapcontext(&own[current], &back);
    calls++;
}

static void coroutine(void) { suspends(); }

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    char *stacks = mmap(NULL, (size_t)COROUTINES * GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return 1;
    for (int n = 0; n < COROUTINES; n++) {
        getcontext(&own[n]);
        own[n].uc_stack.ss_sp = stacks + (size_t)n * GRANULE;
        own[n].uc_stack.ss_size = STACK;
        own[n].uc_link = &back;
        makecontext(&own[n], coroutine, 0);
    }
    puts("ready");
    while (getchar() != EOF) {
        for (current = 0; current < COROUTINES; current++) swapcontext(&back, &own[current]);
        puts("done");
    }
    return calls != COROUTINES;
}
