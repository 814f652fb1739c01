// Coroutines of one thread that call, yield and leave calls by longjmp at random. Prints how often
// each function was called by which other.
#define _GNU_SOURCE
#include "e2e.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifndef ROOM
#define ROOM (1 << 20)
#endif
enum { ONE, TWO, THREE, LEAF, BODY, RESUME, MAIN, FUNCTIONS };
static const char *const names[] = {"one", "two", "three", "leaf", "body", "resume", "main"};
enum { COROUTINES = 24, STEPS = 2000, DEEPEST = 6 };
static long noted[FUNCTIONS][FUNCTIONS];
static struct coroutine {
    ucontext_t own;
    int current, depth, done, budget, caught_in;
    jmp_buf *handler;
} all[COROUTINES], *now;
static ucontext_t scheduler;
static unsigned long seed;

UNTRACED static unsigned any(unsigned limit) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return (seed >> 33) % limit;
}
static void step(int own);
TRACED void leaf(int by) { noted[LEAF][by]++; KEEP(0); }
#define CALLED(name, number, bytes)                                                                \
    TRACED void name(int by) {                                                                     \
        char room[bytes];                                                                          \
        KEEP(room);                                                                                \
        noted[number][by]++;                                                                       \
        now->current = number, now->depth++;                                                       \
        step(number);                                                                              \
        now->current = by, now->depth--;                                                           \
        KEEP(room);                                                                                \
    }
CALLED(one, ONE, 16) CALLED(two, TWO, 1000) CALLED(three, THREE, 3000)
static void (*const functions[])(int) = {one, two, three};

UNTRACED static void catches(int own) {
    jmp_buf here, *outer = now->handler;
    int outer_in = now->caught_in, depth = now->depth;
    now->handler = &here, now->caught_in = own;
    if (!setjmp(here)) functions[any(3)](own);
    else now->depth = depth, now->current = own, leaf(own);
    now->handler = outer, now->caught_in = outer_in;
}
UNTRACED static void step(int own) {
    for (int n = 1 + any(4); n > 0 && now->budget-- > 0; n--) {
        unsigned what = any(10);
        if (what < 3 && now->depth < DEEPEST) functions[any(3)](own);
        else if (what == 3) leaf(own);
        else if (what < 6) swapcontext(&now->own, &scheduler);
        else if (what == 6 && now->depth < DEEPEST) catches(own);
        else if (what == 7 && now->handler && !any(3)) longjmp(*now->handler, 1);
    }
}
TRACED void body(int n) {
    all[n].current = BODY;
    while (all[n].budget > 0) step(BODY);
    all[n].done = 1;
    swapcontext(&all[n].own, &scheduler);
    KEEP(0);
}
TRACED void resume(int n) {
    noted[RESUME][MAIN]++;
    now = &all[n];
    swapcontext(&scheduler, &now->own);
    KEEP(0);
}
int main(int argc, char **argv) {
    seed = argc > 1 ? atol(argv[1]) : 1;
    char *rooms = mmap(NULL, (size_t)ROOM * COROUTINES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int n = 0; n < COROUTINES; n++) {
        all[n].budget = STEPS;
        getcontext(&all[n].own);
        all[n].own.uc_stack.ss_sp = rooms + (size_t)ROOM * n;
        all[n].own.uc_stack.ss_size = ROOM;
        makecontext(&all[n].own, (void (*)(void))body, 1, n);
    }
    for (int left = COROUTINES; left > 0;) {
        int n = any(COROUTINES);
        if (all[n].done) continue;
        resume(n);
        left -= all[n].done;
    }
    for (int f = 0; f < FUNCTIONS; f++)
        for (int by = 0; by < FUNCTIONS; by++)
            if (noted[f][by]) printf("call %s,%s %ld\n", names[f], names[by], noted[f][by]);
    return 0;
}
