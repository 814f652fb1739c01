// Forks a child every 20 ms, which computes for 2 ms in calls of some 10 us. Prints "ready PID"; ends
// with its input.
#include "e2e.h"
#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile long sink;
TRACED long leaf(long x) { for (int i = 0; i < 4000; i++) sink += x * i; return sink; }
TRACED long work(long x) { return leaf(x) + 1; }
int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (poll(&input, 1, 18) == 0) {
        if (fork() == 0) {
            struct timespec spent = {0, 0};
            for (long n = 0; spent.tv_sec == 0 && spent.tv_nsec < 2000000; n++) {
                work(n);
                clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
            }
            _exit(0);
        }
        wait(NULL);
    }
    return 0;
}
