// An allocator that stops all other threads with its lock held, as a collector does, in a library ("-DLIBRARY"); and a program that allocates all the time. Says "ready"; ends when its
// input does.
#define _GNU_SOURCE
#include "e2e.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#ifdef LIBRARY
volatile int threads[THREADS], collects;
static volatile int lock, stopped, resumed;
static char heap[1 << 26];
static size_t top;
void stop(int signal) {
    (void)signal;
    __atomic_fetch_add(&stopped, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&resumed, __ATOMIC_SEQ_CST)) sched_yield();
    __atomic_fetch_sub(&stopped, 1, __ATOMIC_SEQ_CST);
}
static void collect(void) {
    int own = (int)syscall(SYS_gettid), told = 0;
    resumed = 0;
    for (int i = 0; i < THREADS; i++)
        if (threads[i] && threads[i] != own && !syscall(SYS_tgkill, getpid(), threads[i], SIGPWR)) told++;
    while (__atomic_load_n(&stopped, __ATOMIC_SEQ_CST) != told) sched_yield();
    __atomic_store_n(&resumed, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) sched_yield();
}
void *malloc(size_t size) {
    static int calls;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
    if (collects && ++calls % 3 == 0) collect();
    size = (size + 31) & ~(size_t)15;
    // Its first part is never given out again: that is the C library's and the dynamic linker's.
    if (top + size > sizeof heap) top = 1 << 22;
    char *room = heap + top;
    top += size;
    *(size_t *)room = size - 16;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return room + 16;
}
// A thread that ends while it is being stopped would never say that it has.
void leave(long which) {
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
    threads[which] = 0;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}
void free(void *room) { (void)room; }
void *calloc(size_t n, size_t size) { return memset(malloc(n * size), 0, n * size); }
void *realloc(void *old, size_t size) {
    void *room = malloc(size);
    size_t had = old ? ((size_t *)old)[-2] : 0;
    return memcpy(room, old ? old : room, had < size ? had : size);
}
#else
extern volatile int threads[THREADS], collects;
void stop(int signal);
void leave(long which);
static volatile int over;
TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }
static void rest(long us) { struct timespec t = {0, us * 1000}; while (nanosleep(&t, &t)) {} }
// Every thread is one that the collector stops.
static void watch_input(void) { char c; struct pollfd input = {0, POLLIN, 0}; if (poll(&input, 1, 0) == 1 && read(0, &c, 1) <= 0) over = 1; }
static void *run(void *p) {
    long which = (long)p, failures = 0;
    threads[which] = (int)syscall(SYS_gettid);
    for (long i = 0; !over; i++) {
        if (which == 0) watch_input();
        for (int n = 0; n < 10 && which == 1; n++) { char *room = malloc(100); room[5] = 1; KEEP(room); }
        for (long n = 0; n < 100; n++) failures += work(n) != n * 5 + 1;
        rest(which == 1 ? 100 : 500);
    }
    leave(which);
    return (void *)failures;
}
int main(void) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGPWR, &action, NULL);
    pthread_t others[THREADS];
    for (long i = 1; i < THREADS; i++) pthread_create(&others[i], NULL, run, (void *)i);
    rest(20000);
    printf("ready\n");
    fflush(stdout);
    collects = 1;
    long failures = (long)run((void *)0);
    for (long i = 1; i < THREADS; i++) { void *more; pthread_join(others[i], &more); failures += (long)more; }
    return failures != 0;
}
#endif
