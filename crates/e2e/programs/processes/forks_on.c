// Prints "ready"; at a line of input forks a child every 2 ms, later more seldom, up to 150, until
// the next line, then prints "done". The children wait for their parent's end.
#include "e2e.h"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

int main(void) {
    static pid_t children[150];
    int count = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    puts("ready");
    if (getchar() == EOF) return 1;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 2 + count / 4) == 0) {
        work(count);
        if (count == 150) continue;
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (getppid() == parent) pause();
            _exit(1);
        }
        if (child > 0) children[count++] = child;
    }
    getchar();
    printf("done %d\n", count);
    while (getchar() != EOF);
    for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
    for (int i = 0; i < count; i++) {
        int status;
        if (waitpid(children[i], &status, 0) != children[i] || WTERMSIG(status) != SIGKILL) return 1;
    }
    return 0;
}
