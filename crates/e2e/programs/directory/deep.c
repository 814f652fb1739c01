// Prints the depth of its stack: at successive lines of input on a signal's stack, in the first
// thread, in another. A line is "deep", the end of the stack, then the slots of the return
// addresses, innermost first. Ends with its input.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <signal.h>

static char *slots[4];
#define SLOT(n) (slots[n] = (char *)__builtin_frame_address(0) + sizeof(void *))
TRACED void innermost(void) { SLOT(0); }
TRACED void inner(void) { char room[5000]; KEEP(room); SLOT(1); innermost(); KEEP(room); }
TRACED void outer(long n) { char room[n]; KEEP(room); SLOT(2); inner(); KEEP(room); }

UNTRACED static void say(int count) {
    unsigned long start, end, address = (unsigned long)slots[0];
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= address && address < end) break;
    fclose(maps);
    printf("deep %lu", end);
    for (int n = 0; n < count; n++) printf(" %lu", (unsigned long)slots[n]);
    puts("");
    fflush(stdout);
}

TRACED static void handler(int signal) { SLOT(3); outer(30000 + signal); }
TRACED static void *thread(void *n) { SLOT(3); outer((long)n); say(4); return n; }

UNTRACED static int line(void) { int c; while ((c = getchar()) != EOF && c != '\n'); return c != EOF; }

int main(void) {
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&other, NULL) || sigaction(SIGUSR1, &action, NULL)) return 1;
    puts("ready");
    fflush(stdout);
    if (line()) raise(SIGUSR1), say(4);
    if (line()) outer(300), say(3);
    pthread_t other_thread;
    if (line() && !pthread_create(&other_thread, NULL, thread, (void *)400000)) pthread_join(other_thread, NULL);
    while (line()) {}
    return 0;
}
