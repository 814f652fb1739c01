// Two threads that alternate, each calling tick and tock in turn, from one line of input to the
// next. Prints "ready PID", "begun", and then the number of calls, "made N".
#include "e2e.h"
#include <pthread.h>
#include <unistd.h>
static volatile int over;
TRACED long tick(long n) { KEEP(&n); return n + 1; }
TRACED long tock(long n) { KEEP(&n); return n + 1; }
TRACED long turn(long n) { n = tock(tick(n)); KEEP(&n); return n; }
static void *call(void *made) {
    long n = 0;
    while (!over) n = turn(n);
    *(long *)made = n;
    return NULL;
}
int main(void) {
    char line[16];
    pthread_t threads[2];
    long made[2] = {0};
    setbuf(stdout, NULL);
    printf("ready %d\n", getpid());
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, call, &made[i]);
    printf("begun\n");
    if (!fgets(line, sizeof line, stdin)) return 1;
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("made %ld\n", made[0] + made[1]);
    return fgets(line, sizeof line, stdin) ? 1 : 0;
}
