// Requests whose ids are passed on to a worker thread.
#include "e2e.h"
#include <pthread.h>

struct job { char id[33]; int steps; };

TRACED int work(const char *id, int steps) { int sum = 0; for (int n = 0; n < steps; n++) sum += n; KEEP(id); return sum; }
TRACED void *worker(void *job) { work(((struct job *)job)->id, ((struct job *)job)->steps); return NULL; }
TRACED int handle(const char *id) {
    struct job job = {{0}, 10};
    pthread_t thread;
    strcpy(job.id, id);
    pthread_create(&thread, NULL, worker, &job);
    pthread_join(thread, NULL);
    return work(id, 5);
}

int main(void) {
    handle("4bf92f3577b34da6a3ce929d0e0e4736");
    handle("second");
    return 0;
}
