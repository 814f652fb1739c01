// Coroutines that any of several threads resumes. Records the caller of each call among its
// functions on the same stack. Each thread ends after RUNS coroutines, and another one takes its
// place.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { RUN, BODY, WORK, DEEP, YIELDS, LEAF, WORKER, FUNCTIONS };
static const char *const names[] = {"run", "body", "work", "deep", "yields", "leaf", "worker"};
static long noted[FUNCTIONS][FUNCTIONS];
#define NOTE(function, by) __atomic_fetch_add(&noted[function][by], 1, __ATOMIC_RELAXED)
#ifndef ROOM
#define ROOM (1 << 20)
#endif
#ifndef RUNS
#define RUNS (1 << 30)
#endif
enum { COROUTINES = 100, THREADS = 4, ROUNDS = 20 };
static struct coroutine { ucontext_t own, *back; int done; } all[COROUTINES];
static struct coroutine *queue[COROUTINES];
static int first, count, left = COROUTINES;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

TRACED void leaf(int by) { NOTE(LEAF, by); }
TRACED void yields(struct coroutine *c, int by) {
    NOTE(YIELDS, by);
    leaf(YIELDS);
    swapcontext(&c->own, c->back);
    leaf(YIELDS);
}
TRACED void deep(struct coroutine *c) { NOTE(DEEP, WORK); yields(c, DEEP); leaf(DEEP); }
TRACED void work(struct coroutine *c) { NOTE(WORK, BODY); deep(c); yields(c, WORK); leaf(WORK); }
TRACED void body(int i) {
    for (int round = 0; round < ROUNDS; round++) { work(&all[i]); leaf(BODY); }
    all[i].done = 1;
    swapcontext(&all[i].own, all[i].back);
    __asm__ volatile("" ::: "memory");
}
TRACED void run(struct coroutine *c) {
    NOTE(RUN, WORKER);
    ucontext_t here;
    c->back = &here;
    leaf(RUN);
    swapcontext(&here, &c->own);
    leaf(RUN);
}
UNTRACED static struct coroutine *take(struct coroutine *last, int ends) {
    struct coroutine *next = NULL;
    pthread_mutex_lock(&lock);
    if (last && last->done) left--;
    else if (last) queue[(first + count++) % COROUTINES] = last;
    if (count && !ends) { next = queue[first]; first = (first + 1) % COROUTINES; count--; }
    pthread_mutex_unlock(&lock);
    return next;
}
TRACED void *worker(void *none) {
    struct coroutine *c = NULL;
    int runs = 0;
    while ((c = take(c, runs == RUNS)) || (runs < RUNS && __atomic_load_n(&left, __ATOMIC_RELAXED)))
        if (c) { run(c); runs++; }
    return none;
}
int main(void) {
    char *rooms = mmap(NULL, (size_t)ROOM * COROUTINES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&all[i].own);
        all[i].own.uc_stack.ss_sp = rooms + (size_t)ROOM * i;
        all[i].own.uc_stack.ss_size = ROOM;
        makecontext(&all[i].own, (void (*)(void))body, 1, i);
        queue[count++] = &all[i];
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, NULL);
    for (int i = 0; __atomic_load_n(&left, __ATOMIC_RELAXED); i = (i + 1) % THREADS) {
        pthread_join(threads[i], NULL);
        pthread_create(&threads[i], NULL, worker, NULL);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int f = 0; f < FUNCTIONS; f++)
        for (int by = 0; by < FUNCTIONS; by++)
            if (noted[f][by]) printf("call %s,%s %ld\n", names[f], names[by], noted[f][by]);
    return 0;
}
