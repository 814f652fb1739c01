// Prints "ready" and works until a line of input; then executes itself, and ends at the end of input.
#include "e2e.h"
#include <poll.h>
#include <unistd.h>

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

int main(int count, char **arguments) {
    setvbuf(stdin, NULL, _IONBF, 0);
    if (count == 1) {
        setvbuf(stdout, NULL, _IONBF, 0);
        puts("ready");
    }
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (long n = 0; poll(&input, 1, 1) == 0; n++) work(n);
    if (count == 1 && getchar() != EOF) execl(arguments[0], arguments[0], "again", NULL);
    while (getchar() != EOF);
    return 0;
}
