// Causes page faults, signals and moves to other processors, each in a function of its own, and
// prints their numbers.
#define _GNU_SOURCE
#include "e2e.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 200, SIGNALS = 7, ROUNDS = 10 };

static volatile sig_atomic_t caught;
static void handler(int number) { (void)number; caught++; }

TRACED void touch(char *memory, long page) {
    for (int n = 0; n < PAGES; n++) memory[n * page] = 1;
}

TRACED void be_signaled(void) {
    for (int n = 0; n < SIGNALS; n++) raise(SIGUSR1);
}

TRACED void hop(cpu_set_t *all, int first, int second) {
    for (int n = 0; n < ROUNDS; n++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(n % 2 ? first : second, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    sched_setaffinity(0, sizeof *all, all);
}

TRACED int rest(int n) {
    for (volatile int m = 0; m < 1000; m++) n += m;
    return n;
}

int main(void) {
    long page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(0, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, PAGES * page, MADV_NOHUGEPAGE);
    signal(SIGUSR1, handler);
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    int found[2], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) found[count++] = cpu;
    if (count == 2) {
        // The thread starts on this processor.
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(found[0], &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    rest(1);
    touch(memory, page);
    be_signaled();
    if (count == 2) hop(&all, found[0], found[1]);
    printf("%d signals, %d processors\n", (int)caught, count);
    return rest(2) == 0;
}
