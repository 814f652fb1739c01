// Opens and closes a library all the time, from two threads, until its input ends.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int wrong, over;

__attribute__((noinline)) double work(const char *name, double n) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    double (*function)(double) = library ? (double (*)(double))dlsym(library, "cbrt") : NULL;
    double found = function ? function(n) : 0;
    if (library) dlclose(library);
    return found;
}

static void *opener(void *name) {
    while (!over) if (work(name, 8) != 2) wrong = 1;
    return name;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) if (pthread_create(&threads[i], NULL, opener, "libm.so.6")) abort();
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) continue;
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
    return wrong;
}
