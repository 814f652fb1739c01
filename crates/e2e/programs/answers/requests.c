// Handles requests in two threads; every tenth request waits. Runs until its input ends with
// "forever", else for a number of rounds, and may then end by a signal.
#include "e2e.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
COUNTED(leaf); COUNTED(disk); COUNTED(handle); COUNTED(front); COUNTED(back);
static long rounds = 60;
static volatile int over;
TRACED long leaf(long n) { HIT(leaf); KEEP(&n); return n + 1; }
TRACED void disk(void) { HIT(disk); struct timespec ms = {0, 20000000}; nanosleep(&ms, NULL); }
TRACED long handle(long n) { HIT(handle); for (int i = 0; i < 5; i++) leaf(n); if (n % 10 == 3) disk(); return leaf(n); }
TRACED long front(long n) { HIT(front); return handle(n) + 1; }
TRACED long back(long n) { HIT(back); return handle(n) + 2; }
TRACED void *work(void *p) {
    for (long n = 0; n < rounds && !over; n++) p ? front(n) : back(n);
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t other;
    struct pollfd input = {0, POLLIN, 0};
    int forever = argc > 1 && !strcmp(argv[1], "forever");
    if (argc > 1) rounds = forever ? 1L << 40 : atol(argv[1]);
    printf("ready\n");
    fflush(stdout);
    pthread_create(&other, NULL, work, &other);
    if (forever) {
        poll(&input, 1, -1);
        over = 1;
    } else work(NULL);
    pthread_join(other, NULL);
    SHOW(leaf); SHOW(disk); SHOW(handle); SHOW(front); SHOW(back);
    if (argc > 2) raise(atoi(argv[2]));
    return 0;
}
