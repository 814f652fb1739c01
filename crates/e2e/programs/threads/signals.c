// Traced signal handlers at 20,000 a second beside a busy main program: plain, on a small alternate stack, nested.
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

COUNTED(handler); COUNTED(inner); COUNTED(busy); COUNTED(leaf);
static volatile long handled;
TRACED long inner(long n) { HIT(inner); return n + 1; }
TRACED void handler(int signal) { HIT(handler); (void)signal; handled = inner(handled); }
TRACED long leaf(long n) { HIT(leaf); return n ^ 3; }
TRACED long busy(long n) { HIT(busy); for (int i = 0; i < 20; i++) n = leaf(n + i); return n; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (!strcmp(how, "alternate")) {
        long size = getauxval(AT_MINSIGSTKSZ) + 1024;
        if (size < MINSIGSTKSZ + 1024) size = MINSIGSTKSZ + 1024;
        stack_t stack = {.ss_sp = malloc(size), .ss_size = size};
        if (sigaltstack(&stack, NULL)) perror("sigaltstack");
        action.sa_flags |= SA_ONSTACK;
    }
    if (!strcmp(how, "nested")) action.sa_flags |= SA_NODEFER;
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 50000}, {0, 50000}};
    timer_settime(timer, 0, &often, NULL);
    long n = 1;
    for (int i = 0; i < 400000; i++) n = busy(n & 0xfffff);
    timer_delete(timer);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    printf("%ld, handled: %s\n", n, handled > 20 ? "yes" : "no");
    SHOW_ABOUT(handler); SHOW_ABOUT(inner); SHOW(busy); SHOW(leaf);
    return 0;
}
