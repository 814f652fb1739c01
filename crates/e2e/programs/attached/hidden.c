// A coroutine on a stack that no other process can read (memfd_secret). Prints "ready"; ends with
// its input.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK (1 << 18)
static volatile int over;
static long wrong;
static ucontext_t first, hidden;
TRACED long leaf(long n) { KEEP(&n); return n + 1; }
TRACED long rests(long n) { struct timespec t = {0, 5000000}; nanosleep(&t, NULL); KEEP(&n); return leaf(n); }
TRACED long deep(long n) { if (n == 0) return rests(0); long got = deep(n - 1); KEEP(&got); return got + 1; }
static void works(void) { while (!over) if (deep(30) != 31) wrong++; }
static void *waits(void *unused) { while (getchar() != EOF) {} over = 1; return unused; }

int main(void) {
    int memory = syscall(SYS_memfd_secret, 0);
    if (memory < 0 || ftruncate(memory, STACK)) return perror("memfd_secret"), 1;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (stack == MAP_FAILED) return perror("memfd_secret"), 1;
    pthread_t waiter;
    pthread_create(&waiter, NULL, waits, NULL);
    puts("ready");
    fflush(stdout);
    getcontext(&hidden);
    hidden.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
    hidden.uc_link = &first;
    makecontext(&hidden, works, 0);
    swapcontext(&first, &hidden);
    if (wrong) fprintf(stderr, "%ld wrong\n", wrong);
    return wrong != 0;
}
