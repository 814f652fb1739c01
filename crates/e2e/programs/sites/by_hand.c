/* Calls functions written by hand, and prints what they compute. */
#include <stdio.h>

long inline_data(long), into_steps(long), below_stack(long, long);

__attribute__((noinline)) static long mix(long sum, long n) { return sum * 31 + n; }

int main(void) {
    long sums[3] = {0};
    for (long n = 0; n < 20000; n++) {
        sums[0] = mix(sums[0], inline_data(n));
        sums[1] = mix(sums[1], into_steps(n));
        sums[2] = mix(sums[2], below_stack(n, n * n));
    }
    printf("%ld %ld %ld\n", sums[0], sums[1], sums[2]);
}
