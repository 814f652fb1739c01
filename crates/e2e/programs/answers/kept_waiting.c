// Makes calls that wait, each for at least 60 ms: for a lock whose holder waits for a pipe, for a
// condition, for a timer, for another program. Prints the names of its threads.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONG_US = 80000 };

struct {
    long hits;
    pthread_mutex_t lock;
} cache = {0, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t ready_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t ready_cond = PTHREAD_COND_INITIALIZER;
static int ready, pipes[2];
static atomic_int is_held;

static void tell(const char *name) { printf("%s %ld\n", name, syscall(SYS_gettid)); }

// A new thread has its creator's name; this one has its own before its first call.
static void begin(pthread_t *thread, const char *name, void *(*run)(void *)) {
    pthread_setname_np(pthread_self(), name);
    pthread_create(thread, 0, run, 0);
    pthread_setname_np(pthread_self(), "kept_waiting");
}

TRACED void wait_pipe(void) {
    char byte;
    if (read(pipes[0], &byte, 1) != 1)
        puts("no byte");
}

TRACED void hold_lock(void) {
    pthread_mutex_lock(&cache.lock);
    is_held = 1;
    wait_pipe();
    pthread_mutex_unlock(&cache.lock);
}

TRACED void fill_pipe(void) {
    usleep(LONG_US);
    if (write(pipes[1], "x", 1) != 1)
        puts("not written");
}

TRACED void give_signal(void) {
    usleep(LONG_US);
    pthread_mutex_lock(&ready_lock);
    ready = 1;
    pthread_cond_signal(&ready_cond);
    pthread_mutex_unlock(&ready_lock);
}

TRACED static void *holder(void *nothing) {
    tell("holder");
    hold_lock();
    return nothing;
}

TRACED static void *filler(void *nothing) {
    tell("filler");
    fill_pipe();
    return nothing;
}

TRACED static void *signaler(void *nothing) {
    tell("signaler");
    give_signal();
    return nothing;
}

TRACED void want_lock(void) {
    pthread_mutex_lock(&cache.lock);
    pthread_mutex_unlock(&cache.lock);
}

TRACED void handle_lock(void) { want_lock(); }

TRACED void handle_condition(void) {
    pthread_mutex_lock(&ready_lock);
    while (!ready)
        pthread_cond_wait(&ready_cond, &ready_lock);
    pthread_mutex_unlock(&ready_lock);
}

TRACED void handle_nap(void) { usleep(LONG_US); }

TRACED void handle_child(FILE *child) {
    char line[16];
    if (!fgets(line, sizeof line, child))
        puts("no line");
}

int main(void) {
    pthread_t threads[3];
    if (pipe(pipes))
        return 1;
    begin(&threads[0], "holder", holder);
    while (!is_held)
        usleep(1000);
    begin(&threads[1], "filler", filler);
    handle_lock();
    begin(&threads[2], "signaler", signaler);
    handle_condition();
    handle_nap();
    FILE *child = popen("sleep 0.1; echo done", "r");
    handle_child(child);
    pclose(child);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    return 0;
}
