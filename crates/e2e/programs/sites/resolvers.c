// Functions that are selected when the program is linked at run time (IFUNC), in the program and in
// a library of its own (-DLIBRARY). Resolvers count in a variable that needs no relocation: they
// run before or during relocation.
#include "e2e.h"

typedef long function(long);
#ifdef LIBRARY
#define NAME(what) library_##what
#else
#define NAME(what) own_##what
#endif

static long NAME(fast_calls), NAME(slow_calls);
__attribute__((visibility("hidden"))) volatile long NAME(resolved);
TRACED static long NAME(fast)(long n) { NAME(fast_calls)++; KEEP(&n); return n + 1; }
TRACED static long NAME(slow)(long n) { NAME(slow_calls)++; KEEP(&n); return n + 2; }
TRACED static function *NAME(pick_fast)(void) { NAME(resolved)++; return NAME(fast); }
TRACED static function *NAME(pick_slow)(void) { NAME(resolved)++; return NAME(slow); }
long NAME(first)(long n) __attribute__((ifunc(
#ifdef LIBRARY
    "library_pick_fast"
#else
    "own_pick_fast"
#endif
)));
long NAME(second)(long n) __attribute__((ifunc(
#ifdef LIBRARY
    "library_pick_slow"
#else
    "own_pick_slow"
#endif
)));

#ifdef LIBRARY
TRACED long library_both(long n) { return library_first(n) + library_second(n); }
void library_show(void) {
    printf("calls library_fast %ld\ncalls library_slow %ld\n", library_fast_calls, library_slow_calls);
    fprintf(stderr, "library resolved %s\n", library_resolved >= 2 ? "yes" : "no");
}
#else
long library_first(long), library_second(long), library_both(long);
void library_show(void);
// A pointer to a function is resolved when the program is relocated, whatever -z says.
static function *volatile pointer = own_first;

int main(void) {
    long sum = 0;
    for (long n = 0; n < 1000; n++) {
        sum += own_first(n) + own_second(n) + pointer(n);
#ifndef ALONE
        sum += library_both(n) + library_first(n);
        if (n % 3 == 0) sum += library_second(n);
#endif
    }
    printf("%ld\ncalls own_fast %ld\ncalls own_slow %ld\n", sum, own_fast_calls, own_slow_calls);
    fprintf(stderr, "resolved %s\n", own_resolved >= 2 ? "yes" : "no");
#ifndef ALONE
    library_show();
#endif
    return 0;
}
#endif
