// Joins a control group, fills memory, and calls functions in many threads. Prints "ready"; ends
// with its input. Arguments: the group's file of members, and megabytes.
#include "e2e.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 16 };
static volatile int over, failures;

TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }

static void *call(void *p) {
    for (long n = 0; !over; n++) if (work(n) != n * 5 + 1) failures = 1;
    return p;
}

int main(int argc, char **argv) {
    FILE *members = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!members || fprintf(members, "%d\n", getpid()) < 0 || fclose(members)) return 2;
    size_t size = strtoul(argv[2], NULL, 10) << 20;
    char *memory = malloc(size);
    if (!memory) return 2;
    memset(memory, 1, size);
    KEEP(memory);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) if (pthread_create(&threads[i], NULL, call, NULL)) return 2;
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    over = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return failures;
}
