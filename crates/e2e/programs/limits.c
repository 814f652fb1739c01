// Fills a table or a buffer of the recording.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TRACED void traced(void) { __asm__ volatile("" ::: "memory"); }
TRACED void in_handler(void) { __asm__ volatile("" ::: "memory"); }

// Forks more children, one after the other, than a recording has room for.
static void forks(int n) {
    int bad = 0;
    traced();
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (!pid) {
            for (int k = 0; k < 100; k++) traced();
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        bad += status != 0;
    }
    printf("%d of %d children died\n", bad, n);
}

// Handlers in threads that found no chunk for their first event.
UNTRACED static void handler(int signal) {
    (void)signal;
    for (int i = 0; i < 3; i++) in_handler();
}
UNTRACED static void *waits(void *unused) {
    traced();
    sleep(1);
    return unused;
}
UNTRACED static void first_events(int n) {
    pthread_t threads[64];
    signal(SIGUSR1, handler);
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, waits, NULL);
    for (int k = 0; k < 40; k++) {
        usleep(5000);
        for (int i = 0; i < n; i++) pthread_kill(threads[i], SIGUSR1);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    puts("all came back");
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "forks")) forks(1100);
    if (argc > 1 && !strcmp(argv[1], "threads")) first_events(12);
    return 0;
}
