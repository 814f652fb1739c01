// Two ways down to the same function, in turns: "two_ways TURNS". left_way calls left_step alone, and right_way right_step.
#include "e2e.h"

TRACED long leaf(long n) { KEEP(&n); return n + 1; }
TRACED long left_step(long n) { for (int i = 0; i < 30; i++) n = leaf(n); return n; }
TRACED long right_step(long n) { for (int i = 0; i < 30; i++) n = leaf(n); return n; }
TRACED long left_way(long n) { for (int i = 0; i < 30; i++) n = left_step(n); return n; }
TRACED long right_way(long n) { for (int i = 0; i < 30; i++) n = right_step(n); return n; }
int main(int argc, char **argv) {
    long n = 0;
    for (int i = argc > 1 ? atoi(argv[1]) : 100; i > 0; i--) n = right_way(left_way(n));
    printf("%ld\n", n);
    return 0;
}
