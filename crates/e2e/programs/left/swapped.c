// Two threads that each begin a coroutine, and then continue the other's.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t threads[2], coroutines[2];
static volatile int running, turn;

__attribute__((noinline, noclone)) static void yield(int own) { swapcontext(&coroutines[own], &threads[running]); }
__attribute__((noinline, noclone)) int co_a(int x) { yield(0); return x + 1; }
__attribute__((noinline, noclone)) int co_b(int x) { yield(1); return x + 2; }
static void first(void) { co_a(1); for (;;) yield(0); }
static void second(void) { co_b(1); for (;;) yield(1); }

static void *run(void *argument) {
    int self = argument != 0;
    const int steps[4][2] = {{0, 0}, {1, 1}, {1, 0}, {0, 1}};
    for (int n = 0; n < 4; n++) {
        if (steps[n][0] != self) continue;
        while (turn != n) {}
        running = self;
        swapcontext(&threads[self], &coroutines[steps[n][1]]);
        __sync_synchronize();
        turn = n + 1;
    }
    return 0;
}

int main(void) {
    void (*bodies[2])(void) = {first, second};
    for (int n = 0; n < 2; n++) {
        getcontext(&coroutines[n]);
        // Other memory lies between the two stacks.
        char *stack = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        coroutines[n].uc_stack.ss_sp = stack;
        coroutines[n].uc_stack.ss_size = 1 << 20;
        makecontext(&coroutines[n], bodies[n], 0);
    }
    pthread_t ids[2];
    for (long n = 0; n < 2; n++) pthread_create(&ids[n], 0, run, (void *)n);
    for (int n = 0; n < 2; n++) pthread_join(ids[n], 0);
    printf("done\n");
}
