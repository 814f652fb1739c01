// Has a process that shares its memory (CLONE_VM) but is not a thread of it. Prints "ready"; at
// each line of input starts that process or ends it, and prints "started" or "ended". Ends with its
// input. Argument: "early" to start it first.
#define _GNU_SOURCE
#include "e2e.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long rounds, over;
static char stack[256 << 10] __attribute__((aligned(16)));
static int failures;
TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }
TRACED long outer(long n) { long sum = 0; for (long i = 0; i < 10; i++) sum += work(n + i); return sum; }
UNTRACED static int is_right(long n) { return outer(n) == 50 * n + 235; }
static int other(void *p) { (void)p; long wrong = 0; for (; !over; rounds++) wrong += !is_right(rounds); return wrong != 0; }

static pid_t start(void) {
    over = 0;
    long before = rounds;
    pid_t child = clone(other, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    while (child > 0 && rounds == before) usleep(1000);
    return child;
}
static void end(pid_t child) {
    int status = -1;
    over = 1;
    if (waitpid(child, &status, 0) != child || status) failures++;
}
int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    pid_t child = argc > 1 && !strcmp(argv[1], "early") ? start() : 0;
    puts("ready");
    for (int c; (c = getchar()) != EOF; failures += !is_right(c)) {
        if (child) end(child);
        child = child ? 0 : start();
        puts(child ? "started" : "ended");
    }
    if (child) end(child);
    return failures != 0;
}
