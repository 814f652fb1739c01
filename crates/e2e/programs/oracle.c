// Fills every register and flag with random bits around a traced function that changes nothing, and compares them bit for bit.
#include "e2e.h"
#include <stdint.h>

struct state {
    uint64_t general[15], flags;      // rax rcx rdx rbx rsi rdi rbp r8..r15
    uint64_t padding[16];
    uint8_t fx[512] __attribute__((aligned(16))); // at 256
    uint64_t high[16][2];             // at 768: the upper halves of ymm
};
struct state *oracle_in, *oracle_out;
uint64_t oracle_avx, oracle_rsp_changed;
void (*oracle_subject)(void);
void oracle(void);
void subject(void), subject_tail(void), subject_nested(void), subject_calls(void);
#ifdef MCOUNT
void subject_mcount(void), subject_fentry(void);
#endif

static uint64_t seed = 88172645463325252ULL;
UNTRACED static uint64_t next(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
static struct state in __attribute__((aligned(64))), out __attribute__((aligned(64)));
#define FLAGS 0x8d5UL // OF SF ZF AF PF CF

UNTRACED static void fill(void) {
    for (int i = 0; i < 15; i++) in.general[i] = next();
    in.flags = (next() & FLAGS) | 0x202;
    for (int i = 0; i < 32; i++) in.high[0][i] = next();
    for (int i = 160; i < 416; i += 8) { uint64_t r = next(); memcpy(in.fx + i, &r, 8); }
    for (int i = 0; i < 8; i++) { uint64_t r = next() | 1ULL << 63; memcpy(in.fx + 32 + 16 * i, &r, 8); uint16_t e = next(); memcpy(in.fx + 40 + 16 * i, &e, 2); }
    uint16_t control = 0x7f | (next() & 0xc00) | 0x300, status = next() & 0x4700;
    memcpy(in.fx, &control, 2); // all masked, random rounding
    status = (status & 0x4700) | (next() & 7) << 11;
    memcpy(in.fx + 2, &status, 2);
    in.fx[4] = next();
    uint32_t mxcsr = 0x1f80 | (next() & 0x603f);
    memcpy(in.fx + 24, &mxcsr, 4);
}
UNTRACED static const char *differs(void) {
    if (oracle_rsp_changed) return "rsp";
    for (int i = 0; i < 15; i++) {
        static const char *names[] = {"rax", "rcx", "rdx", "rbx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"};
        if (in.general[i] != out.general[i]) return names[i];
    }
    if ((in.flags ^ out.flags) & (FLAGS | 0x400)) return "flags";
    if (memcmp(in.fx, out.fx, 5)) return "x87 control, status or tags";
    if (memcmp(in.fx + 24, out.fx + 24, 4)) return "mxcsr";
    for (int i = 0; i < 8; i++) if (memcmp(in.fx + 32 + 16 * i, out.fx + 32 + 16 * i, 10)) return "x87 registers";
    if (memcmp(in.fx + 160, out.fx + 160, 256)) return "xmm";
    if (oracle_avx && memcmp(in.high, out.high, 256)) return "upper halves of ymm";
    return NULL;
}
int main(void) {
    oracle_in = &in;
    oracle_out = &out;
    oracle_avx = !!__builtin_cpu_supports("avx");
    if (!oracle_avx) puts("SKIPPED: no AVX here");
#ifdef MCOUNT
    void (*subjects[])(void) = {subject_mcount, subject_fentry};
    const int kinds = 2;
#else
    void (*subjects[])(void) = {subject, subject_tail, subject_nested, subject_calls};
    const int kinds = 4;
#endif
    long wrong = 0, count = 100000;
    for (long i = 0; i < count; i++) {
        fill();
        oracle_subject = subjects[i % kinds];
        oracle();
        const char *what = differs();
        if (what && wrong++ < 10) printf("iteration %ld, subject %ld: %s\n", i, i % kinds, what);
    }
    printf("%ld of %ld calls changed something\n", wrong, count);
#ifdef MCOUNT
    printf("calls subject_mcount %ld\ncalls subject_fentry %ld\n", count / 2, count / 2);
#else
    printf("calls subject %ld\ncalls subject_tail %ld\ncalls subject_nested %ld\ncalls subject_calls %ld\n", count, count / 4, count / 4, count / 4);
#endif
    return wrong != 0;
}
