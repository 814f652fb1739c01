// Declarations for the targets of `cargo xtask chaos`: traced functions with known results,
// counters that show progress, and the verdict.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

// A file that the driver reads. It outlives execve.
struct shared {
    long progress[60]; // of each thread that should never stand still for long; 0: not used
    long signals;      // that were received and checked
    long failures;
};
extern struct shared *shared;
extern volatile int over;
extern const char *self;

#ifdef __clang__
#define TRACED __attribute__((noinline))
#else
#define TRACED __attribute__((noipa))
#endif
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), __atomic_fetch_add(&shared->failures, 1, __ATOMIC_RELAXED))

long outer(long n);
// Calls traced functions and compares their results.
void check(long n);
// A thread of the target, with a counter, and a signal mask that no other thread has.
struct worker {
    long *progress;
    sigset_t mask;
};
struct worker begin(void);
// Counts a step of the thread, and checks its signal mask.
void step(struct worker *worker);
pthread_t start(void *(*routine)(void *), void *argument);
double now(void);
// Returns a timer that sends `signal` to this thread.
timer_t timer_for(int signal, long hertz);
void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags);

// A mode: its function starts the threads; its end waits for them and checks their work.
struct mode {
    const char *name;
    void (*start)(int signal, long hertz);
};
void join_at_end(pthread_t thread);
void timer_mode(int signal, long hertz);
void queue_mode(int signal, long hertz);
void nested_mode(int signal, long hertz);
void jumps_mode(int signal, long hertz);
void deep_mode(int signal, long hertz);
void coroutines_mode(int signal, long hertz);
void rseq_mode(int signal, long hertz);
void heap_mode(int signal, long hertz);
void threads_mode(int signal, long hertz);
void cancel_mode(int signal, long hertz);
void setid_mode(int signal, long hertz);
void waits_mode(int signal, long hertz);
void forks_mode(int signal, long hertz);
void libraries_mode(int signal, long hertz);
void throws_mode(int signal, long hertz);

#ifdef __cplusplus
}
#endif
