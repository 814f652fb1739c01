// Has an allocator and mutexes of its own with one lock, as a sanitizer does, which it mostly holds;
// or holds the lock at its end, where it searches for leaks.
#include "arena.h"
#include <poll.h>
#include <pthread.h>
#include <time.h>

static int held;

UNTRACED static void enter(void) {
    while (__atomic_exchange_n(&held, 1, __ATOMIC_ACQUIRE)) ;
    for (volatile int n = 0; n < 20000; n++) ;
}
UNTRACED static void leave(void) { __atomic_store_n(&held, 0, __ATOMIC_RELEASE); }

UNTRACED void *malloc(size_t size) {
    enter();
    void *found = take(size);
    leave();
    return found;
}
UNTRACED int pthread_mutex_lock(pthread_mutex_t *mutex) { (void)mutex; enter(); leave(); return 0; }
UNTRACED int pthread_mutex_unlock(pthread_mutex_t *mutex) { (void)mutex; enter(); leave(); return 0; }
UNTRACED void __lsan_register_root_region(const void *start, size_t size) { (void)start; (void)size; enter(); leave(); }

UNTRACED static void search(void) {
    enter();
    puts("searches");
    fflush(stdout);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    leave();
}

TRACED void *work(void) { return malloc(0); }

int main(int argc, char **argv) {
    puts("ready");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "ends")) return atexit(search);
    while (!poll(&(struct pollfd){.fd = 0, .events = POLLIN}, 1, 0)) {
        for (int n = 0; n < 100; n++) {
            KEEP(work());
            for (volatile int m = 0; m < 5000; m++) ;
        }
    }
    return 0;
}
