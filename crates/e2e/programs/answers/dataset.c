// Makes calls that take time, in two threads; SLOW makes a later build slower.
#include "e2e.h"
#include <pthread.h>
#ifndef SLOW
#define SLOW 1
#endif
TRACED long leaf(long n) { for (int i = 0; i < 200 * SLOW; i++) __asm__ volatile("" : "+r"(n)); return n + 1; }
TRACED long middle(long n) { return leaf(n) + leaf(n + 1); }
TRACED long outer(long n) { for (int i = 0; i < 50; i++) n = middle(n) & 0xffff; return n; }
static void *work(void *p) { long n = 0; for (int i = 0; i < 20; i++) n += outer(i); return (void *)(n ? p : 0); }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    work(NULL);
    pthread_join(thread, NULL);
    puts("calls leaf 4000\ncalls middle 2000\ncalls outer 40");
    return 0;
}
