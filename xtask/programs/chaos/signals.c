// Signals: each arrives exactly once, real-time ones in order; handlers run on alternate stacks,
// nested, and are left by siglongjmp.
#include "chaos.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static void received(void) { __atomic_fetch_add(&shared->signals, 1, __ATOMIC_RELAXED); }

// A timer: its expirations are counted by signals and their overruns. None may be missing in the
// end.
struct ticks {
    double since, period;
    long seen, missing[64], received;
};
static __thread struct ticks *ticks;
static void tick(int signal, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    struct ticks *own = ticks;
    if (!own || info->si_signo != signal || info->si_code != SI_TIMER) FAIL("signal %d with code %d\n", signal, info->si_code);
    if (own) {
        own->seen += 1 + info->si_overrun;
        own->missing[own->received++ % 64] = (long)((now() - own->since) / own->period) - own->seen;
        check(own->received & 0xff);
        received();
    }
    errno = saved;
}
struct timing { int signal; long hertz; };
static void *ticking(void *p) {
    struct timing *timing = p;
    struct worker own = begin();
    struct ticks mine = {.since = now(), .period = 1.0 / timing->hertz};
    ticks = &mine;
    timer_t timer = timer_for(timing->signal, timing->hertz);
    for (long n = 0; !over; n++) {
        check(n);
        step(&own);
        if (n % 256 == 0) usleep(50);
    }
    usleep(200000 + 2000000 / timing->hertz);
    timer_delete(timer);
    long least = mine.missing[0], count = mine.received < 64 ? mine.received : 64;
    for (long n = 0; n < count; n++) if (mine.missing[n] < least) least = mine.missing[n];
    // The timer began after the clock was read: up to some periods of a fast timer later.
    if (mine.received == 0 || least > 2 + timing->hertz / 200) FAIL("timer of %ld Hz by signal %d: %ld expirations missing of %ld\n", timing->hertz, timing->signal, least, mine.seen);
    ticks = NULL;
    free(p);
    return NULL;
}
static void *timing(int signal, long hertz) {
    struct timing *timing = malloc(sizeof *timing);
    *timing = (struct timing){signal, hertz};
    return timing;
}
void timer_mode(int signal, long hertz) {
    handle(signal, tick, 0);
    join_at_end(start(ticking, timing(signal, hertz)));
}

// Numbered, queued signals from another thread.
struct line {
    int tid, signal, complete;
    long sent, seen;
};
static __thread struct line *line;
static void queued(int signal, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    struct line *own = line;
    if (!own || info->si_code != SI_QUEUE) { FAIL("signal %d with code %d\n", signal, info->si_code); return; }
    long number = (long)info->si_value.sival_ptr;
    if (number != own->seen) FAIL("signal %d: number %ld arrives, not %ld\n", signal, number, own->seen);
    __atomic_store_n(&own->seen, number + 1, __ATOMIC_RELEASE);
    received();
    check(number & 0xff);
    errno = saved;
}
static void *receives(void *p) {
    struct worker own = begin();
    line = p;
    __atomic_store_n(&line->tid, gettid(), __ATOMIC_RELEASE);
    // The sender completes its batch, so that this thread outlives it.
    for (long n = 0; !__atomic_load_n(&line->complete, __ATOMIC_ACQUIRE) || line->sent != line->seen; n++) {
        check(n);
        step(&own);
        if (n % 16 == 0) usleep(100);
        static __thread double late;
        if (over && !late) late = now() + 15;
        if (late && now() > late) { FAIL("of %ld queued signals %ld have arrived\n", line->sent, line->seen); break; }
    }
    __atomic_store_n(&line->tid, -1, __ATOMIC_RELEASE);
    return NULL;
}
static void *sends(void *p) {
    struct line *to = p;
    struct worker own = begin();
    int tid;
    while (!(tid = __atomic_load_n(&to->tid, __ATOMIC_ACQUIRE))) usleep(100);
    while (!over) {
        for (int n = 0; n < 20; n++) {
            siginfo_t info = {.si_signo = to->signal, .si_code = SI_QUEUE};
            info.si_pid = getpid();
            info.si_uid = getuid();
            info.si_value.sival_ptr = (void *)to->sent;
            // Counted first, as the handler may run before the call returns.
            __atomic_fetch_add(&to->sent, 1, __ATOMIC_RELEASE);
            while (syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, to->signal, &info)) {
                if (errno != EAGAIN) { FAIL("rt_tgsigqueueinfo: %s\n", strerror(errno)); goto complete; }
                usleep(100);
            }
        }
        step(&own);
        usleep(300);
        for (double late = now() + 30; to->sent - __atomic_load_n(&to->seen, __ATOMIC_ACQUIRE) > 1000 && now() < late;) usleep(100);
    }
complete:
    __atomic_store_n(&to->complete, 1, __ATOMIC_RELEASE);
    return NULL;
}
void queue_mode(int signal, long hertz) {
    (void)hertz;
    handle(signal, queued, 0);
    struct line *new = calloc(1, sizeof *new);
    new->signal = signal;
    join_at_end(start(receives, new));
    join_at_end(start(sends, new));
}

// Handlers on an alternate stack, the second interrupting the first.
static __thread long depth;
static void inner(int signal, siginfo_t *info, void *context) {
    (void)info; (void)context;
    volatile long here[8] = {signal, depth};
    check(depth);
    if (here[0] != signal) FAIL("the frame of a nested handler has changed\n");
    received();
}
static void first(int signal, siginfo_t *info, void *context) {
    (void)info; (void)context;
    int saved = errno;
    volatile long here[64];
    for (int n = 0; n < 64; n++) here[n] = n * depth;
    depth++;
    syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2);
    check(signal);
    depth--;
    for (int n = 0; n < 64; n++) if (here[n] != n * depth) FAIL("the frame of a handler has changed\n");
    received();
    errno = saved;
}
static void alternate(void) {
    stack_t stack = {.ss_size = 256 << 10};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigaltstack(&stack, NULL)) FAIL("sigaltstack\n");
}
static void *nests(void *p) {
    struct timing *timing = p;
    struct worker own = begin();
    alternate();
    depth = 1;
    timer_t timer = timer_for(timing->signal, timing->hertz);
    for (long n = 0; !over; n++) {
        check(n);
        step(&own);
        if (n % 512 == 0) usleep(50);
    }
    timer_delete(timer);
    usleep(1000);
    return NULL;
}
void nested_mode(int signal, long hertz) {
    handle(signal, first, SA_ONSTACK);
    handle(SIGUSR2, inner, SA_ONSTACK);
    for (int n = 0; n < 2; n++) join_at_end(start(nests, timing(signal, hertz)));
}

// Handlers that do not return, at any moment of the interrupted code.
static __thread sigjmp_buf *back;
static void leaves(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)info; (void)context;
    if (!back) return;
    received();
    siglongjmp(*back, 1);
}
static void *jumps(void *p) {
    struct timing *timing = p;
    struct worker own = begin();
    alternate();
    timer_t timer = timer_for(timing->signal, timing->hertz);
    sigjmp_buf here;
    for (volatile long n = 0; !over; n++) {
        if (!sigsetjmp(here, 1)) {
            back = &here;
            for (long i = 0; i < 1000; i++) outer(i);
        }
        back = NULL;
        check(n);
        step(&own);
    }
    timer_delete(timer);
    usleep(1000);
    return NULL;
}
void jumps_mode(int signal, long hertz) {
    handle(signal, leaves, SA_ONSTACK);
    join_at_end(start(jumps, timing(signal, hertz)));
}
