// Prints "ready". At a line of input calls outer, which prints "inside", waits for the next line
// and returns; then calls inner from another function, deeper on the stack, and prints "behind".
#include "e2e.h"
#include <string.h>
static void line(const char *text) { puts(text); fflush(stdout); if (getchar() == EOF) _Exit(1); }
TRACED void inner(int n) { KEEP(&n); }
TRACED void outer(void) { line("inside"); }
UNTRACED void deeper(int n) { char room[2000]; memset(room, n, sizeof room); KEEP(room); inner(n); KEEP(room); }
int main(void) {
    setvbuf(stdin, NULL, _IONBF, 0);
    line("ready");
    outer();
    for (int n = 0; n < 10; n++) deeper(n);
    puts("behind");
    fflush(stdout);
    while (getchar() != EOF);
    return 0;
}
