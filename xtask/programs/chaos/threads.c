// Threads that start and end, are cancelled, wait, change their user, and fork.
#include "chaos.h"
#include <semaphore.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static void *brief(void *p) { for (long n = 0; n < 5; n++) check((long)p + n); return p; }
static void *churns(void *p) {
    struct worker own = begin();
    while (!over) {
        pthread_t all[4];
        for (long n = 0; n < 4; n++) all[n] = start(brief, (void *)n);
        for (long n = 0; n < 4; n++) {
            void *result;
            pthread_join(all[n], &result);
            if (result != (void *)n) FAIL("a thread's result\n");
        }
        step(&own);
        usleep(100);
    }
    return p;
}
void threads_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(start(churns, NULL)); }

static void cleans(void *p) { (*(long *)p)++; }
TRACED void endless(long *count) {
    pthread_cleanup_push(cleans, count);
    for (long n = 0;; n++) { check(n); if (n % 4 == 0) usleep(200); pthread_testcancel(); }
    pthread_cleanup_pop(0);
}
static void *cancelled(void *p) { pthread_cleanup_push(cleans, p); endless(p); pthread_cleanup_pop(0); return NULL; }
static void *cancels(void *p) {
    struct worker own = begin();
    while (!over) {
        long count = 0;
        void *result;
        pthread_t thread = start(cancelled, &count);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED || count != 2) FAIL("a cancelled thread ran %ld of 2 cleanup handlers\n", count);
        step(&own);
    }
    return p;
}
void cancel_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(start(cancels, NULL)); }

static void *busies(void *p) { struct worker own = begin(); for (long n = 0; !over; n++) { check(n); step(&own); if (n % 128 == 0) usleep(200); } return p; }
static void *changes_user(void *p) {
    struct worker own = begin();
    while (!over) {
        if (seteuid(geteuid())) FAIL("seteuid: %s\n", strerror(errno));
        check(1);
        step(&own);
        usleep(300);
    }
    return p;
}
void setid_mode(int signal, long hertz) {
    (void)signal; (void)hertz;
    for (int n = 0; n < 2; n++) join_at_end(start(busies, NULL));
    join_at_end(start(changes_user, NULL));
}

// No handler runs in these threads: no wait may end early.
struct pair { int there[2], back[2]; sem_t semaphore; };
static void *answers(void *p) {
    struct pair *pair = p;
    struct worker own = begin();
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pair->there[0], &event);
    for (;;) {
        long number;
        int ready = epoll_wait(epoll, &event, 1, -1);
        if (ready != 1) FAIL("epoll_wait: %d, %s\n", ready, strerror(errno));
        ssize_t got = read(pair->there[0], &number, sizeof number);
        if (got == 0) break;
        if (got != sizeof number) FAIL("read: %zd, %s\n", got, strerror(errno));
        number = outer(number);
        if (write(pair->back[1], &number, sizeof number) != sizeof number) FAIL("write: %s\n", strerror(errno));
        while (sem_wait(&pair->semaphore)) FAIL("sem_wait: %s\n", strerror(errno));
        step(&own);
    }
    return NULL;
}
static void *asks(void *p) {
    struct pair *pair = p;
    struct worker own = begin();
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &own.mask);
    for (long n = 0; !over; n++) {
        long number = n & 0xff, right = outer(number);
        if (write(pair->there[1], &number, sizeof number) != sizeof number) FAIL("write: %s\n", strerror(errno));
        ssize_t got = read(pair->back[0], &number, sizeof number);
        if (got != sizeof number) FAIL("read: %zd, %s\n", got, strerror(errno));
        if (number != right) FAIL("an answer is %ld, not %ld\n", number, right);
        double before = now();
        struct timespec pause = {0, 2000000};
        if (nanosleep(&pause, NULL)) FAIL("nanosleep: %s\n", strerror(errno));
        if (now() - before < 0.002) FAIL("slept %g s, not 0.002\n", now() - before);
        sem_post(&pair->semaphore);
        step(&own);
    }
    close(pair->there[1]);
    return NULL;
}
void waits_mode(int signal, long hertz) {
    (void)signal; (void)hertz;
    struct pair *pair = calloc(1, sizeof *pair);
    if (pipe(pair->there) || pipe(pair->back) || sem_init(&pair->semaphore, 0, 0)) abort();
    join_at_end(start(asks, pair));
    join_at_end(start(answers, pair));
}

extern char **environ;
static void *forks(void *p) {
    struct worker own = begin();
    while (!over) {
        pid_t child = fork();
        if (child == 0) {
            long before = shared->failures;
            for (long n = 0; n < 20; n++) check(n);
            _exit(shared->failures != before ? 1 : 42);
        }
        int status = -1;
        pid_t got;
        while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
        if (got != child || status != 42 << 8) FAIL("a child ended with %x\n", status);
        char *arguments[] = {"/bin/true", NULL};
        int failed = posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ);
        if (failed) FAIL("posix_spawn: %s\n", strerror(failed));
        while (!failed && (got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
        if (!failed && status != 0) FAIL("a spawned child ended with %x\n", status);
        step(&own);
        usleep(1000);
    }
    return p;
}
void forks_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(start(forks, NULL)); }
