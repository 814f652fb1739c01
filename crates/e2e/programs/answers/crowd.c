// Starts a number of threads that all exist at the same time, and call before, during and after
// that time.
#include "e2e.h"
#include <pthread.h>
COUNTED(leaf); COUNTED(branch); COUNTED(work);
static pthread_barrier_t all;
TRACED int leaf(int n) { HIT(leaf); KEEP(&n); return n + 1; }
TRACED int branch(int n) { HIT(branch); return leaf(n) + leaf(n + 1); }
TRACED void *work(void *p) {
    HIT(work);
    for (int round = 0; round < 3; round++) {
        branch(round);
        pthread_barrier_wait(&all);
    }
    return p;
}
int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&all, NULL, count);
    for (int i = 0; i < count; i++) if (pthread_create(&threads[i], &small, work, NULL)) return 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    SHOW(leaf); SHOW(branch); SHOW(work);
    return 0;
}
