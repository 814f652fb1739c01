// main -> chain_a -> chain_b -> chain_c, which prints the stack by the C library, by the unwinder
// and for a debugger.
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <unwind.h>

static _Unwind_Reason_Code one(struct _Unwind_Context *context, void *depth) {
    Dl_info info;
    void *pc = (void *)_Unwind_GetIP(context);
    if (pc && (*(int *)depth)++ < 60 && dladdr((char *)pc - 1, &info)) printf("unwind: (%s)\n", info.dli_sname ? info.dli_sname : "?");
    return _URC_NO_REASON;
}
TRACED void innermost(void) { __asm__ volatile("nop" ::: "memory"); }
TRACED long chain_c(long n) {
    void *frames[64];
    int count = backtrace(frames, 64), depth = 0;
    char **names = backtrace_symbols(frames, count);
    for (int i = 0; i < count; i++) printf("backtrace: %s\n", names[i]);
    printf("unwinder:\n");
    _Unwind_Backtrace(one, &depth);
    innermost();
    KEEP(&n);
    return n + 1;
}
TRACED long chain_b(long n) { long r = chain_c(n * 2); KEEP(&r); return r + 1; }
TRACED long chain_a(long n) { long r = chain_b(n + 3); KEEP(&r); return r * 2; }
int main(void) {
    long r = chain_a(5);
    printf("%ld\n", r);
    return 0;
}
