// Exports functions of SBCL's runtime where it is linked with -rdynamic. `jumps` ends with a jump
// through a pointer and needs a return stub; `returns` has an exit of its own.
#include "e2e.h"
TRACED long alloc_code_object(long n) { KEEP(&n); return n; }
TRACED long collect_garbage(long n) { KEEP(&n); return n; }
TRACED long returns(long n) { KEEP(&n); return n + 1; }
long (*volatile next)(long) = returns;
TRACED long jumps(long n) { return next(n * 2); }
int main(void) {
    long sum = alloc_code_object(0) + collect_garbage(0);
    for (long n = 0; n < 100; n++) sum += jumps(n) + returns(n);
    printf("%ld\n", sum);
    return sum != 15050;
}
