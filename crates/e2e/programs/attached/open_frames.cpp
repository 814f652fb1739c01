// Has frames that are open while calltap attaches and detaches, and leaves them afterwards in every
// way. For each line of input it calls down, prints "down", and returns at the next line. Argument:
// the way.
#include "e2e.h"
#include <csetjmp>
#include <execinfo.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <unistd.h>

static std::string how;
static jmp_buf target;
static bool input() { int c; while ((c = getchar()) != '\n' && c != EOF) {} return c != EOF; }
UNTRACED static void look() { // prints the callers
    void *frames[300];
    int n = backtrace(frames, 300), strange = 0, own = 0;
    for (int i = 0; i < n; i++) {
        Dl_info info;
        if (!dladdr(frames[i], &info) || !info.dli_fname) { strange++; continue; }
        if (strstr(info.dli_fname, "open_frames")) own++;
        if (strstr(info.dli_fname, "attached") || strstr(info.dli_fname, "agent")) strange++;
    }
    printf("%d of ours, %d strange\n", own, strange);
}
struct Guard { long &n; explicit Guard(long &n) : n(n) {} UNTRACED ~Guard() { n++; } };
static long unwound;
extern "C" {
TRACED long bottom(long n) {
    printf("down\n");
    fflush(stdout);
    input();
    if (how == "throw") throw std::runtime_error("out");
    if (how == "longjmp") longjmp(target, 3);
    if (how == "backtrace") look();
    if (how == "exit") pthread_exit((void *)5);
    return n;
}
TRACED long tail(long n) { return bottom(n + 1); }
TRACED long deep(long n, int depth) {
    Guard guard(unwound);
    long r = depth ? deep(n, depth - 1) : tail(n);
    KEEP(&r);
    return r + depth % 7;
}
TRACED long jumping(long n, int depth) { long r = depth ? jumping(n, depth - 1) : bottom(n); KEEP(&r); return r + 1; }
TRACED double mixed(double x, int depth) { double r = depth ? mixed(x * 0.5, depth - 1) : (double)bottom((long)x); KEEP(&r); return r * 1.25 + depth; }
TRACED long catcher(long n, int depth) {
    try { return deep(n, depth); }
    catch (const std::exception &e) { return -7; }
}
}
static ucontext_t here, there;
static long in_coroutine;
extern "C" TRACED long yields(long n) { swapcontext(&there, &here); return n * 2; }
static void coroutine() { in_coroutine = yields(21); }
static void *thread(void *depth) { return (void *)deep(1, (int)(long)depth); }
int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "";
    int depth = argc > 2 ? atoi(argv[2]) : 100;
    long sum = 0;
    void *warm[3];
    backtrace(warm, 3); // loads libgcc_s
    printf("ready\n");
    fflush(stdout);
    for (int round = 0; input(); round++) {
        if (how == "longjmp") { volatile long before = round; int got = setjmp(target); sum += got ? before + got : jumping(round, depth); }
        else if (how == "mixed") sum += (long)mixed(round + 3, depth % 50);
        else if (how == "exit") { pthread_t t; void *got; pthread_create(&t, nullptr, thread, (void *)(long)depth); pthread_join(t, &got); sum += (long)got; }
        else if (how == "coroutine") {
            static char stack[1 << 16];
            getcontext(&there);
            there.uc_stack.ss_sp = stack;
            there.uc_stack.ss_size = sizeof stack;
            there.uc_link = &here;
            makecontext(&there, coroutine, 0);
            swapcontext(&here, &there);
            bottom(1);
            swapcontext(&here, &there);
            sum += in_coroutine;
        } else sum += catcher(round, depth);
        printf("%ld, unwound %ld\n", sum, unwound);
    }
    printf("sum %ld\n", sum);
    return 4;
}
