// A target of `cargo xtask chaos`: checks its own work until its input ends. Status 0: all was
// right; 1: it prints what was wrong. Arguments: the file of its counters, then modes of the form
// NAME[:SIGNAL[:HERTZ]].
#include "chaos.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>

struct shared *shared;
volatile int over;
const char *self;
static pthread_t threads[64];
static int thread_count;
static int workers;

TRACED long work(long n) { __asm__ volatile("" : "+r"(n) : : "memory"); return n * 5 + 1; }
TRACED long outer(long n) { for (int i = 0; i < 10; i++) n = work(n) & 0xffff; return n; }
static long expected(long n) { for (int i = 0; i < 10; i++) n = (n * 5 + 1) & 0xffff; return n; }
void check(long n) { long got = outer(n), right = expected(n); if (got != right) FAIL("outer(%ld) = %ld, not %ld\n", n, got, right); }

struct worker begin(void) {
    int n = __atomic_fetch_add(&workers, 1, __ATOMIC_RELAXED);
    if (n >= 60) abort();
    struct worker worker = {.progress = &shared->progress[n]};
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, 50 + n % 12);
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &worker.mask);
    return worker;
}
void step(struct worker *worker) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int signal = 1; signal <= 64; signal++)
        if (sigismember(&mask, signal) != sigismember(&worker->mask, signal)) FAIL("signal %d: blocked is %d\n", signal, sigismember(&mask, signal));
    __atomic_fetch_add(worker->progress, 1, __ATOMIC_RELAXED);
}
pthread_t start(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    int error;
    // While another thread is in execve, the kernel creates no thread.
    for (int n = 0; (error = pthread_create(&thread, NULL, routine, argument)) == EAGAIN && n < 5000; n++) usleep(1000);
    if (error) { FAIL("pthread_create: %s\n", strerror(error)); abort(); }
    return thread;
}
void join_at_end(pthread_t thread) { threads[thread_count++] = thread; }
double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
timer_t timer_for(int signal, long hertz) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal};
    event._sigev_un._tid = gettid();
    struct itimerspec often = {{0, 1000000000 / hertz}, {0, 1000000000 / hertz}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL)) { FAIL("timer: %s\n", strerror(errno)); abort(); }
    return timer;
}
void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | flags};
    sigaction(signal, &action, NULL);
}

static int goes_on(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    return !(poll(&input, 1, 0) == 1 && read(0, &byte, 1) <= 0);
}

static const struct mode modes[] = {
    {"timer", timer_mode}, {"queue", queue_mode}, {"nested", nested_mode}, {"jumps", jumps_mode}, {"deep", deep_mode},
    {"coroutines", coroutines_mode}, {"rseq", rseq_mode}, {"heap", heap_mode}, {"threads", threads_mode}, {"cancel", cancel_mode},
    {"setid", setid_mode}, {"waits", waits_mode}, {"forks", forks_mode},
#ifdef LIBRARIES
    {"libraries", libraries_mode},
#endif
#ifdef THROWS
    {"throws", throws_mode},
#endif
};

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The timer of gprof, in a program compiled with -pg, is stopped: its signals would not be the
    // target's, and it survives execve.
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    self = argv[0];
    int fd = open(argv[1], O_RDWR | O_CLOEXEC), execs = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || shared == MAP_FAILED) { perror(argv[1]); return 1; }
    close(fd);
    long before = shared->signals;
    for (int i = 2; i < argc; i++) {
        char name[32] = "";
        int signal = 0;
        long hertz = 1000;
        sscanf(argv[i], "%31[^:]:%d:%ld", name, &signal, &hertz);
        execs |= !strcmp(name, "exec");
        for (size_t n = 0; n < sizeof modes / sizeof *modes; n++) if (!strcmp(name, modes[n].name)) modes[n].start(signal, hertz);
    }
    struct worker own = begin();
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    double until = now() + 0.15;
    for (long n = 0; goes_on(); n++) {
        check(n);
        step(&own);
        if (n % 64 == 0) { struct timespec pause = {0, 300000}; nanosleep(&pause, NULL); }
        if (execs && now() > until) {
            // A program begins with the signal mask of the thread that called execve.
            sigset_t none;
            sigemptyset(&none);
            pthread_sigmask(SIG_SETMASK, &none, NULL);
            execv("/proc/self/exe", argv);
        }
    }
    over = 1;
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    printf("failures %ld signals %ld\n", shared->failures, shared->signals - before);
    return shared->failures != 0;
}
