// Runs under memory-deny-write-execute ("mdwe"), with a timer that starts a thread at every tick
// ("timer"), or in a user namespace that it enters later and with privileges that it drops
// ("namespace").
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static atomic_long ticks, wrong;

__attribute__((noinline)) long work(long n) { return n < 2 ? n : work(n - 1) + work(n - 2); }

static void tick(union sigval value) {
    if (value.sival_int != 42 || work(10) != 55) wrong++;
    ticks++;
}

static void *worker(void *p) {
    for (;;) { if (work(10) != 55) wrong++; usleep(500); }
    return p;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(how, "mdwe") && prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0)) { printf("SKIPPED: no PR_SET_MDWE here\n"); how = ""; }
    pthread_t thread;
    if (strcmp(how, "namespace") && pthread_create(&thread, NULL, worker, NULL)) abort();
    if (!strcmp(how, "timer")) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 42, .sigev_notify_function = tick};
        struct itimerspec often = {{0, 1000000}, {0, 1000000}};
        timer_t timer;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL)) abort();
    }
    printf("ready\n");
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n') continue;
        // These calls would fail with a thread of another tool in the process.
        if (!strcmp(how, "namespace")) printf("unshare %s\n", unshare(CLONE_NEWUSER) ? strerror(errno) : "ok");
        printf("done %ld\n", work(10));
    }
    printf("ticked %d, wrong %ld\n", ticks > 10, (long)wrong);
    return wrong != 0;
}
