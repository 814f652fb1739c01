/* A signal handler leaves whatever it has interrupted by siglongjmp, callbacks too: they go on, and can be taken off. */
#include "calltap.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile long calls, sink;
static volatile int jumps;
static sigjmp_buf place;

__attribute__((noinline)) void leaf(void) {
    sink++;
}

static void count(uint64_t ip, uint64_t parent, struct calltap_ops *ops, const struct calltap_regs *regs) {
    calls++;
    for (volatile int i = 0; i < 200; i++) {
    }
}

static struct calltap_ops ops = {.func = count, .name = "count", .filter = "leaf"};

static void on_alarm(int signal) {
    leaf();
    jumps++;
    siglongjmp(place, 1);
}

static void set_timer(long us) {
    struct itimerval timer = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int argc, char **argv) {
    stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = on_alarm};
    if (argc > 1 && !strcmp(argv[1], "own stack")) {
        sigaltstack(&own, NULL);
        action.sa_flags = SA_ONSTACK;
    }
    calltap_init();
    int registered = calltap_register_function(&ops);
    sigaction(SIGALRM, &action, NULL);
    set_timer(2000);
    sigsetjmp(place, 1);
    while (jumps < 50)
        leaf();
    set_timer(0);
    signal(SIGALRM, SIG_IGN);
    leaf();
    long before = calls;
    for (int i = 0; i < 1000; i++)
        leaf();
    printf("registered %d, of the last 1000 calls %ld, ", registered, calls - before);
    printf("taken off %d\n", calltap_unregister_function(&ops));
    before = calls;
    leaf();
    printf("behind that %ld\n", calls - before);
}
