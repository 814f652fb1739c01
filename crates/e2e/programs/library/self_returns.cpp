// Traces the returns of its own functions: results of every kind, tail calls, exceptions through
// many frames, longjmp, threads, backtraces.
#include "calltap.h"
#include "e2e.h"
#include <complex>
#include <csetjmp>
#include <cstring>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>

static int faults;
#define EXPECT(what) do { if (!(what) && faults++ < 10) printf("%d: " #what "\n", __LINE__); } while (0)

struct Three { long a, b, c; };
TRACED long integer(long a) { KEEP(a); return a * 2; }
TRACED double floating(double a) { KEEP(a); return a * 2; }
TRACED long double extended(long double a) { __asm__ volatile("" ::: "memory"); return a * 2; }
TRACED std::complex<double> pair_of(double a) { KEEP(a); return {a, a + 1}; }
TRACED std::complex<long double> x87_pair(long double a) { __asm__ volatile("" ::: "memory"); return {a, a + 1}; }
TRACED __int128 wide(long a) { KEEP(a); return ((__int128)a << 64) | 7; }
TRACED Three large(long a) { KEEP(a); return {a, a + 1, a + 2}; }
typedef float Vector __attribute__((vector_size(16)));
TRACED Vector vector(float a) { KEEP(a); return Vector{a, a + 1, a + 2, a + 3}; }
TRACED long jumps(long a) { KEEP(a); return integer(a + 1); }
TRACED long deep(long n) { KEEP(n); if (n == 0) throw std::runtime_error("bottom"); long below = deep(n - 1); KEEP(below); return below + 1; }
static jmp_buf back;
TRACED long leaves(long n) { KEEP(n); if (n == 0) longjmp(back, 1); long below = leaves(n - 1); KEEP(below); return below + 1; }
static int depth_seen;
TRACED long looks(long a) {
    void *frames[64];
    depth_seen = backtrace(frames, 64);
    KEEP(a);
    return a;
}
TRACED long looks_from(long n) { KEEP(n); long below = n ? looks_from(n - 1) : looks(1); KEEP(below); return below; }

static long entries, returns, last;
UNTRACED static void entered(uint64_t, uint64_t, struct calltap_ops *, const struct calltap_regs *) { __atomic_fetch_add(&entries, 1, __ATOMIC_RELAXED); }
UNTRACED static void returned(uint64_t, uint64_t, uint64_t result, struct calltap_ops *) {
    __atomic_fetch_add(&returns, 1, __ATOMIC_RELAXED);
    last = (long)result;
}

UNTRACED static void results() {
    EXPECT(integer(21) == 42);
    EXPECT(floating(1.5) == 3 && extended(1.5L) == 3);
    EXPECT(pair_of(1) == std::complex<double>(1, 2) && x87_pair(3) == std::complex<long double>(3, 4));
    EXPECT(wide(5) == (((__int128)5 << 64) | 7));
    EXPECT(large(1).c == 3);
    Vector got = vector(1);
    EXPECT(got[0] == 1 && got[3] == 4);
    EXPECT(jumps(4) == 10);
}

UNTRACED static void *thread(void *) {
    for (int i = 0; i < 20000; i++) {
        if (integer(i) != 2 * i || jumps(i) != 2 * i + 2) abort();
        if (i % 500 == 0) {
            try { deep(20); abort(); } catch (const std::runtime_error &) {}
        }
    }
    return nullptr;
}

UNTRACED int main() {
    EXPECT(calltap_init() == 0);
    looks_from(5);
    int depth = depth_seen;
    struct calltap_ops ops = {};
    ops.func = entered;
    ops.on_return = returned;
    ops.filter = "integer* floating* extended* pair_of* x87_pair* wide* large* vector* jumps* deep* leaves* looks*";
    EXPECT(calltap_register_function(&ops) == 0);
    EXPECT(integer(21) == 42 && last == 42);
    for (int i = 0; i < 3; i++) results();
    // A function that is entered by a jump belongs to the call that jumps.
    EXPECT(entries == 31 && returns >= 28 && returns <= 31);

    entries = returns = 0;
    std::string said;
    try { deep(50); } catch (const std::runtime_error &error) { said = error.what(); }
    EXPECT(said == "bottom" && entries == 51 && returns == 0);
    if (!setjmp(back)) leaves(30);
    EXPECT(returns == 0);
    results();
    EXPECT(looks_from(5) == 1 && depth_seen >= depth);

    pthread_t threads[3];
    for (pthread_t &one : threads) pthread_create(&one, nullptr, thread, nullptr);
    for (int i = 0; i < 40; i++) {
        EXPECT(calltap_unregister_function(&ops) == 0);
        EXPECT(calltap_register_function(&ops) == 0);
    }
    for (pthread_t one : threads) pthread_join(one, nullptr);
    EXPECT(calltap_unregister_function(&ops) == 0 && calltap_unseen_returns() == 0);
    entries = returns = 0;
    results();
    EXPECT(entries == 0 && returns == 0);

    ops.filter = "no_such_function";
    EXPECT(calltap_register_function(&ops) == -2);
    ops.flags = CALLTAP_MAY_MATCH_NOTHING;
    EXPECT(calltap_register_function(&ops) == 0 && calltap_count_functions(&ops) == 0);
    EXPECT(calltap_unregister_function(&ops) == 0);
    printf("%d faults\n", faults);
    return faults ? 1 : 0;
}
