// Runs under a seccomp filter: "usual" forbids the system calls that container runtimes forbid; "no
// ..." kills for one system call, "kill N" for the one with that number, and "kill early N" before
// the C library has allocated memory. "trapped" emulates a system call in a handler of SIGSYS, in a
// program of one thread. With a second argument it has no files.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]))
#define IF(number, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, then)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL SECCOMP_RET_KILL_PROCESS

static void install(struct sock_filter *code, size_t count) {
    struct sock_fprog filter = {count, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) abort();
}
#define INSTALL(...) do { struct sock_filter code[] = {__VA_ARGS__}; install(code, sizeof code / sizeof *code); } while (0)

__attribute__((noinline)) long work(long n) { return n < 2 ? n : work(n - 1) + work(n - 2); }

enum { PARENT = 4711 };
static void emulate(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = PARENT;
}

// Returns the number of system calls with another result than the handler's.
static int trapped(void) {
    struct sigaction action = {.sa_sigaction = emulate, .sa_flags = SA_SIGINFO};
    struct pollfd input = {0, POLLIN, 0};
    int wrong = 0;
    sigaction(SIGSYS, &action, NULL);
    INSTALL(NUMBER, IF(SYS_getppid, SECCOMP_RET_TRAP), ALLOW);
    printf("ready\n");
    while (!poll(&input, 1, 0)) for (int n = 0; n < 100; n++) { wrong += syscall(SYS_getppid) != PARENT; work(2); }
    printf("wrong %d\n", wrong);
    return wrong;
}

static void *worker(void *p) {
    if (p) INSTALL(NUMBER, IF(SYS_mmap, KILL), ALLOW);
    for (;;) { work(5); usleep(1000); }
    return p;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(how, "trapped")) return trapped() ? 8 : 7;
    // An empty root directory, as in browsers.
    if (argc > 2 && (chroot("/proc/self/fdinfo") || chdir("/"))) abort();
    if (!strcmp(how, "usual"))
        INSTALL(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), BPF_STMT(BPF_RET | BPF_K, KILL), NUMBER,
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3), ARGUMENT(0),
                BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER | CLONE_NEWNS, 0, 1), BPF_STMT(BPF_RET | BPF_K, KILL),
                NUMBER, IF(SYS_mount, SECCOMP_RET_ERRNO | 1), IF(SYS_ptrace, KILL), IF(SYS_reboot, KILL),
                IF(SYS_clone3, SECCOMP_RET_ERRNO | 38), ALLOW);
    if (!strcmp(how, "no openat")) INSTALL(NUMBER, IF(SYS_openat, KILL), ALLOW);
    if (!strcmp(how, "prctl for names"))
        INSTALL(NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3), ARGUMENT(0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_NAME, 1, 0), BPF_STMT(BPF_RET | BPF_K, KILL), ALLOW);
    if (!strcmp(how, "no clone")) INSTALL(NUMBER, IF(SYS_clone, SECCOMP_RET_ERRNO | 1), IF(SYS_clone3, SECCOMP_RET_ERRNO | 38), ALLOW);
    if (!strcmp(how, "no membarrier")) INSTALL(NUMBER, IF(SYS_membarrier, SECCOMP_RET_ERRNO | 1), ALLOW);
    if (!strncmp(how, "kill early ", 11)) {
        INSTALL(NUMBER, IF(atoi(how + 11), KILL), ALLOW);
        if (write(1, "ready\n", 6) != 6) abort();
        for (char c; read(0, &c, 1) > 0;) work(5);
        _exit(7);
    }
    if (strcmp(how, "no clone") && pthread_create(&thread, NULL, worker, strcmp(how, "thread") ? NULL : argv)) abort();
    usleep(20000);
    if (!strncmp(how, "kill ", 5)) {
        // The C library looks at its output, and allocates memory, for the first line.
        printf("begins\n");
        struct sock_filter code[] = {NUMBER, IF(atoi(how + 5), KILL), ALLOW};
        struct sock_fprog filter = {sizeof code / sizeof *code, code};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)) abort();
    }
    printf("ready\n");
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        char c;
        work(5);
        if (poll(&input, 1, 5) < 1) continue;
        if (read(0, &c, 1) < 1) break;
        printf("work %ld\n", work(10));
    }
    return 7;
}
