/* Calls and nothing else: one function in a loop. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noipa)) static long leaf(long n) {
    return n + 1;
}

int main(int argc, char **argv) {
    long n = 0;
    for (long i = argc > 1 ? atol(argv[1]) : 1000000; i > 0; i--)
        n = leaf(n);
    printf("%ld\n", n);
}
