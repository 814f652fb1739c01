// Programs that are hard to attach to, each of which checks its own work. Prints "ready"; ends with
// its input. Argument: the program.
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

COUNTED(work);
static volatile int over;
static int failures;
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED))
TRACED long work(long n) { HIT(work); KEEP(&n); return n * 5 + 1; }
static void check(long n) { long got = work(n); if (got != n * 5 + 1) FAIL("work(%ld) = %ld\n", n, got); }
// A value of the program's own, in a word of a thread's control block that the C library does not
// use here.
#define OWN_WORD 0xdeadbeefcafeul
static int has_own_words;
static volatile int watching;
static void set_word(void) { __asm__ volatile("mov %0, %%fs:32" :: "r"(OWN_WORD)); }
static unsigned long get_word(void) { unsigned long word; __asm__ volatile("mov %%fs:32, %0" : "=r"(word)); return word; }
static void *watch_input(void *p) { int c; if (has_own_words) set_word(); watching = 1; while ((c = getchar()) != EOF) {} over = 1; return p; }
static void rest(long us) { struct timespec t = {us / 1000000, us % 1000000 * 1000}; while (nanosleep(&t, &t)) {} }

// Numbered real-time signals to one thread: each arrives once, in the order of sending.
static volatile long arrived;
static void numbered(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    if (info->si_value.sival_int != arrived) FAIL("signal %d came as number %ld\n", info->si_value.sival_int, arrived);
    arrived++;
    check(arrived);
}
static volatile long sent;
static void *sends(void *to) {
    for (; !over; rest(100)) {
        union sigval value = {.sival_int = (int)sent};
        if (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN + 3, value) == 0) sent++;
    }
    return NULL;
}
static void queue(void) {
    struct sigaction action = {.sa_sigaction = numbered, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 3, &action, NULL);
    pthread_t self = pthread_self(), sender;
    pthread_create(&sender, NULL, sends, &self);
    for (long i = 0; !over; i++) { check(i); if (i % 100 == 0) rest(50); }
    pthread_join(sender, NULL);
    rest(20000);
    if (arrived != sent) FAIL("%ld of %ld signals came\n", arrived, sent);
}

// A timer that sends a real-time signal 20,000 times a second.
static volatile long ticks;
static void tick(int signal) { (void)signal; ticks++; check(ticks); }
static void timer(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    timer_t t;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    timer_create(CLOCK_MONOTONIC, &event, &t);
    struct itimerspec often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    timer_settime(t, 0, &often, NULL);
    for (long i = 0; !over; i++) check(i);
    timer_settime(t, 0, &never, NULL);
    if (!ticks) FAIL("the timer never came\n");
}

// glibc changes the user of all threads by a signal that every thread must answer.
static void *busy(void *p) { for (long i = 0; !over; i++) { check(i); if (i % 1000 == 0) rest(500); } return p; }
static void users(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, busy, NULL);
    while (!over) { if (seteuid(geteuid())) FAIL("seteuid\n"); rest(300); }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

// Handlers that sleep: the first on the thread's stack, another one in it on the alternate stack,
// and one with a large frame.
static void on_alternate(int signal) { (void)signal; check(2); rest(30000); }
static void on_stack(int signal) { (void)signal; check(3); raise(SIGUSR2); check(4); }
static void deep(int signal) { (void)signal; volatile char large[2 << 20]; large[0] = large[sizeof large - 1] = 1; rest(30000); check(large[0]); }
static void stacks(void) {
    stack_t alternate = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&alternate, NULL);
    struct sigaction first = {.sa_handler = on_stack}, second = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK}, third = {.sa_handler = deep};
    sigaddset(&second.sa_mask, SIGALRM); // its frame is too large for that stack
    sigaction(SIGUSR1, &first, NULL);
    sigaction(SIGUSR2, &second, NULL);
    sigaction(SIGALRM, &third, NULL);
    timer_t t[2];
    int signals[2] = {SIGUSR1, SIGALRM};
    for (int i = 0; i < 2; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signals[i]};
        timer_create(CLOCK_MONOTONIC, &event, &t[i]);
        struct itimerspec often = {{0, 70000000 + i * 13000000}, {0, 50000000}};
        timer_settime(t[i], 0, &often, NULL);
    }
    for (long i = 0; !over; i++) check(i);
    struct itimerspec never = {{0, 0}, {0, 0}};
    for (int i = 0; i < 2; i++) timer_settime(t[i], 0, &never, NULL);
}

#ifdef OWN_ALLOCATOR
// An allocator of the program's own, whose lock is held most of the time.
static volatile char locked;
static char heap[64 << 20] __attribute__((aligned(16)));
static size_t used;
static volatile long spins;
static void lock(void) { while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE)) __builtin_ia32_pause(); for (int i = 0; i < 2000; i++) spins++; }
static void unlock(void) { __atomic_clear(&locked, __ATOMIC_RELEASE); }
void *malloc(size_t n) { lock(); n = (n + 31) & ~15ul; if (used + n > sizeof heap) used = 16 << 20; char *p = heap + used; used += n; *(size_t *)p = n; unlock(); return p + 16; }
void free(void *p) { if (p) { lock(); unlock(); } }
void *calloc(size_t a, size_t b) { void *p = malloc(a * b); return memset(p, 0, a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) { size_t old = *(size_t *)((char *)p - 16) - 16; memcpy(q, p, old < n ? old : n); } return q; }
#endif
static void allocator(void) { for (long i = 0; !over; i++) { void *volatile p = malloc(32); free(p); check(i); } }

// Restartable sequences: a counter for each processor, incremented without atomic instructions.
int raise_counter(void *area, long *counters);
__asm__(".section __rseq_cs,\"aw\"\n.balign 32\nsequence: .long 0,0\n.quad 1f\n.quad 2f-1f\n.quad 4f\n"
        ".text\n.globl raise_counter\n.type raise_counter,@function\nraise_counter:\n.cfi_startproc\n"
        "lea sequence(%rip),%rax\nmov %rax,8(%rdi)\n"
        "1: mov 4(%rdi),%ecx\nshl $6,%rcx\nmov (%rsi,%rcx),%rdx\nmov $20000,%eax\n5: dec %eax\njnz 5b\ninc %rdx\nlea (%rsi,%rcx),%rsi\nxor %eax,%eax\nmov %rdx,(%rsi)\n2: ret\n"
        ".cfi_endproc\n.size raise_counter,.-raise_counter\n"
        ".balign 16\n.byte 0x0f,0xb9,0x3d\n.long 0x53053053\n4: mov $1,%eax\nret\n");
static long counters[1024 * 8] __attribute__((aligned(64)));
extern const long __rseq_offset __attribute__((weak));
static void *raises(void *p) {
    (void)p;
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    long raised = 0;
    while (!over) if (!raise_counter(area, counters)) raised++;
    return (void *)raised;
}
static void sequences(void) {
    if (!&__rseq_offset) { while (!over) { check(1); rest(1000); } return; }
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, raises, NULL);
    while (!over) { check(1); rest(1000); }
    long raised = 0, sum = 0;
    for (int i = 0; i < 4; i++) { void *one; pthread_join(t[i], &one); raised += (long)one; }
    for (int i = 0; i < 1024; i++) sum += counters[i * 8];
    if (raised != sum) FAIL("%ld of %ld increments lost\n", raised - sum, raised);
}

// A library with a slow constructor, opened repeatedly: the dynamic linker's lock is held
// meanwhile.
static void *opens(void *p) {
    while (!over) { void *library = dlopen("./slow_library.so", RTLD_NOW); if (!library) { FAIL("%s\n", dlerror()); break; } dlclose(library); rest(30000); }
    return p;
}
static int schedstat = -1;
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
// Time for which main has waited for a processor: on a busy machine that is not the tracer's fault.
static long long queued(void) {
    char text[80] = "";
    long long ran = 0, waited = 0;
    if (pread(schedstat, text, sizeof text - 1, 0) > 0) sscanf(text, "%lld %lld", &ran, &waited);
    return waited;
}
static void linker(void) {
    pthread_t t;
    pthread_create(&t, NULL, opens, NULL);
    for (long i = 0; !over; i++) {
        long long began = now(), waited = queued();
        check(i);
        rest(1000);
        if (now() - began - (queued() - waited) > 2000000000LL) FAIL("a thread stood still for 2 s\n");
    }
    pthread_join(t, NULL);
}

// The time stamp counter may not be read.
static void no_tsc(void) { prctl(PR_SET_TSC, PR_TSC_SIGSEGV); for (long i = 0; !over; i++) { check(i); if (i % 1000 == 0) rest(500); } }

// Remains on a stack look like a signal frame whose handler returns to a stack that does not exist.
static char frame[8 + sizeof(ucontext_t)];
static void keeps_frame(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)info;
    memcpy(frame, (char *)context - 8, sizeof frame);
}
static void leftovers(void) {
    struct sigaction action = {.sa_sigaction = keeps_frame, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    char left[sizeof frame] __attribute__((aligned(16)));
    memcpy(left, frame, sizeof frame);
    ((ucontext_t *)(left + 8))->uc_mcontext.gregs[REG_RSP] = 8;
    for (long i = 0; !over; i++) { KEEP(left); check(i); if (i % 100 == 0) rest(50); }
}

// One thread changes the user of all threads while another creates threads: glibc takes two locks
// for both, and loading a library with thread-local variables takes them in the other order.
static void *brief(void *p) { check(5); return p; }
static void *create(void *p) {
    while (!over) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) if (pthread_create(&t[i], NULL, brief, NULL)) FAIL("pthread_create\n");
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    }
    return p;
}
static void users_and_threads(void) {
    pthread_t creator;
    pthread_create(&creator, NULL, create, NULL);
    while (!over) if (setuid(getuid())) FAIL("setuid\n");
    pthread_join(creator, NULL);
}

// Memory is mapped all the time, where the kernel finds room: below earlier mappings, stacks of
// threads included.
static void *map(void *p) {
    unsigned seed = (uintptr_t)p;
    struct { char *at; size_t length; } mapped[64] = {0};
    for (long i = 0; !over; i++) {
        int n = rand_r(&seed) % 64;
        if (mapped[n].at) { munmap(mapped[n].at, mapped[n].length); mapped[n].at = NULL; continue; }
        mapped[n].length = (rand_r(&seed) % 2048 + 1) * 4096ul;
        mapped[n].at = mmap(NULL, mapped[n].length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped[n].at == MAP_FAILED) { FAIL("mmap\n"); break; }
        *mapped[n].at = 1;
        free(malloc(10));
        check(i);
    }
    return NULL;
}
static void mappings(void) {
    pthread_t t[4];
    for (long i = 0; i < 3; i++) pthread_create(&t[i], NULL, map, (void *)(i + 1));
    pthread_create(&t[3], NULL, create, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}

static void own_words(void) {
    for (long i = 0; !over; i++) {
        check(i);
        if (get_word() != OWN_WORD) { FAIL("the word is %lx\n", get_word()); return; }
        if (i % 1000 == 0) rest(100);
    }
}

// The kernel has a thread of its own in the process, which takes requests from a ring.
static void kernel_thread(void) {
    struct io_uring_params parameters = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 10};
    if (syscall(SYS_io_uring_setup, 8, &parameters) < 0) FAIL("io_uring_setup\n");
    for (long i = 0; !over; i++) { check(i); if (i % 1000 == 0) rest(100); }
}

// The numbers of files: each thread works with its own. All lower ones are in use.
static int zero_file;
enum { LOWEST = 40, GIVEN, FIRST_CLOSED, LAST_CLOSED = 63 };
static void *takes_lowest(void *p) {
    while (!over) {
        int lowest = open("/dev/null", O_RDONLY);
        check(lowest);
        if (lowest != LOWEST) FAIL("the lowest free descriptor was %d\n", lowest);
        close(lowest);
    }
    return p;
}
static void *takes_given(void *p) {
    for (long n = 0; !over; n++) {
        char bytes[4];
        if (dup2(zero_file, GIVEN) != GIVEN || read(GIVEN, bytes, 4) != 4 || close(GIVEN)) FAIL("round %ld of descriptor %d\n", n, GIVEN);
        check(n);
    }
    return p;
}
static void *closes(void *p) {
    for (long n = 0; !over; n++) {
        for (int i = FIRST_CLOSED; i <= LAST_CLOSED; i++) if (!close(i)) FAIL("descriptor %d was open\n", i);
        check(n);
        rest(50);
    }
    return p;
}
static void descriptors(void) {
    zero_file = open("/dev/zero", O_RDONLY);
    while (dup(zero_file) < LOWEST - 1) {}
    void *(*all[])(void *) = {takes_lowest, takes_given, closes};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, all[i], NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

// A thread that uses 100 MiB of its stack.
enum { FRAME = 4096, DEEP = 25600 };
__attribute__((noinline)) static long descend(long level) {
    volatile char frame[FRAME];
    frame[0] = (char)level;
    check(level);
    if (level == DEEP) while (!over) { check(level); rest(100); }
    long below = level < DEEP ? descend(level + 1) : 0;
    if (frame[0] != (char)level) FAIL("the frame of level %ld was overwritten\n", level);
    return below + 1;
}
static void *descends(void *p) { long levels = descend(1); if (levels != DEEP) FAIL("%ld levels\n", levels); return p; }
static void deep_stack(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)DEEP * (FRAME + 1024));
    pthread_t thread;
    if (pthread_create(&thread, &attributes, descends, NULL)) FAIL("pthread_create\n");
    else pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } all[] = {{"queue", queue}, {"timer", timer}, {"users", users}, {"stacks", stacks}, {"allocator", allocator}, {"sequences", sequences}, {"linker", linker}, {"no tsc", no_tsc},
        {"leftovers", leftovers}, {"users and threads", users_and_threads}, {"own words", own_words}, {"mappings", mappings},
        {"kernel thread", kernel_thread}, {"descriptors", descriptors}, {"deep stack", deep_stack}};
    sigset_t every, none;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &none);
    pthread_t input;
    // Set before the program prints that it is ready.
    has_own_words = argc > 1 && !strcmp(argv[1], "own words");
    if (has_own_words) set_word();
    pthread_create(&input, NULL, watch_input, NULL);
    while (!watching) rest(100);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
    printf("ready\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (argc > 1 && !strcmp(all[i].name, argv[1])) all[i].run();
    printf("failures %d\n", failures);
    return failures != 0;
}
