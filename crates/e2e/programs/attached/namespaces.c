// Opens a traced library in a linker namespace of its own, which gets another C library. Arguments:
// the library; the number of times. With "stay" it runs until its input ends.
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <unistd.h>

#ifdef LIBRARY
COUNTED(inner); COUNTED(outer); COUNTED(starts);
TRACED long inner(long n) { HIT(inner); KEEP(&n); return n * 3 + 1; }
TRACED long outer(long n) {
    HIT(outer);
    char text[32];
    snprintf(text, sizeof text, "%ld", n); // by its own C library
    for (int i = 0; i < 10; i++) n = inner(n) & 0xffff;
    return n + (long)strlen(text);
}
__attribute__((constructor)) TRACED static void starts(void) { HIT(starts); }
void add(long *sums) { sums[0] += calls_inner; sums[1] += calls_outer; sums[2] += calls_starts; }
#else
COUNTED(own);
TRACED long own(long n) { HIT(own); KEEP(&n); return n + 1; }

int main(int argc, char **argv) {
    long sums[3] = {0}, n = 0;
    for (int i = 0; i < atoi(argv[2]); i++) {
        void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        long (*outer)(long) = (long (*)(long))dlsym(library, "outer");
        void (*add)(long *) = (void (*)(long *))dlsym(library, "add");
        for (int k = 0; k < 100; k++) n = own(outer(n));
        if (argc > 3 && i == 0) {
            printf("ready\n");
            fflush(stdout);
            for (char c; read(0, &c, 1) > 0;) {}
        }
        add(sums);
        if (dlclose(library)) puts(dlerror());
    }
    printf("%ld\n", n);
    SHOW(own);
    printf("calls inner %ld\ncalls outer %ld\ncalls starts %ld\n", sums[0], sums[1], sums[2]);
    return 0;
}
#endif
