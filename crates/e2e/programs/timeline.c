// Threads with names that call themselves and others, and sleep so that a recorder sees the names.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <unistd.h>
COUNTED(leaf); COUNTED(tree); COUNTED(phase); COUNTED(work);
TRACED int leaf(int n) { HIT(leaf); KEEP(&n); return n + 1; }
TRACED int tree(int n) { HIT(tree); return n ? tree(n - 1) + tree(n - 1) : leaf(n); }
TRACED void phase(int n) { HIT(phase); tree(n); usleep(20000); tree(n / 2); }
TRACED void *work(void *name) {
    HIT(work);
    pthread_setname_np(pthread_self(), name);
    usleep(100000);
    phase(6);
    return name;
}
int main(void) {
    char *names[] = {"alpha", "beta", "gamma"};
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, work, names[i]);
    phase(4);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    SHOW(leaf); SHOW(tree); SHOW(phase); SHOW(work);
    return 0;
}
