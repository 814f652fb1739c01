// Uses SIGTRAP itself, in the way of its argument, while a thread calls functions all the time.
// Prints "ready"; ends with its input.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static volatile int over, wrong;
TRACED long work(long n) { KEEP(&n); return n * 3 + 1; }
TRACED long outer(long n) { return work(n) + work(n + 1); }
static void *busy(void *p) { while (!over) for (long n = 0; n < 1000; n++) if (outer(n) != 6 * n + 5) wrong = 1; return p; }
UNTRACED static void nothing(int signal) { (void)signal; }
UNTRACED static int input(void) { int c = getchar(); while (c != '\n' && c != EOF) c = getchar(); return c != EOF; }
UNTRACED static void block(void) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGTRAP); pthread_sigmask(SIG_BLOCK, &set, NULL); }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(how, "handled")) signal(SIGTRAP, nothing);
    if (!strcmp(how, "ignored")) signal(SIGTRAP, SIG_IGN);
    if (!strcmp(how, "masked")) {
        struct sigaction action = {.sa_handler = nothing};
        sigfillset(&action.sa_mask);
        sigaction(SIGUSR1, &action, NULL);
    }
    pthread_create(&thread, NULL, busy, NULL);
    if (!strcmp(how, "blocked")) block();
    puts("ready");
    while (input()) {
        if (!strcmp(how, "blocked later")) block(), puts("blocked");
        if (!strcmp(how, "handled later")) signal(SIGTRAP, nothing), puts("handled");
        if (!strcmp(how, "int3")) __asm__ volatile("int3");
        if (!strcmp(how, "raise")) raise(SIGTRAP);
    }
    over = 1;
    pthread_join(thread, NULL);
    return wrong;
}
