// Opens traced libraries repeatedly, calls into linked ones, runs constructors, atexit handlers and
// IFUNC resolvers.
#include "e2e.h"
#include <dlfcn.h>
#include <time.h>

volatile long library_starts, library_ends;
long two_function(long);
COUNTED(constructed); COUNTED(at_exit); COUNTED(chosen); COUNTED(work);
static long linked;
__attribute__((constructor)) TRACED void constructed(void) { HIT(constructed); }
TRACED static void at_exit(void) { HIT(at_exit); printf("at exit\n"); SHOW(at_exit); }
TRACED static long chosen(long n) { HIT(chosen); return n + 5; }
TRACED static void *resolve(void) { return (void *)chosen; }
long picked(long) __attribute__((ifunc("resolve")));
TRACED long work(long n) { HIT(work); return n ^ 9; }

int main(int argc, char **argv) {
    atexit(at_exit);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) { puts(dlerror()); return 1; }
        long (*function)(long) = (long (*)(long))dlsym(library, "one_function");
        for (int k = 0; k < 50; k++) sum = function(sum & 0xffff);
        if (dlclose(library)) puts(dlerror());
        if (i % 4 == 0) { linked++; sum += two_function(i); }
        sum += work(picked(i));
    }
    printf("%ld, opened %ld, closed %ld\n", sum, library_starts, library_ends);
    SHOW(constructed); SHOW(chosen); SHOW(work);
    printf("calls one_function %d\ncalls two_function %ld\ncalls main 1\n", 200 * 50, linked);
    printf("calls libone.so:same %d\ncalls libtwo.so:same %ld\ncalls one_starts 200\ncalls one_ends 200\ncalls two_starts 1\ncalls two_ends 1\n", 200 * 50, linked);
    if (argc > 2) printf("calls resolve 1\n");
    fflush(stdout);
    return 0;
}
