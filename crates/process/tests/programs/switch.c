// Functions that are switched while threads call them: SITES of 16 bytes each, and some that lie
// across words, cache lines and pages. Each returns its argument plus one, switched or not. Prints
// their addresses, runs until its input ends, then prints its counts.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define ODD 72
__asm__(".text\n"
        ".balign 4096\n"
        "sites: .rept " NUMBER(SITES) "\n .balign 16\n .byte 0x0f,0x1f,0x44,0,0\n lea 1(%rdi), %rax\n ret\n .endr\n"
        ".set offset, 0\n .rept 64\n .balign 64\n .skip offset\n 1: .byte 0x0f,0x1f,0x44,0,0\n lea 1(%rdi), %rax\n ret\n .set offset, offset + 1\n .endr\n"
        ".set offset, 4088\n .rept 8\n .balign 4096\n .skip offset\n 1: .byte 0x0f,0x1f,0x44,0,0\n lea 1(%rdi), %rax\n ret\n .set offset, offset + 1\n .endr\n"
        ".balign 16\n target: lea 1(%rdi), %rax\n ret\n"
        ".balign 16\n");
extern char sites[], target[];
typedef long function(long);
static function *odd[ODD];
static atomic_int stop;
static atomic_long errors, calls;
#define BUCKETS 100000
static unsigned gaps[BUCKETS + 1]; // of the first thread, in microseconds / 10

static inline unsigned long ticks(void) { return __builtin_ia32_rdtsc(); }
static double ticks_per_us;

static void *run(void *first) {
    long n = 0, wrong = 0;
    unsigned long before = ticks();
    for (long i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
        function *f = i & 1 ? odd[(i >> 1) % ODD] : (function *)(sites + 16 * ((i >> 1) % 64));
        wrong += f(i) != i + 1;
        n++;
        if (first) {
            unsigned long now = ticks();
            double us = (now - before) / ticks_per_us;
            gaps[us * 10 < BUCKETS ? (int)(us * 10) : BUCKETS]++;
            before = now;
        }
    }
    errors += wrong;
    calls += n;
    return NULL;
}

static double percentile(double share) {
    unsigned long all = 0, seen = 0;
    for (int i = 0; i <= BUCKETS; i++) all += gaps[i];
    for (int i = 0; i <= BUCKETS; i++)
        if ((seen += gaps[i]) >= all * share) return i / 10.0;
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    syscall(SYS_membarrier, 1 << 2, 0, 0);
    syscall(SYS_membarrier, 1 << 6, 0, 0);
    // The odd functions follow the regular ones. They are found by their bytes, without a table.
    unsigned char *at = (unsigned char *)sites + 16L * SITES, *end = (unsigned char *)target;
    static const unsigned char code[] = {0x0f, 0x1f, 0x44, 0, 0, 0x48, 0x8d, 0x47, 1, 0xc3};
    int n = 0;
    for (; at < end && n < ODD; at++)
        if (!memcmp(at, code, sizeof code)) odd[n++] = (function *)at;
    if (n != ODD) return 2;
    unsigned long from = ticks();
    usleep(20000);
    ticks_per_us = (ticks() - from) / 20000.0;
    printf("%p %p", (void *)sites, (void *)target);
    for (int i = 0; i < ODD; i++) printf(" %p", (void *)odd[i]);
    printf("\n");
    fflush(stdout);
    pthread_t thread[64];
    for (long i = 0; i < threads; i++) pthread_create(&thread[i], NULL, run, (void *)(long)(i == 0));
    char c;
    while (read(0, &c, 1) == 1)
        if (c == 'r') memset(gaps, 0, sizeof gaps); // measure from here
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    printf("%ld %ld %.1f %.1f %.1f %.1f\n", (long)calls, (long)errors, percentile(0.5), percentile(0.99), percentile(0.999),
           percentile(0.99999));
    return errors != 0;
}
