// Works for a moment, and executes itself, for ever.
#include "e2e.h"
#include <unistd.h>

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

int main(int count, char **arguments) {
    for (long n = 0; n < 100000; n++) work(n);
    execv(arguments[0], arguments);
    return count;
}
