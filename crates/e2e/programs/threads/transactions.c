// Threads move amounts between accounts in transactions of gcc's runtime, which are repeated when
// they meet. Prints the sum, and how often a transaction saw another one.
#include "e2e.h"
#include <pthread.h>

enum { ACCOUNTS = 16, THREADS = 3, MOVES = 400, EACH = 100 };
static long accounts[ACCOUNTS], wrong;

__attribute__((transaction_safe, noinline)) static void add(long *account, long amount) { *account += amount; }
static void __attribute__((noinline)) move(long from, long to, long amount) {
    __transaction_atomic { add(&accounts[from], -amount); add(&accounts[to], amount); }
}
static long __attribute__((noinline)) sum(void) {
    long all = 0;
    __transaction_atomic { for (int n = 0; n < ACCOUNTS; n++) all += accounts[n]; }
    return all;
}
static void *run(void *number) {
    unsigned random = (long)number;
    for (int n = 0; n < MOVES; n++) {
        random = random * 1103515245 + 12345;
        move(random >> 8 & 15, random >> 16 & 15, random >> 20 & 7);
        if (sum() != ACCOUNTS * EACH) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    return 0;
}
int main(void) {
    pthread_t threads[THREADS];
    for (int n = 0; n < ACCOUNTS; n++) accounts[n] = EACH;
    for (long n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, run, (void *)(n + 1));
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    printf("sum %ld, wrong %ld\n", sum(), wrong);
    return 0;
}
