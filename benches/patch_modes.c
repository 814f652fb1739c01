/*
 * The ways of changing code that runs, side by side: a program that changes its own, while its threads call it and check what comes out.
 *
 * usage: patch_modes CALLERS ROUNDS
 *
 * Functions lie 23 bytes apart, so that the five bytes that are switched lie at every place in words, cache lines and pages. Off, they are a NOP; on, a jump to
 * a stub of its own, which returns the same. They are written by way of a second mapping. The modes take turns: a round is all functions at once (again, if another
 * program had a caller's processor meanwhile), or a few that are called all the time, one of which crosses a page, a hundred times. Prints for each mode: name, rounds,
 * median microseconds that a round of all took; median, p99.9 and maximum of a caller's longest wait between two calls in such a round; switches of the
 * few, and how many calls went wrong.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

enum { SITES = 20000, APART = 23, STUB = 16, JUMP = 5, CALLERS_MAX = 64, ALTERNATE = 1 << 16 };
enum { FEW = 174, FEW_COUNT = 8, FEW_ROUNDS = 100, LONG = 20000 }; /* around the end of a page */

#define STUBS_AT (8 << 20) /* so that all bytes of a jump's operand differ from the NOP's */
#define SIZE (STUBS_AT + SITES * STUB)
#define INT3 0xCC

static const uint8_t nop[JUMP] = {0x0F, 0x1F, 0x44, 0x00, 0x00};
static uint8_t *code, *alias; /* what is run, and where it is written */
static uint8_t new[SITES][JUMP];

static uint8_t *site(int n) { return alias + (size_t)n * APART; }
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Callers. */

static struct caller {
    _Alignas(64) _Atomic uint64_t longest; /* ticks between two calls, since it was last asked */
    _Atomic uint64_t calls;
    pthread_t thread;
    _Atomic int id;
    _Atomic uint64_t torn;
} callers[CALLERS_MAX];
static int count;
static atomic_int first, last = SITES; /* what is called and changed */
static atomic_int over, stop, stopped;
static __thread sigjmp_buf back;

static void *call(void *p) {
    struct caller *own = p;
    own->id = gettid();
    /* (What went wrong may have done so with the stack pointer.) */
    stack_t other = {.ss_sp = malloc(ALTERNATE), .ss_size = ALTERNATE};
    sigaltstack(&other, NULL);
    if (sigsetjmp(back, 1)) own->torn++;
    uint64_t before = __rdtsc();
    while (!over)
        for (long n = first, end = last; n < end; n++) {
            long result, which, argument = n * 3;
            void *function = code + n * APART;
            __asm__ volatile("call *%[f]" : "=a"(result), "=d"(which), "+D"(argument) : [f] "r"(function)
                             : "rcx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
            if (result != n * 3 + 1 || which != n) own->torn++;
            uint64_t tick = __rdtsc();
            if (tick - before > own->longest) own->longest = tick - before;
            before = tick;
            own->calls = own->calls + 1;
        }
    return NULL;
}

/* An instruction that nobody has written. */
static void fault(int signal) { (void)signal; siglongjmp(back, 1); }

/* The breakpoint's bypass: what is being switched is skipped. Who comes late, when it is gone, tries again. */
static void trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *pc = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    *pc -= 1;
    if (*(volatile uint8_t *)*pc == INT3) *pc += JUMP;
}

/* Stands still. (The return from a signal serialises.) */
static void halt(int signal) {
    (void)signal;
    stopped++;
    while (stop) __builtin_ia32_pause();
    stopped--;
}

/* How code is changed. */

static void sync_cores(void) {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0)) perror("membarrier"), exit(1);
}
#define EACH(n) for (int n = first; n < last; n++)
static void put(int n, int from, int to) {
    for (int i = from; i < to; i++) ((volatile uint8_t *)site(n))[i] = new[n][i];
}

static void nothing(void) { for (double end = now() + 500; now() < end;); }
static void as_it_comes(void) { EACH(n) put(n, 0, JUMP); }
static void stop_machine(void) {
    stop = 1;
    for (int i = 0; i < count; i++) pthread_kill(callers[i].thread, SIGUSR1);
    while (stopped < count) sched_yield();
    as_it_comes();
    stop = 0;
    while (stopped) sched_yield();
}
/* All sites take each of three steps together: a first byte that keeps everybody out, the tail, the first byte. */
static void first_byte(uint8_t byte) {
    EACH(n) *(volatile uint8_t *)site(n) = byte;
    sync_cores();
    EACH(n) put(n, 1, JUMP);
    sync_cores();
    EACH(n) put(n, 0, 1);
    sync_cores();
}
static void breakpoint(void) { first_byte(INT3); }
static void test_eax(void) { first_byte(0xA9); }
/* The same with the first two bytes, where one store can write them; with a breakpoint elsewhere. */
static int straddles(int n) { return ((uintptr_t)site(n) & 7) == 7; }
static void two_bytes(int n, uint16_t bytes) { *(volatile uint16_t *)site(n) = bytes; }
static void jmp_3f(void) {
    EACH(n)
        if (straddles(n)) *(volatile uint8_t *)site(n) = INT3;
        else two_bytes(n, 0x03EB);
    sync_cores();
    EACH(n) put(n, straddles(n) ? 1 : 2, JUMP);
    sync_cores();
    EACH(n)
        if (straddles(n)) put(n, 0, 1);
        else two_bytes(n, (uint16_t)(new[n][0] | new[n][1] << 8));
    sync_cores();
}

static const struct mode { const char *name; void (*change)(void); int changes; } modes[] = {
    {"nothing", nothing, 0}, {"stop_machine", stop_machine, 1}, {"breakpoint", breakpoint, 1},
    {"jmp-3f", jmp_3f, 1},   {"test-eax", test_eax, 1},         {"as-it-comes", as_it_comes, 1},
};
enum { MODES = sizeof modes / sizeof *modes };

/* The functions and their stubs: `lea 1(%rdi), %rax; mov $n, %edx; ret`. */
static void write_code(void) {
    for (int n = 0; n < SITES; n++) {
        uint8_t body[10] = {0x48, 0x8D, 0x47, 0x01, 0xBA, 0, 0, 0, 0, 0xC3};
        memcpy(body + 5, &n, 4);
        memcpy(site(n), nop, JUMP);
        memcpy(site(n) + JUMP, body, sizeof body);
        memcpy(alias + STUBS_AT + n * STUB, body, sizeof body);
    }
}
static void turn(int on) {
    EACH(n) {
        int32_t distance = STUBS_AT + n * STUB - (n * APART + JUMP);
        memcpy(new[n], nop, JUMP);
        if (on) new[n][0] = 0xE9, memcpy(new[n] + 1, &distance, 4);
    }
}

static void pin(pthread_t thread, int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(thread, sizeof set, &set); /* if it may */
}

/* How often callers were given a processor: if that has not changed, no other program had it meanwhile. */
static long turns(void) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
        char path[64];
        unsigned long run, wait, turns = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", callers[i].id);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%lu %lu %lu", &run, &wait, &turns) == 3) sum += (long)turns;
        if (file) fclose(file);
    }
    return sum;
}

/* Waits until all have made a call or two. */
static void all_call(void) {
    for (int i = 0; i < count; i++)
        for (uint64_t calls = callers[i].calls; callers[i].calls < calls + 2;) sched_yield();
}

static int order(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
static uint64_t torn(void) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += callers[i].torn;
    return sum;
}

int main(int argc, char **argv) {
    count = argc > 1 ? atoi(argv[1]) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 1000;
    if (count < 1 || count > CALLERS_MAX || rounds < 1) return 2;
    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, SIZE)) return perror("memfd"), 1;
    code = mmap(NULL, SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    alias = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (code == MAP_FAILED || alias == MAP_FAILED) return perror("mmap"), 1;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0)) return perror("membarrier"), 1;
    struct sigaction faults = {.sa_handler = fault, .sa_flags = SA_ONSTACK}, traps = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO}, halts = {.sa_handler = halt, .sa_flags = SA_RESTART};
    sigaction(SIGSEGV, &faults, NULL), sigaction(SIGILL, &faults, NULL), sigaction(SIGBUS, &faults, NULL);
    sigaction(SIGTRAP, &traps, NULL), sigaction(SIGUSR1, &halts, NULL);

    setpriority(PRIO_PROCESS, 0, -20); /* if it may */

    /* Before anybody runs. */
    write_code();
    turn(1);
    double begin = now();
    as_it_comes();
    printf("before-start 1 %.0f 0 0 0 0 0\n", now() - begin);

    double *times[MODES], *waits[MODES];
    uint64_t wrong[MODES] = {0}, switches[MODES] = {0}, tick = __rdtsc();
    for (int m = 0; m < MODES; m++) times[m] = malloc(rounds * sizeof(double)), waits[m] = malloc(rounds * sizeof(double));
    begin = now();
    for (int i = 0; i < count; i++) pthread_create(&callers[i].thread, NULL, call, &callers[i]);
    if (count == 1) pin(pthread_self(), 0), pin(callers[0].thread, 1);
    usleep(100000);
    double ticks_per_us = (__rdtsc() - tick) / (now() - begin);
    int on = 1;
    for (int round = 0; round < rounds; round++)
        for (int m = 0; m < MODES; m++) {
            long before;
            int tries = 0;
            do {
                turn(on ^= modes[m].changes);
                before = turns();
                all_call();
                for (int i = 0; i < count; i++) callers[i].longest = 0;
                begin = now();
                modes[m].change();
                times[m][round] = now() - begin;
                all_call();
                double longest = 0;
                for (int i = 0; i < count; i++) longest = callers[i].longest > longest ? callers[i].longest : longest;
                waits[m][round] = longest / ticks_per_us;
            } while (turns() != before && ++tries < 100);
        }
    first = FEW;
    last = FEW + FEW_COUNT;
    usleep(10000);
    for (int round = 0; round < (rounds + 3) / 4; round++)
        for (int m = 0; m < MODES; m++) {
            uint64_t before = torn();
            /* (On a busy machine it takes long to stop everybody.) */
            double end = now() + LONG;
            for (int i = 0; i < FEW_ROUNDS && now() < end && modes[m].changes; i++, switches[m] += FEW_COUNT) turn(on ^= 1), modes[m].change();
            all_call();
            wrong[m] += torn() - before;
        }
    over = 1;
    for (int i = 0; i < count; i++) pthread_join(callers[i].thread, NULL);
    for (int m = 0; m < MODES; m++) {
        qsort(times[m], rounds, sizeof(double), order), qsort(waits[m], rounds, sizeof(double), order);
        printf("%s %d %.0f %.0f %.0f %.0f %llu %llu\n", modes[m].name, rounds, times[m][rounds / 2], waits[m][rounds / 2], waits[m][(rounds * 999 - 1) / 1000],
               waits[m][rounds - 1], (unsigned long long)switches[m], (unsigned long long)wrong[m]);
    }
}
