// Functions that are left in many ways, and code that looks at return addresses meanwhile.
#include "e2e.h"
#include <execinfo.h>
#include <setjmp.h>
#include <stdint.h>

COUNTED(many); COUNTED(ended); COUNTED(perhaps); COUNTED(walk); COUNTED(down); COUNTED(landed); COUNTED(thrown);
extern char __executable_start, etext;

TRACED int ended(int n) { HIT(ended); return n * 3 + 1; }

// Left by a jump table, a return in each case, and jumps to another function.
TRACED int many(int n, int m) {
    HIT(many);
    switch (n) {
    case 0: return m + 1;
    case 1: return ended(m);
    case 2: return m * m;
    case 3: if (m & 1) return 7; return ended(m + 5);
    case 4: return m ^ 0x55;
    case 5: KEEP(m); return -m;
    case 6: return ended(-m);
    default: return 0;
    }
}

TRACED int perhaps(int n) { HIT(perhaps); if (n < 0) return ended(n); return n; }

// Returns the return addresses along frame pointers, all of which are the program's own.
__attribute__((noinline, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls"))) int walk(void) {
    HIT(walk);
    uintptr_t *frame = __builtin_frame_address(0);
    int good = 0;
    for (int i = 0; i < 6; i++, frame = (uintptr_t *)frame[0])
        good += frame[1] > (uintptr_t)&__executable_start && frame[1] < (uintptr_t)&etext;
    void *found[32];
    int n = backtrace(found, 32);
    for (int i = 0; i < 6 && i < n; i++) good += found[i] > (void *)&__executable_start && found[i] < (void *)&etext;
    return good;
}
__attribute__((noinline, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls"))) int down(int n) {
    HIT(down);
    int found = n == 0 ? walk() : down(n - 1);
    KEEP(found);
    return found;
}

// A function without room for a jump at its exit, whose return address is replaced. It jumps to one
// whose exits are rewritten.
TRACED int landed(int n) { HIT(landed); return n + 1; }
int leaps(int n, int odd);
__asm__(".text; .type leaps, @function; leaps: .cfi_startproc; lea landed(%rip), %rax; test %esi, %esi; js 2f; jnz 1f; add $1, %edi; jmp landed; "
        "1: jmp *%rax; 2: ret; .cfi_endproc; .size leaps, . - leaps");

// As in builtin functions of virtual machines: there is no unwinding information, and the function
// pops its arguments with the return address.
int passes(int n, long more);
__asm__(".text; .type passes, @function; passes: push %rsi; call takes; ret; .size passes, . - passes; "
        ".type takes, @function; takes: mov %edi, %eax; nop; nop; jmp 2f; 1: pop %rcx; pop %rdx; add %edx, %eax; jmp *%rcx; 2: jmp 1b;"
        ".size takes, . - takes");

// Left without a return, at the same position of the stack each time.
static jmp_buf back;
TRACED int thrown(int n) { HIT(thrown); if (n & 1) longjmp(back, n); return n; }

int main(void) {
    long sum = 0;
    for (int i = 0; i < 3000; i++) {
        sum += many(i % 9, i) + perhaps(i % 5 - 2) + leaps(i, i % 2) + passes(i, 3);
        if (setjmp(back) == 0) sum += thrown(i);
        else sum += 1000;
    }
    printf("%ld %d\n", sum, down(7));
    SHOW(many); SHOW(ended); SHOW(perhaps); SHOW(walk); SHOW(down); SHOW(landed); SHOW(thrown);
    return 0;
}
