// Makes its calls in rounds, one for each line of input. Prints "ready PID", and "done" after each
// round. Counts the calls after the first round, in which calls are found. First argument: the
// work; second: a library.
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

COUNTED(work); COUNTED(outer); COUNTED(handler); COUNTED(late); COUNTED(child);
TRACED long work(long n) { HIT(work); KEEP(&n); return n * 5 + 1; }
TRACED long outer(long n) { HIT(outer); for (int i = 0; i < 10; i++) n = work(n) & 0xffff; return n; }
TRACED long late(long n) { HIT(late); KEEP(&n); return n + 1; }
TRACED long child(long n) { HIT(child); KEEP(&n); return n + 1; }

// Functions that threads call at the same time.
#define TEN(X, a) X(a##0) X(a##1) X(a##2) X(a##3) X(a##4) X(a##5) X(a##6) X(a##7) X(a##8) X(a##9)
#define ALL(X) TEN(X, f0) TEN(X, f1) TEN(X, f2) TEN(X, f3) TEN(X, f4) TEN(X, f5) TEN(X, f6) TEN(X, f7) TEN(X, f8) TEN(X, f9)
#define DEFINE(name) COUNTED(name); TRACED long name(long n) { HIT(name); KEEP(&n); return n + 1; }
ALL(DEFINE)
#define CALL(name) n = name(n);
UNTRACED static long call_all(long n) { ALL(CALL) return n; }
static pthread_barrier_t barrier;
UNTRACED static void *together(void *p) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 100; i++) if (call_all(i) != i + 100) abort();
    return p;
}
UNTRACED static void all_threads(void) {
    pthread_t t[8];
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, together, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

// Signals arrive while calls are recorded, and their handler makes calls of its own.
static volatile sig_atomic_t signals;
TRACED void handler(int signal) { HIT(handler); (void)signal; signals++; call_all(1); }
UNTRACED static void storm(int round) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    // All calls fit into the rings as they are at the start: a handler does not wait for the
    // recorder to provide more.
    for (int before = signals; signals < before + 60;) { outer(round); call_all(round); }
    setitimer(ITIMER_REAL, &never, NULL);
}

// Code made at run time: a function with a call of mcount, through a pointer or directly, where
// that is in reach.
extern void mcount(void);
UNTRACED static long (*make(unsigned char *at, int direct, unsigned char add))(long) {
    unsigned char *p = at + 16;
    void *target = (void *)mcount;
    memcpy(at, &target, 8);
    memcpy(p, "\x55\x48\x89\xe5", 4), p += 4;
    long distance = (long)target - (long)(p + 5);
    if (direct && distance == (int)distance) { *p++ = 0xe8; int d = (int)distance; memcpy(p, &d, 4), p += 4; }
    else { *p++ = 0xff, *p++ = 0x15; int d = (int)(at - (p + 4)); memcpy(p, &d, 4), p += 4; }
    memcpy(p, "\x48\x8d\x47", 3), p += 3, *p++ = add; // lea add(%rdi), %rax
    memcpy(p, "\x5d\xc3", 2);
    return (long (*)(long))(at + 16);
}

// A call through a register that only looks like one to mcount at a function's beginning.
UNTRACED static void through_a_register(void) { void *target = (void *)mcount; __asm__ volatile("call *%0" : : "r"(target) : "memory"); }

UNTRACED static int input(void) { int c = getchar(); while (c != '\n' && c != EOF) c = getchar(); return c != EOF; }

UNTRACED int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    unsigned char *page = MAP_FAILED;
    long (*made[3])(long) = {0};
    long counts[3] = {0}, n = 0, from_library = 0;
    void *library = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    for (int round = 0; input(); round++) {
        if (round == 1) {
            calls_work = calls_outer = calls_handler = calls_late = calls_child = 0;
#define RESET(name) calls_##name = 0;
            ALL(RESET)
        }
        if (!strcmp(how, "plain")) { for (int i = 0; i < 100; i++) n += outer(i); if (round >= 2) for (int i = 0; i < 100; i++) late(n); }
        if (!strcmp(how, "threads")) all_threads();
        if (!strcmp(how, "signals")) storm(round);
        if (!strcmp(how, "register")) through_a_register(), outer(1);
        if (!strcmp(how, "library")) {
            // Open, call, call; close; open and call again; call.
            if (round == 2) { dlclose(library); library = NULL; }
            else {
                if (!library) library = dlopen(path, RTLD_NOW);
                if (!library) { puts(dlerror()); return 1; }
                long (*function)(long) = (long (*)(long))dlsym(library, "in_library");
                for (int i = 0; i < 50; i++) if (function(i) != i + 3) return 1;
                if (round == 1 || round >= 4) from_library += 50;
            }
        }
        if (!strcmp(how, "made")) {
            if (round == 0) {
                page = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                for (int i = 0; i < 3; i++) made[i] = make(page + 64 * i, i & 1, (unsigned char)(i + 1));
            }
            if (round == 2) { // Other code comes to the same place.
                munmap(page, 8192);
                page = mmap(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                for (int i = 0; i < 3; i++) made[i] = make(page + 64 * i, !(i & 1), (unsigned char)(i + 11));
            }
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 10 * (i + 1); k++) {
                    if (made[i](k) != k + i + (round < 2 ? 1 : 11)) return 1;
                    if (round == 1 || round > 2) counts[i]++;
                }
        }
        if (!strcmp(how, "fork")) {
            outer(1);
            fflush(stdout);
            if (round == 1) {
                pid_t pid = fork();
                if (pid == 0) {
                    outer(2);
                    child(1);
                    puts("child has called");
                    input();
                    for (int i = 0; i < 7; i++) child(1);
                    _exit(3);
                }
                int status = 0;
                waitpid(pid, &status, 0);
                if (status != 3 << 8) return 1;
                calls_outer += 1, calls_work += 10, calls_child = 7;
            }
        }
        puts("done");
    }
    if (!strcmp(how, "made")) for (int i = 0; i < 3; i++) printf("calls %p %ld\n", (void *)made[i], counts[i]);
    if (from_library) printf("calls in_library %ld\n", from_library);
    SHOW(work); SHOW(outer);
    if (!strcmp(how, "fork")) SHOW(child);
    if (!strcmp(how, "signals")) SHOW(handler);
#define SHOW_IT(name) SHOW(name);
    if (!strcmp(how, "threads") || !strcmp(how, "signals")) { ALL(SHOW_IT) }
    return 0;
}
