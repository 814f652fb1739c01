// Handlers of a timer that may interrupt each other, while the buffer is full: the program stops its recorder meanwhile.
#include "e2e.h"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { DEEP = 50 };
static volatile int depth, deepest;
static volatile unsigned sum;

TRACED void tick(void) { sum++; }
TRACED void work(void) { sum++; }

static void to_recorder(int number) {
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    FILE *file = fopen(path, "r");
    if (file && fgets(name, sizeof name, file) && !strcmp(name, "calltap\n")) kill(getppid(), number);
    if (file) fclose(file);
}

static void handler(int number) {
    (void)number;
    if (++depth > deepest) deepest = depth;
    if (depth > DEEP) {
        to_recorder(SIGCONT); // it would wait for itself if the stack ended here
        _exit(1);
    }
    tick();
    depth--;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER | SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    work();
    to_recorder(SIGSTOP);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 200000; i++) work();
    setitimer(ITIMER_REAL, &never, NULL);
    to_recorder(SIGCONT);
    printf("handlers nested deeply: %s\n", deepest < DEEP ? "no" : "yes");
    return 0;
}
