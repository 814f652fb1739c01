// Throws exceptions from the handlers of faults, through functions that have no tables of their own, all the time; each is caught. Prints "ready"; ends with its input.
#include "e2e.h"
#include <pthread.h>
#include <signal.h>

struct Guard {
    int *count;
    ~Guard() { ++*count; }
};

TRACED int leaf(int n) { KEEP(&n); return n + 1; }
TRACED int reads(volatile int *from) { return *from + 1; }
TRACED int divides(int n, volatile int *by) { return n / *by; }
TRACED int guarded(volatile int *from, int *count) { Guard guard{count}; return *from + 1; }

TRACED int once(int n) {
    volatile int zero = 0;
    int count = 0, sum = leaf(n);
    try { sum += reads((int *)8); } catch (int signal) { sum += 10 * signal; }
    try { sum += divides(sum, &zero); } catch (int signal) { sum += 1000 * signal; }
    try { sum += guarded((int *)8, &count); } catch (int signal) { sum += 100000 * signal; }
    return sum + count + leaf(1);
}

static void handle(int signal) { throw signal; }

static volatile bool over;
static void *wait_for_end(void *) { while (getchar() != EOF) {} over = true; return nullptr; }

int main() {
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGFPE, &action, nullptr);
    puts("ready");
    fflush(stdout);
    pthread_t waiter;
    pthread_create(&waiter, nullptr, wait_for_end, nullptr);
    long wrong = 0;
    for (int n = 0; !over; n = (n + 1) % 1000) wrong += once(n) != n + 1 + 10 * SIGSEGV + 1000 * SIGFPE + 100000 * SIGSEGV + 1 + 2;
    if (wrong) fprintf(stderr, "%ld wrong results\n", wrong);
    return wrong != 0;
}
