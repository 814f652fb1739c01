// Sleeps for a millisecond and makes ten short calls in each round. Prints "ready PID"; ends with
// its input, after at least ten rounds.
#include "e2e.h"
#include <poll.h>
#include <time.h>
#include <unistd.h>
TRACED void nap(void) { struct timespec ms = {0, 1000000}; nanosleep(&ms, NULL); }
TRACED long leaf(long n) { KEEP(&n); return n + 1; }
TRACED long lap(long n) { nap(); for (int i = 0; i < 10; i++) n = leaf(n); return n; }
int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    long n = 0, laps = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (; laps < 10 || poll(&input, 1, 0) == 0; laps++) n = lap(n);
    if (n != laps * 10) printf("wrong: %ld after %ld\n", n, laps);
    return n != laps * 10;
}
