// Threads that all live at the same time, each with calls of its own: "many_threads THREADS CALLS".
#include "e2e.h"
#include <pthread.h>

COUNTED(first); COUNTED(leaf); COUNTED(middle);
static pthread_barrier_t all;
static int calls;

TRACED void first(void) { HIT(first); }
TRACED unsigned leaf(unsigned x) { HIT(leaf); return x * 3 + 1; }
TRACED unsigned middle(unsigned x) { HIT(middle); return leaf(x) + leaf(x + 1); }
static void *work(void *p) {
    unsigned sum = (unsigned)(long)p;
    first();
    pthread_barrier_wait(&all);
    for (int i = 0; i < calls; i++) sum += middle(sum);
    return (void *)(long)sum;
}
int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 8;
    calls = argc > 2 ? atoi(argv[2]) : 100;
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, NULL, count);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &small, work, (void *)i)) { perror("pthread_create"); return 77; }
    unsigned sum = 0;
    for (int i = 0; i < count; i++) { void *result; pthread_join(threads[i], &result); sum += (unsigned)(long)result; }
    printf("%u\n", sum);
    SHOW(first); SHOW(leaf); SHOW(middle);
    return 0;
}
