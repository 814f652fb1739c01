// A library that is opened, called and closed in a loop.
#include "chaos.h"
#include <dlfcn.h>

static void *opens(void *p) {
    struct worker own = begin();
    char path[4096];
    snprintf(path, sizeof path, "%s.so", self);
    for (long n = 0; !over; n++) {
        void *library = dlopen(path, RTLD_NOW);
        if (!library) { FAIL("dlopen: %s\n", dlerror()); break; }
        long (*twice)(long) = (long (*)(long))dlsym(library, "twice");
        if (!twice || twice(n) != 2 * n) FAIL("a function of a library\n");
        if (dlclose(library)) FAIL("dlclose: %s\n", dlerror());
        step(&own);
        usleep(200);
    }
    return p;
}
void libraries_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(start(opens, NULL)); }
