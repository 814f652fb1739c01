// Threads that end in every possible way.
#include "e2e.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

COUNTED(work); COUNTED(start); COUNTED(cleanup); COUNTED(waits); COUNTED(leaves); COUNTED(destroy); COUNTED(endless);
static long cleaned;
static sem_t ready, done, never;

TRACED long work(long n) { HIT(work); return n * 5 + 1; }
TRACED void cleanup(void *p) { HIT(cleanup); __atomic_fetch_add(&cleaned, (long)p, __ATOMIC_RELAXED); work(1); }
TRACED void destroy(void *p) { HIT(destroy); work((long)p); }
TRACED void *start(void *p) { HIT(start); long s = (long)p; for (int i = 0; i < 20; i++) s = work(s) & 0xffff; return (void *)s; }

// Not pause(): a signal's handler ends it, and the profiler of -pg has one.
TRACED void waits(void) { HIT(waits); sem_post(&ready); for (;;) { sem_wait(&never); work(0); } }
TRACED void endless(void) { HIT(endless); sem_post(&ready); for (volatile long i = 0;; i++); }
static void *cancelled(void *p) {
    pthread_cleanup_push(cleanup, (void *)1);
    pthread_cleanup_push(cleanup, (void *)100);
    if (p) { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL); endless(); } else waits();
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(1);
    return NULL;
}
TRACED void leaves(long depth) { HIT(leaves); if (depth == 0) pthread_exit((void *)77); leaves(depth - 1); KEEP(&depth); }
static void *exits(void *p) { (void)p; pthread_cleanup_push(cleanup, (void *)10000); leaves(9); pthread_cleanup_pop(0); return NULL; }
static pthread_key_t key;
static void *with_key(void *p) { pthread_setspecific(key, (void *)3); work((long)p); return NULL; }
static void *busy(void *p) { long s = (long)p; for (int i = 0; i < 200000; i++) s = work(s) & 0xffffff; return (void *)s; }
static void *detached(void *p) { work((long)p); sem_post(&done); return NULL; }
static void *last(void *p) {
    pthread_join(*(pthread_t *)p, NULL);
    for (int i = 0; i < 1000; i++) work(i);
    puts("main is gone");
    SHOW(work);
    exit(5);
}
static long run(int count, void *(*function)(void *), int cancel) {
    long sum = 0;
    for (int i = 0; i < count; i += 8) {
        pthread_t t[8];
        for (long k = 0; k < 8; k++) pthread_create(&t[k], NULL, function, (void *)(function == cancelled ? k & 1 : k + i));
        for (int k = 0; cancel && k < 8; k++) sem_wait(&ready);
        for (int k = 0; cancel && k < 8; k++) pthread_cancel(t[k]);
        for (int k = 0; k < 8; k++) { void *r; pthread_join(t[k], &r); sum += (long)r; }
    }
    return sum;
}
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    sem_init(&ready, 0, 0);
    sem_init(&done, 0, 0);
    sem_init(&never, 0, 0);
    pthread_key_create(&key, destroy);
    if (!strcmp(how, "cancel")) printf("%ld\n", run(200, cancelled, 1));
    if (!strcmp(how, "exit")) printf("%ld\n", run(200, exits, 0));
    if (!strcmp(how, "keys")) printf("%ld\n", run(400, with_key, 0));
    if (!strcmp(how, "short")) printf("%ld\n", run(3000, start, 0));
    if (!strcmp(how, "busy")) printf("%ld\n", run(8, busy, 0));
    if (!strcmp(how, "detached")) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        for (long i = 0; i < 400; i++) { pthread_t t; pthread_create(&t, &attributes, detached, (void *)i); sem_wait(&done); }
    }
    if (!strcmp(how, "main")) {
        static pthread_t self, t;
        self = pthread_self();
        pthread_create(&t, NULL, last, &self);
        work(1);
        pthread_exit(NULL);
    }
    printf("cleaned %ld\n", cleaned);
    SHOW(work); SHOW(start); SHOW(cleanup); SHOW(waits); SHOW(leaves); SHOW(destroy); SHOW(endless);
    return 0;
}
