// Threads on small stacks next to each other, whose handlers run on stacks of their own.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 20000, STACK = 32 << 10 };
TRACED void leaf(void) { KEEP(0); }
TRACED void step(void) { leaf(); leaf(); }
TRACED void root(void) { step(); step(); }
TRACED void handled(int signal) { KEEP(signal); leaf(); }
UNTRACED static void *thread(void *own) {
    stack_t alternate = {.ss_sp = own, .ss_size = STACK};
    sigaltstack(&alternate, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        root();
        if (i % 8 == 0) pthread_kill(pthread_self(), SIGUSR1);
    }
    return NULL;
}
int main(void) {
    struct sigaction action = {.sa_handler = handled, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    char *stacks = mmap(NULL, 2 * THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stacks + i * STACK, STACK);
        pthread_create(&all[i], &attributes, thread, stacks + (THREADS + i) * STACK);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    return 0;
}
