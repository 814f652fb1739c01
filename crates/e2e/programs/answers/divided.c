// Makes calls that work, sleep, wait for a lock, a condition and a pipe, and are preempted;
// measures their times itself where it can.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

UNTRACED static long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

// Works for a time by the thread's own clock.
TRACED void burn(long ms) {
    long end = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

TRACED void nap(void) { usleep(20000); }

TRACED void hold(void) {
    pthread_mutex_lock(&lock);
    usleep(300000);
    pthread_mutex_unlock(&lock);
}

TRACED void want(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

// Two of these share a processor, each for half of the time.
TRACED void compete(void) { burn(200); }

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_ready, ends[2];

TRACED void await_change(void) {
    pthread_mutex_lock(&guard);
    while (!is_ready) {
        pthread_cond_wait(&changed, &guard);
    }
    pthread_mutex_unlock(&guard);
}

TRACED void await_byte(void) {
    char byte;
    if (read(ends[0], &byte, 1) != 1) {
        _exit(1);
    }
}

static void *giver(void *unused) {
    usleep(60000);
    pthread_mutex_lock(&guard);
    is_ready = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&guard);
    usleep(60000);
    if (write(ends[1], "x", 1) != 1) {
        _exit(1);
    }
    return unused;
}

static void *other(void *unused) {
    compete();
    return unused;
}

static void *holder(void *unused) {
    hold();
    return unused;
}

int main(void) {
    long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    burn(100);
    printf("burn %ld\n", now(CLOCK_THREAD_CPUTIME_ID) - cpu);
    for (int i = 0; i < 10; i++) {
        nap();
    }
    pthread_t thread;
    pthread_create(&thread, NULL, holder, NULL);
    while (pthread_mutex_trylock(&lock) == 0) {
        pthread_mutex_unlock(&lock);
    }
    want();
    pthread_join(thread, NULL);
    if (pipe(ends) != 0) {
        return 1;
    }
    pthread_create(&thread, NULL, giver, NULL);
    await_change();
    await_byte();
    pthread_join(thread, NULL);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(sched_getcpu(), &first);
    sched_setaffinity(0, sizeof first, &first);
    pthread_create(&thread, NULL, other, NULL);
    compete();
    pthread_join(thread, NULL);
    printf("wall %ld\n", now(CLOCK_MONOTONIC) - wall);
    return 0;
}
