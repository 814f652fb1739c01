// Waits five times for a lock that another thread holds, and executes the program of its argument.
// LOCK is the name of the lock.
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "e2e.h"

pthread_mutex_t LOCK = PTHREAD_MUTEX_INITIALIZER;
static volatile int held;

static void nap(int ms) {
    struct timespec time = {0, ms * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR) {
    }
}

TRACED void *hold(void *unused) {
    pthread_mutex_lock(&LOCK);
    held = 1;
    nap(20);
    pthread_mutex_unlock(&LOCK);
    return unused;
}

TRACED void want(void) {
    pthread_mutex_lock(&LOCK);
    pthread_mutex_unlock(&LOCK);
}

int main(int count, char **arguments) {
    for (int n = 0; n < 5; n++) {
        pthread_t other;
        held = 0;
        pthread_create(&other, 0, hold, 0);
        while (!held) {
            nap(1);
        }
        want();
        pthread_join(other, 0);
    }
    if (count > 1) {
        execl(arguments[1], arguments[1], (char *)0);
    }
    return 0;
}
