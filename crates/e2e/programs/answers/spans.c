// Requests that begin in one thread and are finished in another; some of them wait for 20 ms. The last one is never finished.
#include "e2e.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
COUNTED(opened); COUNTED(begin); COUNTED(finish); COUNTED(lie);
enum { REQUESTS = 40 };
static sem_t waiting;
TRACED long opened(long n) { HIT(opened); KEEP(&n); return n * 16 + 4096; }
TRACED void begin(long id) { HIT(begin); KEEP(&id); }
TRACED void finish(long id) { HIT(finish); KEEP(&id); }
TRACED void lie(void) { HIT(lie); struct timespec ms = {0, 20000000}; nanosleep(&ms, NULL); }
static void *work(void *p) {
    for (long n = 0; n < REQUESTS - 1; n++) {
        while (sem_wait(&waiting)) {}
        if (n % 8 == 3) lie();
        finish(n * 16 + 4096);
    }
    return p;
}
int main(void) {
    pthread_t other;
    sem_init(&waiting, 0, 0);
    pthread_create(&other, NULL, work, NULL);
    for (long n = 0; n < REQUESTS; n++) {
        begin(opened(n));
        sem_post(&waiting);
    }
    pthread_join(other, NULL);
    SHOW(opened); SHOW(begin); SHOW(finish); SHOW(lie);
    return 0;
}
