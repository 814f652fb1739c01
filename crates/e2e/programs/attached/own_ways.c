// Programs that have their own code trap, move it, or run it without the C library's control block. Each checks its work. Says "ready"; ends when its input does. Argument: which.
#define _GNU_SOURCE
#include "e2e.h"
#include <asm/prctl.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int over, watching, told;
static volatile long failures;
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED))
// On a page of its own, behind the beginning of the text.
TRACED __attribute__((aligned(4096))) long work(long n) { KEEP(&n); return n * 5 + 1; }
UNTRACED __attribute__((aligned(4096))) static void check(long n) { long got = work(n); if (got != n * 5 + 1) FAIL("work(%ld) = %ld\n", n, got); }
static void *watch_input(void *p) { int c; watching = 1; while ((c = getchar()) != EOF) if (c == '\n') told = 1; over = 1; return p; }
static void rest(long us) { struct timespec t = {us / 1000000, us % 1000000 * 1000}; while (nanosleep(&t, &t)) {} }

// Single steps of its own: a handler counts them.
static volatile long steps;
static void step(int signal) { (void)signal; steps++; }
static void single_steps(void) {
    struct sigaction action = {.sa_handler = step};
    sigaction(SIGTRAP, &action, NULL);
    while (!over) {
        long before = steps, count = 100;
        __asm__ volatile("sub $128, %%rsp\n pushf\n orl $0x100, (%%rsp)\n popf\n1: dec %0\n jnz 1b\n pushf\n andl $~0x100, (%%rsp)\n popf\n add $128, %%rsp"
                         : "+r"(count) : : "cc", "memory");
        // Two instructions a round, three behind the loop.
        if (steps - before != 203) FAIL("%ld steps\n", steps - before);
        check(steps);
    }
}

// Unaligned accesses trap, all the time but for a moment.
static void aligned(void) {
    for (long i = 0; !over; i++) {
        long count = 200000, flags;
        __asm__ volatile("sub $128, %%rsp\n pushf\n orl $0x40000, (%%rsp)\n popf\n1: dec %0\n jnz 1b\n pushf\n pop %1\n pushf\n andl $~0x40000, (%%rsp)\n popf\n add $128, %%rsp"
                         : "+r"(count), "=r"(flags) : : "cc", "memory");
        if (!(flags & 0x40000)) FAIL("unaligned accesses do not trap any more\n");
        check(i);
    }
}

// Its code is writable, and not executable, most of the time, as where a program changes it. Behind that function only the end of the program may be on its page.
TRACED __attribute__((section("own_text"), aligned(4096))) long rewritten(long n) { KEEP(&n); return n * 7 + 1; }
static void rewrites(void) {
    char *page = (char *)((uintptr_t)rewritten & ~4095ul);
    for (long i = 0; !over; i++) {
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE)) FAIL("not writable: %d\n", errno);
        for (volatile int n = 0; n < 100000; n++) {}
        if (mprotect(page, 4096, PROT_READ | PROT_EXEC)) FAIL("not executable: %d\n", errno);
        for (int n = 0; n < 20; n++) if (rewritten(i) != i * 7 + 1) FAIL("rewritten(%ld)\n", i);
    }
}

// Faults that its handler repairs, which has to be there still after whatever was tried in its threads.
static char *lazy;
static volatile long repaired;
static void repair(int signal, siginfo_t *info, void *context) {
    (void)signal; (void)context;
    if ((char *)info->si_addr != lazy) _exit(7);
    repaired++;
    mprotect(lazy, 4096, PROT_READ | PROT_WRITE);
}
static void fault(void) { mprotect(lazy, 4096, PROT_NONE); *(volatile char *)lazy = 1; }
static void repairs(void) {
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    lazy = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGSEGV, &action, NULL);
}

// A thread that runs mostly with a control block of the program's, while the others are in the C library.
static void *blocks(void *p) {
    unsigned long own;
    syscall(SYS_arch_prctl, ARCH_GET_FS, &own);
    char *memory = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long *block = (unsigned long *)(memory + 8192);
    block[0] = block[2] = (unsigned long)block;
    for (long n = 0; !over; n++) {
        long wrong = 0;
        // No function of the C library in between, nor one that has a canary.
        __asm__ volatile("syscall" : : "a"(SYS_arch_prctl), "D"(ARCH_SET_FS), "S"(block) : "rcx", "r11", "memory");
        for (long i = 0; i < 20000; i++) wrong += work(i) != i * 5 + 1;
        __asm__ volatile("syscall" : : "a"(SYS_arch_prctl), "D"(ARCH_SET_FS), "S"(own) : "rcx", "r11", "memory");
        if (wrong) FAIL("%ld calls went wrong\n", wrong);
    }
    return p;
}
static void own_blocks(void) {
    pthread_t thread;
    repairs();
    pthread_create(&thread, NULL, blocks, NULL);
    for (long i = 0; !over; i++) {
        for (int n = 0; n < 50; n++) { char *room = malloc(100 + n); KEEP(room); free(room); }
        fault();
        if (repaired != i + 1) FAIL("%ld repaired of %ld\n", repaired, i + 1);
    }
    pthread_join(thread, NULL);
}

// Text that lies in memory of no file, as programs have it that move theirs into huge pages.
static void move_text(void) {
    char *page = (char *)((uintptr_t)work & ~4095ul);
    char *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, page, 4096);
    if (mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC))
        FAIL("mremap: %s\n", strerror(errno));
}
static void moved(void) { for (long i = 0; !over; i++) { check(i); if (i % 1000 == 0) rest(200); } }

// System calls that raise SIGSYS, in a thread of its own.
static volatile char selector;
static volatile long raised;
static void emulate(int signal, siginfo_t *info, void *context) {
    (void)signal;
    selector = 0;
    raised++;
    if (info->si_syscall != SYS_getppid) _exit(8);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
    selector = 1;
}
// The handler's way back is exempt.
extern char way_back[];
__asm__(".pushsection .text\n.globl way_back\nway_back:\n mov $15, %eax\n syscall\n.popsection");
static void *dispatch(void *p) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } action = {emulate, SA_SIGINFO | 0x04000000, way_back, 0};
    syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, 8L);
    if (prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1L, way_back, 8L, &selector)) { watching = 2; return p; }
    selector = 1;
    watching = 2;
    for (long i = 0; !over; i++) {
        if (work(i) != i * 5 + 1) _exit(6);
        long got = 4242;
        if (i % 100000 == 0) __asm__ volatile("syscall" : "=a"(got) : "a"(SYS_getppid) : "rcx", "r11", "memory");
        if (got != 4242) _exit(5);
    }
    selector = 0;
    return p;
}

// No file may be read any more (Landlock), by this thread and those that it starts.
static void sandbox(void) {
    struct { unsigned long handled; } files = {1 << 2 /* LANDLOCK_ACCESS_FS_READ_FILE */};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long rules = syscall(444 /* landlock_create_ruleset */, &files, sizeof files, 0L);
    if (rules < 0 || syscall(446 /* landlock_restrict_self */, rules, 0L)) FAIL("Landlock: %s\n", strerror(errno));
    close((int)rules);
}

// A thread without any control block.
static int bare(void *p) {
    (void)p;
    for (long i = 0; !over; i++)
        if (work(i) != i * 5 + 1) syscall(SYS_exit_group, 6L);
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0L));
    return 0;
}
static void start_bare(void) {
    char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;
    if (clone(bare, stack + (1 << 20), flags, NULL, NULL, NULL) < 0) FAIL("clone: %s\n", strerror(errno));
}

// Libraries come and go at the same places.
static void *opens(void *p) {
    while (!over) {
        void *other = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW), *library = dlopen("libresolv.so.2", RTLD_NOW);
        if (other) dlclose(other);
        if (library) dlclose(library);
    }
    return p;
}
static void opened(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, opens, NULL);
    moved();
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    pthread_t thread, dispatcher = 0;
    if (!strcmp(which, "sandbox")) sandbox();
    pthread_create(&thread, NULL, watch_input, NULL);
    while (!watching) rest(1000);
    if (!strcmp(which, "dispatch")) { pthread_create(&dispatcher, NULL, dispatch, NULL); while (watching < 2) rest(1000); }
    if (!strcmp(which, "moved")) move_text();
    if (!strcmp(which, "bare")) start_bare();
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(which, "moves")) {
        for (long i = 0; !told && !over; i++) { check(i); if (i % 1000 == 0) rest(200); }
        move_text();
        printf("done\n");
        fflush(stdout);
    }
    if (!strcmp(which, "steps")) single_steps();
    if (!strcmp(which, "aligned")) aligned();
    if (!strcmp(which, "rewrites")) rewrites();
    if (!strcmp(which, "blocks")) own_blocks();
    if (!strcmp(which, "opens")) opened();
    if (!strncmp(which, "move", 4)) moved();
    if (!strcmp(which, "bare") || !strcmp(which, "sandbox")) moved();
    if (dispatcher) pthread_join(dispatcher, NULL);
    return failures != 0;
}
