// Forks a child in its first round and in its third; in all others, the program and all its
// children make their calls, and each counts them. Prints "ready PID", "child PID" for each child,
// and "done" after each round.
#include "e2e.h"
#include <sys/wait.h>
#include <unistd.h>

COUNTED(work); COUNTED(other);
TRACED long work(long n) { HIT(work); KEEP(&n); return n * 5 + 1; }
TRACED long other(long n) { HIT(other); KEEP(&n); return n + 1; }

static int from[2], asks[2][2];

UNTRACED static void serve(int asked) {
    char c;
    while (read(asks[asked][0], &c, 1) == 1) {
        for (int i = 0; i < 10; i++) work(i);
        if (write(from[1], &c, 1) != 1) _exit(1);
    }
    _exit(0);
}

UNTRACED int main(void) {
    int children = 0, c;
    char byte = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(from) || pipe(asks[0]) || pipe(asks[1])) return 1;
    printf("ready %d\n", getpid());
    for (int round = 0; (c = getchar()) != EOF; round++) {
        if (round == 0 || round == 2) {
            fflush(stdout);
            pid_t pid = fork();
            if (pid == 0) {
                for (int i = 0; i < 2; i++) close(asks[i][1]);
                serve(children);
            }
            children++;
            printf("child %d\n", pid);
        } else {
            for (int i = 0; i < 10; i++) work(i);
            for (int i = 0; i < children; i++)
                if (write(asks[i][1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 1;
        }
        puts("done");
    }
    for (int i = 0; i < 2; i++) close(asks[i][1]);
    for (int status; wait(&status) > 0;) if (status) return 1;
    SHOW(work);
    return other(0) != 1;
}
