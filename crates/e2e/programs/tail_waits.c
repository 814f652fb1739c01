// A tail call, of a function that waits for a line of input, which keeps the call open.
#include "e2e.h"

static volatile long sink;
TRACED long waits(long n) {
    puts("inside");
    fflush(stdout);
    getchar();
    sink += n;
    return n * 3;
}
TRACED long outer(long n) { sink++; return waits(n + 1); }
TRACED void after(long n) { sink -= n; }

int main(void) {
    puts("ready");
    fflush(stdout);
    for (long n = 1; getchar() != EOF; n++) {
        long r = outer(n);
        after(r);
        printf("left %ld\n", r);
        fflush(stdout);
    }
    return 0;
}
