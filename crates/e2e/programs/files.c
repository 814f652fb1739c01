// Writes and reads a file in functions of its own, in two threads and two processes, and prints the
// numbers.
#include "e2e.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAVES = 20, WRITES = 10, READS = 7, OF_CHILD = 3 };

static int file;

TRACED void save(int count) {
    for (int n = 0; n < count; n++)
        if (write(file, "x", 1) != 1) abort();
}

TRACED void load(int count) {
    char byte;
    for (int n = 0; n < count; n++)
        if (pread(file, &byte, 1, 0) != 1) abort();
}

TRACED void *work(void *unused) {
    load(READS);
    return unused;
}

int main(int argc, char **argv) {
    file = open(argv[1], O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (file < 0) return 1;
    // With a second argument, the program writes until it is killed.
    while (argc > 2) {
        save(WRITES);
        usleep(1000);
    }
    for (int n = 0; n < SAVES; n++) save(WRITES);
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, 0);
    pid_t child = fork();
    if (child == 0) {
        save(OF_CHILD);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}
