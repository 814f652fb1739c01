// Has one thread, and asks the kernel all the time for what only a process of one thread may have.
// Prints "ready"; ends with its input, with status 1 if the kernel refused.
#define _GNU_SOURCE
#include "e2e.h"
#include <poll.h>
#include <sched.h>
#include <unistd.h>

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

int main(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    long refused = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("ready\n");
    for (long n = 0; poll(&input, 1, 0) == 0 || read(0, &byte, 1) == 1; n++) {
        if (work(n) != n * 5 + 1) fprintf(stderr, "work(%ld)\n", n);
        refused += unshare(CLONE_THREAD) != 0;
    }
    if (refused) fprintf(stderr, "%ld calls of unshare failed\n", refused);
    return refused != 0;
}
