// Threads, and forked children, that forbid themselves to read the time stamp counter at different
// moments, and go on. Prints "ready", waits for a line, and then prints the calls of nap and the
// nanoseconds that they took: of their bodies, and as their callers saw them. Argument: rounds.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6
struct naps { long calls, inside, outside; };
static struct naps *naps;
static long rounds;

// The C library's own function reads the counter.
static long now(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
static void add(long *sum, long n) { __atomic_fetch_add(sum, n, __ATOMIC_RELAXED); }
TRACED static void nap(long us) {
    long began = now();
    struct timespec t = {0, us * 1000};
    syscall(SYS_nanosleep, &t, NULL);
    add(&naps->calls, 1);
    add(&naps->inside, now() - began);
}
TRACED static long work(long n) { KEEP(n); return n * 5 + 1; }
static void live(long times) {
    for (long i = 0; i < times; i++) {
        for (long n = 0; n < 20; n++)
            if (work(n) != n * 5 + 1) exit(3);
        long began = now();
        nap(100);
        add(&naps->outside, now() - began);
    }
}
#ifdef OWN_PRCTL
// As sanitizers define it: it reads its return address, and ends with a jump through a pointer.
static long ask_kernel(long how, long value, long a, long b, long c) { return syscall(SYS_prctl, how, value, a, b, c); }
static long (*volatile next)(long, long, long, long, long) = ask_kernel;
static volatile int simple = 1;
static void *volatile caller;
TRACED long own_prctl(long how, long value, long a, long b, long c) __asm__("prctl");
TRACED long own_prctl(long how, long value, long a, long b, long c) {
    if (simple) return next(how, value, a, b, c);
    caller = __builtin_return_address(0);
    long done = next(how, value, a, b, c);
    caller = &done;
    return done;
}
#define prctl own_prctl
#endif
static void forbid(long how) {
    if (how % 2) syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    else prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
}
static void *inherits(void *none) { live(5); return none; }
static void *run(void *number) {
    long me = (long)number;
    live(me * rounds / THREADS);
    forbid(me);
    live(rounds);
    pthread_t thread;
    if (pthread_create(&thread, NULL, inherits, NULL) == 0) pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0) { live(5); _exit(7); }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        fprintf(stderr, "the child of thread %ld ended with %x\n", me, status);
        exit(2);
    }
    return NULL;
}
int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 50;
    naps = mmap(NULL, sizeof *naps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    getchar();
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (long i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("naps %ld %ld %ld\n", naps->calls, naps->inside, naps->outside);
    return 0;
}
