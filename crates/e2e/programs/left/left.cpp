// Frames are left by exceptions, by longjmp and by a thread's cancellation, repeatedly, with calls
// in between. Every function records its depth among the traced functions, and its caller.
#include "e2e.h"
#include <pthread.h>
#include <setjmp.h>
#include <time.h>
#include <unistd.h>

enum Function { MAIN, SERVE, HANDLE, FAIL, LOG_ERROR, STEP, JUMP, LOOP, CANCELLED, WAITS, FUNCTIONS, NONE };
static const char *const names[] = {"main", "serve", "handle", "fail", "log_error", "step", "jump", "loop", "cancelled", "waits"};
static const int DEEPEST = 64;
static long noted[FUNCTIONS][NONE + 1][DEEPEST];
static __thread int depth;
static __thread Function stack[DEEPEST];

#define NOTE(function)                                                                         \
    Function const caller = depth > 0 ? stack[depth - 1] : NONE;                               \
    int const here = depth;                                                                    \
    __atomic_fetch_add(&noted[function][caller][here], 1, __ATOMIC_RELAXED);                   \
    stack[here] = function;                                                                    \
    depth = here + 1
// Restores the depth where a function returns, or continues after a callee was left.
#define LEAVE() depth = here
#define BACK() depth = here + 1

static volatile long sink;
static __thread jmp_buf target;

// The longest call of handle and of step, by the program's own clock.
static long longest_handle, longest_step;
#define INLINE __attribute__((always_inline)) static inline
INLINE long now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
INLINE void took(long &longest, long begin) {
    long const ns = now() - begin;
    if (ns > longest) longest = ns;
}

extern "C" {
TRACED void fail(long n) {
    NOTE(FAIL);
    sink += n;
    if (n % 3) throw n;
    LEAVE();
}
TRACED void handle(long n) {
    NOTE(HANDLE);
    if (n % 2) fail(n);
    BACK();
    sink += n;
    LEAVE();
}
TRACED void log_error(long n) {
    NOTE(LOG_ERROR);
    sink -= n;
    LEAVE();
}
TRACED void serve(long n) {
    NOTE(SERVE);
    for (long i = 0; i < n; i++) {
        long const begin = now();
        try {
            handle(i);
            took(longest_handle, begin);
            BACK();
        } catch (long) {
            took(longest_handle, begin);
            BACK();
            log_error(i);
            BACK();
        }
    }
    LEAVE();
}
TRACED void jump(long n) {
    NOTE(JUMP);
    if (n % 2) longjmp(target, 1);
    sink += n;
    LEAVE();
}
TRACED void step(long n) {
    NOTE(STEP);
    if (n % 5) jump(n);
    else step(n + 1);
    BACK();
    sink += n;
    LEAVE();
}
TRACED void loop(long n) {
    NOTE(LOOP);
    for (volatile long i = 0; i < n; i = i + 1) {
        volatile long const begin = now();
        if (setjmp(target)) { took(longest_step, begin); BACK(); continue; }
        step(i);
        took(longest_step, begin);
        BACK();
    }
    log_error(n);
    LEAVE();
}
TRACED void waits(long n) {
    NOTE(WAITS);
    sink += n;
    for (;;) pause();
}
TRACED void *cancelled(void *n) {
    NOTE(CANCELLED);
    waits((long)n);
    LEAVE();
    return NULL;
}
}

int main() {
    NOTE(MAIN);
    serve(3000);
    BACK();
    loop(3000);
    BACK();
    for (long i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, cancelled, (void *)i);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    serve(30);
    BACK();
    printf("about longest handle %ld\nabout longest step %ld\n", longest_handle, longest_step);
    for (int function = 0; function < FUNCTIONS; function++)
        for (int caller = 0; caller <= NONE; caller++)
            for (int at = 0; at < DEEPEST; at++)
                if (function != CANCELLED && function != WAITS && noted[function][caller][at])
                    printf("call %s,%d,%s %ld\n", names[function], at, caller < FUNCTIONS ? names[caller] : "", noted[function][caller][at]);
}
