// Children of every kind; the counters are shared, so that the program knows the calls of all its
// processes.
#include "e2e.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct { long parent_only, child_only, both; } *count;
extern char **environ;
TRACED long parent_only(long n) { __atomic_fetch_add(&count->parent_only, 1, __ATOMIC_RELAXED); return n + 1; }
TRACED long child_only(long n) { __atomic_fetch_add(&count->child_only, 1, __ATOMIC_RELAXED); return n + 2; }
TRACED long both(long n) { __atomic_fetch_add(&count->both, 1, __ATOMIC_RELAXED); return n * 3; }

static int in_child(long n) {
    for (int i = 0; i < 1000; i++) n = child_only(both(n) & 0xffff);
    return n & 63;
}
static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}
static volatile int stop;
static void *busy(void *p) { long n = 0; while (!stop) n = both(n) & 0xff; return p; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(how, "replaced")) { printf("replaced, %d arguments\n", argc); return 12; }
    count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(how, "fork"))
        for (int i = 0; i < 20; i++) {
            for (int k = 0; k < 10; k++) parent_only(both(k));
            pid_t child = fork();
            if (child == 0) _exit(in_child(i));
            for (int k = 0; k < 10; k++) parent_only(both(k));
            printf("child %d: %x\n", i, wait_for(child));
        }
    if (!strcmp(how, "double")) {
        parent_only(both(1));
        pid_t child = fork();
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(in_child(7));
            in_child(3);
            _exit(WEXITSTATUS(wait_for(grandchild)) + 1);
        }
        printf("%x\n", wait_for(child));
        parent_only(both(1));
    }
    if (!strcmp(how, "threads")) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, busy, NULL);
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (child == 0) _exit(in_child(i));
            parent_only(i);
            printf("%x\n", wait_for(child));
        }
        stop = 1;
        for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    }
    if (!strcmp(how, "others")) {
        char *self[] = {argv[0], "replaced", NULL};
        for (int i = 0; i < 20; i++) {
            parent_only(both(i));
            pid_t child = vfork();
            if (child == 0) { execve("/bin/true", (char *[]){"true", NULL}, environ); _exit(99); }
            printf("vfork %x\n", wait_for(child));
            parent_only(both(i));
            child = 0;
            int error = posix_spawn(&child, argv[0], NULL, NULL, self, environ);
            printf("spawn %d %x\n", error, wait_for(child));
            parent_only(both(i));
            printf("system %x\n", system("exit 3"));
            FILE *pipe = popen("echo piped", "r");
            char line[32] = "";
            if (!fgets(line, sizeof line, pipe)) puts("nothing");
            printf("popen %s%x\n", line, pclose(pipe));
        }
    }
    printf("%s parent_only %ld\n%s child_only %ld\n", "calls", count->parent_only, "calls", count->child_only);
    if (!strcmp(how, "exec"))
        for (int i = 0; i < 100; i++) both(i);
    printf("about both %ld\n", count->both);
    if (!strcmp(how, "exec")) {
        execl(argv[0], argv[0], "replaced", "again", NULL);
        return 1;
    }
    return 0;
}
