// Tail calls: direct, through a pointer, mutual, variadic, and out of a function that passes a static chain.
#include "e2e.h"

#if defined(__clang__)
#define TAIL __attribute__((musttail)) return
#else
#define TAIL return
#endif
COUNTED(even); COUNTED(odd); COUNTED(first); COUNTED(second); COUNTED(third); COUNTED(through_pointer); COUNTED(dispatch);

TRACED long odd(long n, double d);
TRACED long even(long n, double d) { HIT(even); if (n == 0) return (long)d; TAIL odd(n - 1, d + 0.5); }
TRACED long odd(long n, double d) { HIT(odd); if (n == 0) return -(long)d; TAIL even(n - 1, d + 0.25); }
TRACED double third(double a, double b) { HIT(third); return a * 3 + b; }
TRACED double second(double a, double b) { HIT(second); TAIL third(b, a); }
TRACED double first(double a, double b) { HIT(first); TAIL second(a + 1, b - 1); }
typedef long (*operation)(long, long);
TRACED long through_pointer(long a, long b) { HIT(through_pointer); return a * 31 + b; }
static volatile operation table[2] = {through_pointer, through_pointer};
TRACED long dispatch(long a, long b) { HIT(dispatch); TAIL table[a & 1](b, a); }

int main(void) {
    long sum = 0;
    double d = 0;
    for (int i = 0; i < 2000; i++) {
        sum += even(i % 50, i);
        d += first(i, d / 1e3);
        sum ^= dispatch(i, sum & 0xffff);
    }
#ifdef __OPTIMIZE__
    sum += even(1000000, 1); // constant stack
#endif
    printf("%ld %.17g\n", sum, d);
#ifndef __clang__
    long total = 0;
    __attribute__((noinline)) long nested(long x) { total += x; return total; } // r10 is the static chain
    long (*volatile pointer)(long) = nested;
    for (int i = 0; i < 1000; i++) total ^= pointer(i);
    printf("nested %ld\n", total);
#endif
    SHOW(even); SHOW(odd); SHOW(first); SHOW(second); SHOW(third); SHOW(through_pointer); SHOW(dispatch);
    return 0;
}
