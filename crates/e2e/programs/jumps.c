// Leaves frames in other ways than by returns: longjmp, siglongjmp out of a handler; also deep and
// mutual recursion.
#include "e2e.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <pthread.h>

COUNTED(down); COUNTED(landed); COUNTED(recurse); COUNTED(ping); COUNTED(pong); COUNTED(handler); COUNTED(spin); COUNTED(leaf); COUNTED(attempt);
static __thread jmp_buf target;

TRACED long leaf(long x) { HIT(leaf); return x * 3 + 1; }
TRACED long down(long n) {
    HIT(down);
    if (n == 0) longjmp(target, 5);
    long r = down(n - 1) + leaf(n);
    KEEP(&r);
    return r;
}
TRACED long landed(long n) {
    HIT(landed);
    volatile long before = n * 3;
    int how = setjmp(target);
    if (how) return before + how + leaf(n);
    return down(9);
}
TRACED long recurse(long n) { HIT(recurse); if (n == 0) return 0; long r = recurse(n - 1); KEEP(&r); return r + n % 3; }
TRACED long pong(long n);
TRACED long ping(long n) { HIT(ping); if (n <= 0) return 1; long r = pong(n - 1); KEEP(&r); return r + 2; }
TRACED long pong(long n) { HIT(pong); if (n <= 0) return 2; long r = ping(n - 2); KEEP(&r); return r * 3 % 1000003; }

static sigjmp_buf out;
static volatile sig_atomic_t armed;
TRACED void handler(int signal) {
    HIT(handler);
    (void)signal;
    if (armed) { armed = 0; siglongjmp(out, 1); }
}
TRACED long spin(long n) { HIT(spin); for (volatile int i = 0; i < 50; i++) leaf(i); return n ? spin(n - 1) + 1 : 0; }
TRACED long attempt(void) {
    HIT(attempt);
    if (sigsetjmp(out, 1) == 0) {
        armed = 1;
        for (;;) spin(10);
    }
    return 1;
}
static void *thread(void *sum) { for (int i = 0; i < 500; i++) *(long *)sum += landed(i); return NULL; }

int main(int argc, char **argv) {
    if (argc > 1) { // out of a signal handler, 20,000 times a second
        struct sigaction action = {.sa_handler = handler};
        sigaction(SIGALRM, &action, NULL);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        struct itimerspec often = {{0, 50000}, {0, 50000}};
        timer_settime(timer, 0, &often, NULL);
        long reached = 0;
        for (int i = 0; i < 3000; i++) reached += attempt();
        timer_delete(timer);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        printf("came back %ld times\n", reached);
        SHOW(attempt); SHOW_ABOUT(handler); // what a jump leaves may have been entered and not have counted itself
        return 0;
    }
    long sum = 0;
    for (int i = 0; i < 5000; i++) sum += landed(i);
    pthread_t t[4];
    long sums[4] = {0};
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, thread, &sums[i]);
    for (int i = 0; i < 4; i++) { pthread_join(t[i], NULL); sum += sums[i]; }
    printf("%ld\n", sum);
    for (int i = 0; i < 3; i++) printf("%ld %ld\n", recurse(100000), ping(30000));
    SHOW(down); SHOW(landed); SHOW(leaf); SHOW(recurse); SHOW(ping); SHOW(pong);
    return 0;
}
