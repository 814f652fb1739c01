// Leaf functions with live data in their red zones that jump by computed addresses: labels,
// differences of labels in words of 32, 16 and 8 bits, switches with holes, in C and in assembly.
#include "e2e.h"

COUNTED(threaded); COUNTED(holes); COUNTED(beside);

TRACED int threaded(unsigned program) {
    static void *const operations[] = {&&increment, &&triple, &&end};
    void *code[6], **next = code;
    HIT(threaded);
    for (int i = 0; i < 5; i++, program /= 2) code[i] = operations[program % 2];
    code[5] = operations[2];
    int sum = 0;
    goto **next++;
increment: sum += 1; goto **next++;
triple: sum *= 3; goto **next++;
end: return sum;
}

static volatile int seen;

// These two may have no room for a jump, and are not counted.
#ifdef SECTIONS // Differences across sections are no constants.
#define distances(x) (x)
#define shorts(x) (x)
#else
TRACED int distances(int x) {
    static const int table[] = {&&a - &&b, &&b - &&b, &&c - &&b};
    int sum = 0;
a: sum++; if (--x <= 0) goto out; goto *(&&b + table[(unsigned)x % 3]);
b: sum += 2; if ((x -= 2) < 0) goto out; goto *(&&b + table[(unsigned)x % 3]);
c: sum += 3; seen++; if ((x -= 3) < 0) goto out; goto *(&&b + table[(unsigned)x % 3]);
out: return sum;
}

TRACED int shorts(int x) {
    static const short table[] = {&&a - &&b, &&b - &&b, &&c - &&b};
    static const signed char narrow[] = {0, 1, 2, 1};
    int sum = 0;
a: sum++; if (--x <= 0) goto out; goto *(&&b + table[narrow[x % 4]]);
b: sum += 2; if ((x -= 2) < 0) goto out; goto *(&&b + table[narrow[x % 4]]);
c: sum += 3; seen++; if ((x -= 3) < 0) goto out; goto *(&&b + table[narrow[x % 4]]);
out: return sum;
}
#endif

static int sink, other;
TRACED int holes(unsigned x, int y) {
    HIT(holes);
    switch (x) {
    case 0: sink = y; return y + 3;
    case 1: other = y * 7; return y;
    case 3: sink = y + 1; return y + 9;
    case 4: y += (int)x; // falls through
    case 5: return y + y;
    case 6: y ^= (int)x; // falls through
    case 7: return y - 1;
    case 8: other ^= y * 5; return 4;
    default: __builtin_unreachable();
    }
}
TRACED int beside(int y) { HIT(beside); return y + 5; }

int holed(unsigned), padded(void), popped(int);
__asm__(".text; .globl holed; .type holed, @function; .p2align 4; holed: .cfi_startproc; cmp $3, %edi; ja 5f; mov %edi, %edi;"
        "lea 9f(%rip), %rax; movslq (%rax,%rdi,4), %rcx; add %rax, %rcx; xor %eax, %eax; jmp *%rcx;"
        "1: mov $100, %eax; nop; ret; 5: mov $200, %eax; nop; ret; 3: inc %eax; 2: add $1, %eax; ret; .cfi_endproc; 4: .size holed, . - holed;"
        ".globl padded; .type padded, @function; padded: .cfi_startproc; mov $5, %eax; nop; ret; .cfi_endproc; .size padded, . - padded;"
        ".pushsection .rodata; .p2align 2; 9: .long 1b - 9b, 4b - 9b, 2b - 9b, 3b - 9b; .popsection;"
        // The function takes its argument from the stack.
        ".type popping, @function; popping: .cfi_startproc; mov 8(%rsp), %rax; test %edi, %edi; jz 1f; inc %eax; 1: ret $8; .cfi_endproc; .size popping, . - popping;"
        ".globl popped; .type popped, @function; popped: .cfi_startproc; push %rbx; .cfi_def_cfa_offset 16; pushq $41; .cfi_def_cfa_offset 24; call popping;"
        ".cfi_def_cfa_offset 16; pop %rbx; .cfi_def_cfa_offset 8; ret; .cfi_endproc; .size popped, . - popped;");

int main(void) {
    static const int cases[] = {0, 1, 3, 4, 5, 6, 7, 8};
    unsigned long sum = 0;
    for (int i = 0; i < 200; i++) sum = sum * 31 + threaded((unsigned)i * 7) + distances(i % 50) + shorts(i % 50);
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 8; i++) sum = sum * 31 + holes((unsigned)cases[i], 10 + i) + beside(i);
    printf("%lu %d %d %d\n", sum, sink, other, seen);
    printf("%d %d %d %d %d %d %d\n", holed(0), holed(2), holed(3), holed(9), padded(), popped(0), popped(1));
    SHOW(threaded); SHOW(holes); SHOW(beside);
    return 0;
}
