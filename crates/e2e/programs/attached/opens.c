// Opens and closes libraries all the time, each from a thread of its own, until its input ends.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int wrong, over;

__attribute__((noinline)) int work(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return 1;
    double (*function)(double) = (double (*)(double))dlsym(library, "cbrt");
    double found = function ? function(8) : 2;
    return dlclose(library) != 0 || found != 2;
}

static void *opener(void *name) {
    while (!over) if (work(name)) wrong = 1;
    return name;
}

int main(void) {
    pthread_t threads[2];
    char *names[2] = { "libm.so.6", "libresolv.so.2" };
    for (int i = 0; i < 2; i++) if (pthread_create(&threads[i], NULL, opener, names[i])) abort();
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) continue;
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
    return wrong;
}
