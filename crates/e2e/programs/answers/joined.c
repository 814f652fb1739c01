// Waits for the end of a thread, then goes on for a while.
#include <pthread.h>
#include <unistd.h>
#include "e2e.h"

TRACED void *nap(void *unused) {
    usleep(50000);
    return unused;
}

TRACED void join(pthread_t thread) { pthread_join(thread, NULL); }

int main() {
    pthread_t thread;
    pthread_create(&thread, NULL, nap, NULL);
    join(thread);
    usleep(500000);
    return 0;
}
