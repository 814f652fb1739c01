// Starts programs by posix_spawn, whose child begins on a stack of its own with inaccessible memory
// above it. Prints how many have succeeded.
#define _GNU_SOURCE
#include "e2e.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;

// Leaves no free range beside the next mappings.
static void fill(int times) {
    for (int i = 0; i < times; i++) mmap(NULL, 4096ul << (i % 4), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void) {
    int succeeded = 0;
    fill(3000);
    for (int i = 0; i < 50; i++) {
        char *arguments[] = {"true", NULL};
        pid_t child;
        int status;
        fill(40);
        if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) != 0) continue;
        if (waitpid(child, &status, 0) == child && status == 0) succeeded++;
    }
    printf("succeeded %d\n", succeeded);
    return 0;
}
