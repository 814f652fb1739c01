// A running program that checks its own work. Prints "ready"; ends with its input. Argument: its
// work.
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

COUNTED(work); COUNTED(outer); COUNTED(handler);
static volatile int over;
static int failures;
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED))
TRACED long work(long n) { HIT(work); KEEP(&n); return n * 5 + 1; }
TRACED long outer(long n) { HIT(outer); for (int i = 0; i < 10; i++) n = work(n) & 0xffff; return n; }
TRACED void handler(int signal) { HIT(handler); (void)signal; outer(1); }
UNTRACED static long expected(long n) { for (int i = 0; i < 10; i++) n = (n * 5 + 1) & 0xffff; return n; }
static void check(long n) { long got = outer(n), right = expected(n); if (got != right) FAIL("outer(%ld) = %ld, not %ld\n", n, got, right); }
TRACED static void *brief(void *p) { for (long i = 0; i < 20; i++) check((long)p + i); return p; }
static void *churn(void *p) {
    while (!over) {
        pthread_t t[8];
        for (long i = 0; i < 8; i++) if (pthread_create(&t[i], NULL, brief, (void *)i)) { FAIL("pthread_create\n"); return p; }
        for (long i = 0; i < 8; i++) { void *got; pthread_join(t[i], &got); if (got != (void *)i) FAIL("a thread's result\n"); }
        if (p) usleep(500);
    }
    return p;
}
static void *busy(void *p) { while (!over) for (long i = 0; i < 1000; i++) check(i); return p; }
static void *forks(void *p) {
    for (long n = 0; !over; n++) {
        pid_t child = fork();
        if (child == 0) { for (int i = 0; i < 100; i++) check(n + i); _exit(failures ? 1 : 42); }
        int status = -1;
        check(n);
        if (waitpid(child, &status, 0) != child || status != 42 << 8) FAIL("a child ended with %x\n", status);
    }
    return p;
}
static void *waits_epoll(void *p) {
    int ep = epoll_create1(0), fd = eventfd(0, 0);
    struct epoll_event event = {.events = EPOLLIN}, got;
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
    *(int *)p = fd;
    int n = epoll_wait(ep, &got, 1, -1);
    if (n != 1) FAIL("epoll_wait: %d, errno %d\n", n, errno);
    return NULL;
}
static int tids[1];
static void *waits_semop(void *p) {
    tids[0] = gettid();
    struct sembuf b = {0, -1, 0};
    int n = semop(*(int *)p, &b, 1);
    if (n) FAIL("semop: %d, errno %d\n", n, errno);
    return NULL;
}
static volatile long pauses;
static void *watch(void *p) { // so that no thread sleeps for ever
    for (long last = -1; !over; last = pauses) { sleep(3); if (!over && pauses == last) { fprintf(stderr, "hangs in pause after %ld\n", last); abort(); } }
    return p;
}
static void alarmed(int signal) { (void)signal; }
static int input(void) { int c = getchar(); while (c != '\n' && c != EOF) c = getchar(); return c != EOF; }
static pid_t children[3];
static void *rest(void *p) {
    (void)p;
    for (int i = 0; i < 1000; i++) check(i);
    while (input()) for (int i = 0; i < 1000; i++) check(i);
    printf("failures %d\n", failures);
    exit(failures ? 1 : 7);
}
__attribute__((noreturn)) static void *strict(void *p) { prctl(PR_SET_SECCOMP, 1); (void)p; for (;;) { char c; if (read(0, &c, 1) != 1) syscall(SYS_exit, 0); } }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t t[16];
    int threads = 0, fd = 0, semaphore = -1, to_children[2] = {-1, -1};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(how, "replaced")) { puts("replaced"); while (input()) check(1); printf("failures %d\n", failures); return 9; }
    if (!strcmp(how, "churn")) for (long i = 0; i < 3; i++) pthread_create(&t[threads++], NULL, churn, (void *)i);
    if (!strcmp(how, "busy")) for (; threads < 3;) pthread_create(&t[threads++], NULL, busy, NULL);
    if (!strcmp(how, "forks")) { for (; threads < 2;) pthread_create(&t[threads++], NULL, forks, NULL); pthread_create(&t[threads++], NULL, busy, NULL); }
    if (!strcmp(how, "signals")) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, NULL);
        for (; threads < 2;) pthread_create(&t[threads++], NULL, busy, NULL);
        struct itimerval often = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (!strcmp(how, "ignored")) {
        signal(SIGUSR1, SIG_IGN);
        semaphore = semget(IPC_PRIVATE, 1, 0600);
        semctl(semaphore, 0, SETVAL, 0);
        pthread_create(&t[threads++], NULL, waits_epoll, &fd);
        pthread_create(&t[threads++], NULL, waits_semop, &semaphore);
        usleep(50000);
    }
    if (!strcmp(how, "pause")) {
        struct sigaction action = {.sa_handler = alarmed};
        sigaction(SIGALRM, &action, NULL);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        pthread_create(&t[threads++], NULL, watch, NULL);
    }
    if (!strcmp(how, "main")) { printf("ready\n"); pthread_create(&t[0], NULL, rest, NULL); pthread_exit(NULL); }
    if (!strcmp(how, "few files")) { struct rlimit l = {1, 1}; setrlimit(RLIMIT_NOFILE, &l); }
    if (!strcmp(how, "locked")) { struct rlimit l = {64 << 20, 64 << 20}; setrlimit(RLIMIT_MEMLOCK, &l); if (mlockall(MCL_CURRENT | MCL_FUTURE)) perror("mlockall"); }
    if (!strcmp(how, "little memory")) { struct rlimit l = {256 << 20, 256 << 20}; setrlimit(RLIMIT_AS, &l); }
    if (!strcmp(how, "seccomp")) { printf("ready\n"); strict(NULL); }
    if (!strcmp(how, "workers")) {
        if (pipe(to_children)) abort();
        printf("ready\n");
        input();
        for (int i = 0; i < 3; i++)
            if ((children[i] = fork()) == 0) {
                close(to_children[1]);
                char c;
                if (i == 1) check(4);
                while (read(to_children[0], &c, 1) > 0) {}
                for (int k = 0; k < 1000; k++) check(k);
                _exit(failures ? 1 : 42);
            }
        for (int i = 0; i < 3; i++) printf("child %d\n", children[i]);
    }
    printf("ready\n");
    if (!strcmp(how, "exec")) { input(); execl("/proc/self/exe", argv[0], "replaced", NULL); }
    if (!strcmp(how, "counted")) {
        while (input()) { for (int i = 0; i < 12345; i++) check(i); printf("done\n"); }
    } else if (!strcmp(how, "ignored")) {
        sigset_t set;
        sigfillset(&set);
        struct timeval soon = {0, 200};
        fd_set in;
        FD_ZERO(&in);
        FD_SET(0, &in);
        for (;; soon = (struct timeval){0, 200}, FD_SET(0, &in)) {
            int got = select(1, &in, NULL, NULL, &soon);
            if (got == 1) break;
            syscall(SYS_tgkill, getpid(), tids[0], SIGWINCH);
            kill(getpid(), SIGUSR1);
            kill(getpid(), SIGCHLD);
        }
        eventfd_write(fd, 1);
        struct sembuf b = {0, 1, 0};
        semop(semaphore, &b, 1);
    } else if (!strcmp(how, "pause")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        for (struct timeval now = {0, 0};; pauses++) {
            fd_set in;
            FD_ZERO(&in);
            FD_SET(0, &in);
            if (select(1, &in, NULL, NULL, &now) == 1) break;
            now = (struct timeval){0, 0};
            struct itimerval once = {{0, 0}, {0, 100000}};
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
            setitimer(ITIMER_REAL, &once, NULL);
            pause();
            pthread_sigmask(SIG_BLOCK, &set, NULL);
        }
    } else {
        while (input()) for (int i = 0; i < 1000; i++) check(i);
    }
    over = 1;
    if (to_children[1] >= 0) {
        close(to_children[1]);
        for (int i = 0; i < 3; i++) { int status = -1; waitpid(children[i], &status, 0); if (status != 42 << 8) FAIL("child %d ended with %x\n", i, status); }
    }
    if (!strcmp(how, "signals")) { struct itimerval never = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &never, NULL); }
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    if (semaphore >= 0) semctl(semaphore, 0, IPC_RMID);
    printf("failures %d\n", failures);
    return failures != 0;
}
