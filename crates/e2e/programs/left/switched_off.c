// A function that is switched off while a call of it is open: it waits for a line in the middle.
#include "e2e.h"

static volatile long sink;
TRACED void inner(long n) { sink += n; }
TRACED void outer(long n) {
    inner(n);
    puts("inside");
    fflush(stdout);
    getchar();
    inner(n + 1);
    sink++;
}
TRACED void after(long n) { sink -= n; }

int main(void) {
    puts("ready");
    fflush(stdout);
    getchar();
    outer(1);
    after(2);
    puts("left");
    fflush(stdout);
    getchar();
    return 0;
}
