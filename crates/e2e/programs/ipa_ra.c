// Callers compiled with IPA-RA keep values in caller-saved registers: the attribute, unlike the
// option, does not disable that.
#include <stdio.h>
#define SITE __attribute__((noinline, noclone, patchable_function_entry(5, 0)))
static long hits, twice;
SITE static long step(long x) { hits++; return x + 1; }
SITE static long around(long a, long b, long c, long d, long e, long f) {
    twice++;
    long s = a;
    for (int i = 0; i < 4; i++) s = step(s) + (b ^ c) - (d & e) + f;
    return s + b + c + d + e + f;
}
SITE static double scaled(double x, double y, double z) { return step((long)x) * y + z * x - y; }
int main(int argc, char **argv) {
    long s = argc, calls = 0;
    double d = 0;
    for (long i = 0; i < 50000; i++) {
        s = around(s, i, i * 3, s >> 3, i ^ 77, 5) & 0xffffffffff;
        d = scaled(s & 1023, i * 0.5, d / 1e6);
        calls++;
    }
    printf("%ld %.17g\ncalls step %ld\ncalls around %ld\ncalls scaled %ld\n", s, d, hits, twice, calls);
    return 0;
}
