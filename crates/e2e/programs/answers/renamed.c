// Threads that name themselves in a traced call, and end at once.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 40 };

__attribute__((noinline)) void rename_self(long number) {
    char name[16];
    snprintf(name, sizeof name, "task-%ld", number);
    pthread_setname_np(pthread_self(), name);
}

static void *run(void *number) {
    rename_self((long)number);
    return 0;
}

int main(void) {
    for (long number = 0; number < THREADS; number++) {
        pthread_t thread;
        pthread_create(&thread, 0, run, (void *)number);
        pthread_join(thread, 0);
    }
    return 0;
}
