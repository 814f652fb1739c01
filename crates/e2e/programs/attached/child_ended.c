// Has an ended child for which it does not wait, and makes calls until its input ends. Prints
// "ready PID".
#include "e2e.h"
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>
static volatile int over;
TRACED long step(long n) { KEEP(&n); return n + 1; }
static void *call(void *p) {
    for (long n = 0; !over; n = step(n)) usleep(1000);
    return p;
}
int main(void) {
    char line[16];
    pthread_t thread;
    siginfo_t info;
    setbuf(stdout, NULL);
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (waitid(P_PID, child, &info, WEXITED | WNOWAIT)) return 1;
    pthread_create(&thread, NULL, call, NULL);
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {}
    over = 1;
    pthread_join(thread, NULL);
    return 0;
}
