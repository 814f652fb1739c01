// Forks when it gets a line. Arguments: "leaves" if it ends then, else it waits for the child;
// "works" if the child calls functions, "busy" if it does so all the time. Prints "ready" and "child ID"; the child ends with its input.
#include "e2e.h"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, int number) { printf("%s %d\n", what, number); fflush(stdout); }
TRACED long work(long n) { KEEP(&n); n = n * 5 + 1; KEEP(&n); return n; }
TRACED long works(void) { long sum = 0; for (int i = 0; i < 100; i++) sum += work(i); return sum; }

int main(int argc, char **argv) {
    char c;
    say("ready", 0);
    if (read(0, &c, 1) != 1 || works() != 24850) return 2;
    pid_t child = fork();
    if (child > 0) {
        int status = 0;
        if (strcmp(argv[1], "leaves")) waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    int wrong = argc > 2 && !strcmp(argv[2], "works") && works() != 24850;
    say("child", getpid());
    struct pollfd input = {0, POLLIN, 0};
    while (argc > 2 && !strcmp(argv[2], "busy") && !poll(&input, 1, 0)) wrong |= works() != 24850;
    while (read(0, &c, 1) > 0) {}
    wrong += works() != 24850;
    say("end", wrong);
    return wrong;
}
