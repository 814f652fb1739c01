// Calls a function of a library that it opens, and one of its own, until its input ends. Prints
// "ready PID".
#include "e2e.h"
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>
#ifdef LIBRARY
TRACED long shared_leaf(long n) { KEEP(&n); return n + 1; }
#else
TRACED long own_leaf(long n) { KEEP(&n); return n + 1; }
int main(int count, char **words) {
    struct pollfd input = {0, POLLIN, 0};
    void *library = dlopen(words[count - 1], RTLD_NOW);
    long (*leaf)(long) = library ? (long (*)(long))dlsym(library, "shared_leaf") : NULL;
    if (!leaf) return 1;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (long n = 0; poll(&input, 1, 1) == 0;) n = leaf(own_leaf(n));
    return 0;
}
#endif
