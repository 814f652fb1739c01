// main calls a, a calls b, b calls c, for ever, for a debugger that steps through all of it.
#include <stdio.h>
#include <unistd.h>
volatile long n;
__attribute__((noinline)) int c(int x) { n++; return x + 1; }
__attribute__((noinline)) int b(int x) { return c(x) + 1; }
__attribute__((noinline)) int a(int x) { return b(x) * 2; }
int main(void) {
    alarm(200);
    printf("%d\n", getpid());
    fflush(stdout);
    for (;;) a(3);
}
