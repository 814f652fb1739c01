// Stacks: deep frames, coroutines on the heap, restartable sequences, and memory that is allocated
// all the time.
#include "chaos.h"
#include <alloca.h>
#include <sys/rseq.h>
#include <ucontext.h>

#define FRAME (2 << 20)
TRACED long deep(long n) {
    volatile char frame[FRAME];
    for (long at = 0; at < FRAME; at += 1 << 16) frame[at] = (char)(n + at / 7);
    long below = n > 1 ? deep(n - 1) : outer(n);
    for (long at = 0; at < FRAME; at += 1 << 16) if (frame[at] != (char)(n + at / 7)) FAIL("a deep frame has changed\n");
    return below + n;
}
static void *dives(void *p) {
    struct worker own = begin();
    long right = outer(1) + 1 + 2 + 3;
    for (long n = 0; !over; n++) {
        if (deep(3) != right) FAIL("deep\n");
        step(&own);
    }
    return p;
}
static pthread_t with_stack(size_t size, void *(*routine)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, size);
    if (pthread_create(&thread, &attributes, routine, NULL)) abort();
    return thread;
}
void deep_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(with_stack(16 << 20, dives)); }

#define COROUTINES 6
struct crew {
    ucontext_t main, own[COROUTINES];
    char *stacks[COROUTINES];
    long turns[COROUTINES];
    int current;
};
static __thread struct crew *crew;
TRACED void yields(struct crew *all, int n) { all->turns[n]++; swapcontext(&all->own[n], &all->main); }
static void coroutine(int n) {
    struct crew *all = crew;
    for (long i = 0;; i++) {
        long before = i * 31 + n;
        check(i);
        yields(all, n);
        if (before != i * 31 + n || all->current != n) FAIL("a coroutine's frame has changed\n");
    }
}
static void *crews(void *p) {
    struct worker own = begin();
    struct crew *all = crew = calloc(1, sizeof *crew);
    for (int n = 0; n < COROUTINES; n++) {
        getcontext(&all->own[n]);
        all->own[n].uc_stack.ss_sp = all->stacks[n] = malloc(128 << 10);
        all->own[n].uc_stack.ss_size = 128 << 10;
        makecontext(&all->own[n], (void (*)(void))coroutine, 1, n);
    }
    for (long i = 0; !over; i++) {
        for (int n = 0; n < COROUTINES; n++) {
            all->current = n;
            swapcontext(&all->main, &all->own[n]);
            if (all->turns[n] != i + 1) FAIL("coroutine %d had %ld turns, not %ld\n", n, all->turns[n], i + 1);
        }
        step(&own);
        if (i % 64 == 0) usleep(50);
    }
    return p;
}
void coroutines_mode(int signal, long hertz) { (void)signal; (void)hertz; join_at_end(start(crews, NULL)); }

// A counter for each processor: read, some work, and a store that commits, restarted when the
// thread is preempted.
long counters[256 * 8] __attribute__((aligned(64)));
int restartable(void *area, long *counters);
__asm__(
    ".pushsection __rseq_cs,\"aw\"\n.balign 32\n"
    "sequence: .long 0,0\n .quad 1f\n .quad 2f-1f\n .quad 4f\n.popsection\n"
    ".pushsection .text\n.globl restartable\n.type restartable,@function\n"
    "restartable:\n .cfi_startproc\n"
    " lea sequence(%rip),%rax\n mov %rax,8(%rdi)\n"
    "1:\n mov 4(%rdi),%ecx\n shl $6,%rcx\n mov (%rsi,%rcx),%rdx\n"
    " mov $3000,%eax\n5: dec %eax\n jnz 5b\n"
    " inc %rdx\n mov %rdx,(%rsi,%rcx)\n"
    "2:\n xor %eax,%eax\n ret\n .cfi_endproc\n.size restartable,.-restartable\n"
    ".balign 16\n.byte 0x0f,0xb9,0x3d\n.long 0x53053053\n"
    ".type aborted,@function\naborted: .cfi_startproc\n4: mov $1,%eax\n ret\n .cfi_endproc\n.size aborted,.-aborted\n.popsection\n");
static long committed;
static int counting;
static void *counts(void *p) {
    struct worker own = begin();
    void *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    long done = 0;
    for (long n = 0; !over; n++) {
        done += !restartable(area, counters);
        if (n % 64 == 0) { check(n); step(&own); }
    }
    __atomic_fetch_add(&committed, done, __ATOMIC_RELAXED);
    if (__atomic_sub_fetch(&counting, 1, __ATOMIC_ACQ_REL) == 0) {
        long sum = 0;
        for (int n = 0; n < 256; n++) sum += counters[n * 8];
        if (sum != committed) FAIL("restartable sequences: %ld of %ld increments lost\n", committed - sum, committed);
    }
    return p;
}
void rseq_mode(int signal, long hertz) {
    (void)signal; (void)hertz;
    // The C library has no registration where the kernel has no restartable sequences.
    if (!__rseq_size) return;
    counting = 3;
    for (int n = 0; n < 3; n++) join_at_end(start(counts, NULL));
}

// Uses the allocator, which may be the program's own and then has one lock.
static void *allocates(void *p) {
    struct worker own = begin();
    unsigned char *blocks[64] = {0};
    size_t sizes[64] = {0};
    unsigned seed = 1 + (unsigned)(size_t)p;
    for (long n = 0; !over; n++) {
        seed = seed * 1103515245 + 12345;
        int at = seed >> 8 & 63;
        for (size_t i = 0; i < sizes[at]; i += 61) if (blocks[at][i] != (unsigned char)(at + i)) FAIL("allocated memory has changed\n");
        free(blocks[at]);
        sizes[at] = 1 + (seed >> 14 & 4095);
        blocks[at] = malloc(sizes[at]);
        if (!blocks[at]) { FAIL("no memory\n"); break; }
        for (size_t i = 0; i < sizes[at]; i += 61) blocks[at][i] = (unsigned char)(at + i);
        if (n % 64 == 0) { check(n); step(&own); }
    }
    for (int at = 0; at < 64; at++) free(blocks[at]);
    return p;
}
void heap_mode(int signal, long hertz) { (void)signal; (void)hertz; for (long n = 0; n < 2; n++) join_at_end(start(allocates, (void *)n)); }
