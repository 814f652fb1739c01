// Prints "ready PID". For each line of input it makes a step of three calls of outer, which calls
// inner, which calls leaf twice, and prints "step N". Ends with its input.
#include "e2e.h"
#include <unistd.h>
TRACED long leaf(long n) { KEEP(&n); return n + 1; }
TRACED long inner(long n) { return leaf(leaf(n)); }
TRACED long outer(long n) { n = inner(n); KEEP(&n); return n + 1; }
int main(void) {
    char line[64];
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (long step = 1, n = 0; fgets(line, sizeof line, stdin); step++) {
        for (int i = 0; i < 3; i++) n = outer(n);
        printf("step %ld\n", step);
        fflush(stdout);
    }
    return 0;
}
