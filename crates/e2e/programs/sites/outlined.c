// Leaf functions whose rare paths compilers outline, with arrays in their red zones that both parts
// use.
#include "e2e.h"

COUNTED(rare); COUNTED(caller);

TRACED long leaf(const int *a, unsigned n) {
    volatile int t[24];
    for (int i = 0; i < 24; i++) t[i] = a[i] * (int)n;
    if (__builtin_expect(n == 3, 0)) {
        long sum = 0;
        for (int i = 0; i < 24; i++) sum = sum * 3 + t[i];
        return sum;
    }
    return t[n % 24];
}

__attribute__((cold)) TRACED void rare(long x) { HIT(rare); fprintf(stderr, "rare %ld\n", x); }

static volatile long seen;
TRACED long caller(long x) {
    HIT(caller);
    if (__builtin_expect(x % 97 == 3, 0)) { rare(x); seen++; return leaf((const int[24]){1, 2, (int)x}, 3); }
    seen = x;
    return x * 2;
}

int main(int count, char **words) {
    int a[24];
    unsigned long sum = 0;
    for (int i = 0; i < 24; i++) a[i] = i + 1;
    for (int i = 1; i < count; i++) sum += (unsigned long)leaf(a, (unsigned)atoi(words[i]));
    for (long i = 0; i < 400; i++) sum = sum * 31 + (unsigned long)caller(i);
    printf("%lu\n", sum);
    SHOW(rare); SHOW(caller);
    return 0;
}
