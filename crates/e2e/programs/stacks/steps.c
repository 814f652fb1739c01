// Unwinds its stack at every instruction between a function's call of others and their return, the
// instructions of calltap included. Prints how often the function was not found. Code near the
// program, where calltap has no unwinding information, is left out: veneers and copies of
// instructions, which are in the code file behind the stubs.
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define STUBS (32ul << 20)
#define SINGLE_STEP 0x100
static volatile int stepping;
static long unwound, wrong;
extern char __start_walker[], __stop_walker[];
struct Found { int frames, walker; };

TRACED long leaf(long x) { __asm__ volatile("nop; nop; nop; nop; nop"); return x * 3 + 1; }
TRACED long middle(long x) { long sum = 0; for (int i = 0; i < 2; i++) sum += leaf(x + i); return sum; }
TRACED long outer(long x) { return middle(x) + 1; }

UNTRACED static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *found) {
    struct Found *all = found;
    char *at = (char *)_Unwind_GetIP(context);
    all->walker |= at > __start_walker && at <= __stop_walker;
    return ++all->frames > 50 ? _URC_END_OF_STACK : _URC_NO_REASON;
}
// Whether an address is in code of calltap's near the program.
UNTRACED static int is_near(unsigned long at) {
    char line[4352];
    FILE *maps = fopen("/proc/self/maps", "r");
    int near = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        char path[4097] = "";
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4096s", &start, &end, &offset, path) < 3 || at < start || at >= end) continue;
        near = strstr(path, "/calltap") && strstr(path, "/code") && offset >= STUBS;
    }
    if (maps) fclose(maps);
    return near;
}
UNTRACED static void step(int signal, siginfo_t *info, void *interrupted) {
    (void)signal; (void)info;
    greg_t *registers = ((ucontext_t *)interrupted)->uc_mcontext.gregs;
    if (!stepping) { registers[REG_EFL] &= ~SINGLE_STEP; return; }
    struct Found found = {0, 0};
    _Unwind_Backtrace(frame, &found);
    unwound++;
    if (found.walker || is_near(registers[REG_RIP])) return;
    wrong++;
    fprintf(stderr, "at %llx: %d frames\n", registers[REG_RIP], found.frames);
}
UNTRACED __attribute__((section("walker"))) static long walk(long x) {
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" :: "i"(SINGLE_STEP) : "memory", "cc");
    x = outer(x);
    stepping = 0;
    __asm__ volatile("nop; nop");
    return x;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    long sum = 0;
    for (int i = 0; i < 5; i++) { stepping = 1; sum += walk(i); stepping = 0; }
    printf("sum %ld, %s, %ld wrong\n", sum, unwound > 100 ? "unwound" : "not unwound", wrong);
    return wrong != 0;
}
