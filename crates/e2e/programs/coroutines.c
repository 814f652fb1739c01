// Coroutines on 16 KiB heap stacks, resumed by alternating threads under a 10 kHz signal.
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>

COUNTED(step); COUNTED(yields); COUNTED(body); COUNTED(handler);
#define COROUTINES 24
static ucontext_t routines[COROUTINES], *resumer[COROUTINES];
static long values[COROUTINES];
TRACED void handler(int signal) { HIT(handler); (void)signal; }
TRACED long step(long n) { HIT(step); return n * 7 + 1; }
TRACED void yields(int i) { HIT(yields); swapcontext(&routines[i], resumer[i]); __asm__ volatile("" ::: "memory"); }
TRACED void body(int i) {
    HIT(body);
    for (;;) { values[i] = step(values[i]) % 1000003; yields(i); values[i] ^= step(i) & 15; }
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn;
static void *resume(void *who) {
    long me = (long)who;
    for (int round = 0; round < 2000; round++) {
        pthread_mutex_lock(&lock);
        while (turn != me) pthread_cond_wait(&turn_changed, &lock);
        for (int i = 0; i < COROUTINES; i++) {
            ucontext_t here;
            resumer[i] = &here;
            swapcontext(&here, &routines[i]);
        }
        turn = !turn;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&routines[i]);
        routines[i].uc_stack.ss_sp = malloc(16384);
        routines[i].uc_stack.ss_size = 16384;
        makecontext(&routines[i], (void (*)(void))body, 1, i);
    }
    struct itimerspec often = {{0, 100000}, {0, 100000}};
    timer_settime(timer, 0, &often, NULL);
    pthread_t a, b;
    pthread_create(&a, NULL, resume, (void *)0);
    pthread_create(&b, NULL, resume, (void *)1);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    timer_delete(timer);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    long sum = 0;
    for (int i = 0; i < COROUTINES; i++) sum = sum * 31 + values[i];
    printf("%ld\n", sum);
    SHOW(step); SHOW(yields); SHOW(body); SHOW_ABOUT(handler);
    return 0;
}
