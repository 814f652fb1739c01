// Replaces itself by execve every few milliseconds, and sometimes later, while a second thread runs. Argument: how often. Ends with 5.
#include "e2e.h"
#include <pthread.h>
#include <unistd.h>

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }
static void *other(void *unused) { for (;;) work(1); return unused; }

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL)) return 1;
    for (long n = 0; n < 20000; n++) work(n);
    if (left % 5 == 0) usleep(left % 25 ? 20000 : 200000);
    if (left == 0) return 5;
    char number[20];
    snprintf(number, sizeof number, "%d", left - 1);
    execl(argv[0], argv[0], number, NULL);
    return 9;
}
