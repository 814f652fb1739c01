// Prints everything that a program can see of its environment, and ends as its argument says.
#include "e2e.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;
COUNTED(show);
TRACED void show(const char *name, const char *value) { HIT(show); printf("%s=%s\n", name, value); }
static volatile sig_atomic_t got;
static void note(int signal) { got = signal; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "exit")) { show("exit", argv[2]); SHOW(show); exit(atoi(argv[2])); }
    if (!strcmp(how, "die")) { show("die", argv[2]); SHOW(show); fflush(stdout); kill(getpid(), atoi(argv[2])); pause(); }
    if (!strcmp(how, "crash")) { show("crash", ""); SHOW(show); fflush(stdout); *(volatile int *)0 = 1; }
    if (!strcmp(how, "stdin")) {
        char line[256];
        long lines = 0, bytes = 0;
        while (fgets(line, sizeof line, stdin)) { lines++; bytes += strlen(line); }
        printf("%ld lines, %ld bytes, last %s\n", lines, bytes, line);
        fprintf(stderr, "an error\n");
        show("stdin", "read");
        SHOW(show);
        return 0;
    }
    if (!strcmp(how, "wait")) { // until SIGTERM or SIGINT; or, given a third argument, dies of it
        if (argc < 3) { signal(SIGTERM, note); signal(SIGINT, note); signal(SIGHUP, note); }
        show("ready", "");
        fflush(stdout);
        sigset_t all, before;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before);
        while (!got) sigsuspend(&before);
        printf("got %d\n", got);
        SHOW(show);
        return 40 + got;
    }
    for (char **one = environ; *one; one++) show("environment", *one);
    for (int i = 0; i < argc; i++) show("argument", argv[i]);
    char text[4096];
    show("directory", getcwd(text, sizeof text));
    for (int fd = 0; fd < 1024; fd++) {
        struct stat stat;
        if (fstat(fd, &stat) == 0) { snprintf(text, sizeof text, "%d mode %o flags %x/%x", fd, stat.st_mode & S_IFMT, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD)); show("file", text); }
    }
    for (int i = 1; i < 65; i++) {
        struct sigaction action;
        if (i == 32 || i == 33) continue; // the C library's own, which posix_spawn ignores
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL) { snprintf(text, sizeof text, "%d %s", i, action.sa_handler == SIG_IGN ? "ignored" : "handled"); show("signal", text); }
    }
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(text, sizeof text, status))
        if (!strncmp(text, "Sig", 3) || !strncmp(text, "Shd", 3) || !strncmp(text, "Threads", 7) || !strncmp(text, "Seccomp", 7) || !strncmp(text, "NoNew", 5) || !strncmp(text, "TracerPid", 9) || !strncmp(text, "Name", 4) || !strncmp(text, "Umask", 5)) { if (strncmp(text, "SigQ", 4) && strncmp(text, "SigIgn", 6)) show("status", text); }
    fclose(status);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        snprintf(text, sizeof text, "%d %lu %lu", i, (long)limit.rlim_cur, (long)limit.rlim_max);
        show("limit", text);
    }
    snprintf(text, sizeof text, "own session: %d, terminal: %d, dumpable: %d", getsid(0) == getpid(), isatty(0), prctl(PR_GET_DUMPABLE));
    show("process", text);
    char link[64];
    show("program", realpath("/proc/self/exe", text) ? text : "?");
    snprintf(link, sizeof link, "nice %d", getpriority(PRIO_PROCESS, 0));
    show("priority", link);
    FILE *score = fopen("/proc/self/oom_score_adj", "r");
    show("OOM score", score && fgets(link, sizeof link, score) ? link : "?");
    if (score) fclose(score);
    SHOW(show);
    return 0;
}
