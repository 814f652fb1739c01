// Two files have a static lock of the same name.
#include <pthread.h>
#include <unistd.h>
#define TRACED __attribute__((noinline))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
void lock_other(void);
void unlock_other(void);

TRACED void want_first(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

TRACED void want_second(void) {
    lock_other();
    unlock_other();
}

static void *holder(void *unused) {
    pthread_mutex_lock(&lock);
    lock_other();
    usleep(100000);
    pthread_mutex_unlock(&lock);
    usleep(100000);
    unlock_other();
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, holder, NULL);
    usleep(30000);
    want_first();
    want_second();
    pthread_join(thread, NULL);
    return 0;
}
