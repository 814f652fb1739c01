// A program that confines itself when it reads a line, and checks its own work. Prints "done" after
// each line; ends with its input. Argument: how.
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int over;
static int failures;
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED))
TRACED long work(long n) { KEEP(&n); return n * 5 + 1; }
TRACED long outer(long n) { for (int i = 0; i < 10; i++) n = work(n) & 0xffff; return n; }
UNTRACED static long expected(long n) { for (int i = 0; i < 10; i++) n = (n * 5 + 1) & 0xffff; return n; }
static void rounds(long count) { for (long i = 0; i < count; i++) if (outer(i) != expected(i)) FAIL("outer(%ld)\n", i); }
static void *other(void *p) { while (!over) { rounds(20); usleep(500); } return p; }
static int input(void) { char c = 0; while (c != '\n' && read(0, &c, 1) > 0); return c == '\n'; }

// Kills the process for all other calls.
static void filter(void) {
    static const unsigned allowed[] = {SYS_read, SYS_write, SYS_exit_group, SYS_futex, SYS_clock_nanosleep, SYS_restart_syscall, SYS_rt_sigreturn};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[COUNT + 3] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}};
    for (int i = 0; i < COUNT; i++) code[1 + i] = (struct sock_filter){BPF_JMP | BPF_JEQ | BPF_K, COUNT - i, 0, allowed[i]};
    code[COUNT + 1] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS};
    code[COUNT + 2] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {COUNT + 3, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) FAIL("seccomp: %d\n", errno);
}
static char blocked; // SYSCALL_DISPATCH_FILTER_ALLOW or _BLOCK
static void dispatched(int signal) { (void)signal; blocked = 0; }
static void dispatch(void) {
    signal(SIGSYS, dispatched);
    if (prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &blocked)) FAIL("dispatch: %d\n", errno);
}
static void become_daemon(void) {
    if (fork()) _exit(0);
    setsid();
    if (fork()) _exit(0);
    for (int file = 3; file < 1000; file++) close(file);
    printf("daemon %d\n", getpid()); fflush(stdout);
}
static void confine(const char *how, const char *directory) {
    if (!strcmp(how, "filter") || !strcmp(how, "filter all")) filter();
    if (!strcmp(how, "dispatch")) dispatch();
    if (!strcmp(how, "daemon")) become_daemon();
    if (!strcmp(how, "root") && (chroot(directory) || chdir("/"))) FAIL("chroot: %d\n", errno);
    if (!strcmp(how, "namespaces") && unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_FILES | CLONE_FS)) FAIL("unshare: %d\n", errno);
}
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int threaded = !strcmp(how, "filter") || !strcmp(how, "dispatch");
    pthread_t thread;
    mkdir("empty", 0755);
    if (threaded) pthread_create(&thread, NULL, other, NULL);
    rounds(10);
    puts("ready"); fflush(stdout);
    for (int n = 0; input(); n++) {
        rounds(100);
        if (n == 0) confine(how, "empty");
        rounds(100);
        puts("done"); fflush(stdout);
    }
    over = 1;
    fprintf(failures ? stderr : stdout, "failures %d\n", failures); fflush(stdout);
    _exit(failures != 0);
}
