// Programs that shells or other programs start, in other directories and roots. Their counts are in
// the output, by the name of the program.
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

TRACED long step(long n) { return n + 1; }
TRACED long inner(long n) { return step(n) * 3; }

static long steps(int count) {
    long n = 0;
    for (int i = 0; i < count; i++) n = inner(n) & 0xffff;
    return n;
}

// A tree of processes with two children each, as make has it; every node executes this program
// anew.
static int tree(const char *self, int depth) {
    steps(10);
    char below[16];
    snprintf(below, sizeof below, "%d", depth - 1);
    pid_t children[2];
    for (int i = 0; depth > 0 && i < 2; i++)
        if ((children[i] = i ? fork() : vfork()) == 0) {
            execl(self, self, "tree", below, NULL);
            _exit(99);
        }
    int failed = 0;
    for (int i = 0, status; depth > 0 && i < 2; i++)
        if (waitpid(children[i], &status, 0) < 0 || status) failed = 1;
    return failed;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (getenv("LD_PRELOAD")) puts("LD_PRELOAD is set");
    if (!strcmp(how, "tree")) return tree(argv[0], atoi(argv[2]));
    if (!strcmp(how, "daemon")) {
        // This process outlives its parent, in a session of its own.
        if (fork()) return 0;
        setsid();
        if (fork()) _exit(0);
        usleep(200000);
        execl(argv[0], argv[0], "steps", argv[2], NULL);
        _exit(99);
    }
    if (!strcmp(how, "chroot")) {
        if (chroot(argv[2]) || chdir("/")) { perror("chroot"); return 1; }
        execl(argv[3], argv[3], "steps", argv[4], NULL);
        perror("execl");
        return 1;
    }
    if (!strcmp(how, "wait")) {
        // Time to attach; then other programs are run.
        setvbuf(stdout, NULL, _IOLBF, 0);
        puts("ready");
        for (char line[16]; fgets(line, sizeof line, stdin);) {
            pid_t child = fork();
            if (child == 0) { execl(argv[0], argv[0], "steps", argv[2], NULL); _exit(99); }
            int status = 0;
            waitpid(child, &status, 0);
            printf("done %x\n", status);
        }
        return 0;
    }
    steps(argc > 2 ? atoi(argv[2]) : 1);
    if (argc > 2) printf("steps %s\n", argv[2]);
    return 0;
}
