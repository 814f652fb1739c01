// gcc -O2
// jumps by distances of 8 and 16 bits, in assembly, to bytes behind the function's beginning
#include <stdio.h>
#include <stdlib.h>
typedef unsigned long word;
#define LEAF(name, first, load, entry) \
    __asm__(".text\n.globl " name "\n.type " name ", STT_FUNC\n" name ": .cfi_startproc\n" first "\n" \
            ".L" name "a: lea 5(%rax), %rax; jmp .L" name "n\n" \
            ".L" name "b: imul $3, %rax, %rax; mov %rax, -16(%rsp); add -16(%rsp), %rax\n" \
            ".L" name "n: dec %esi; js .L" name "e; mov %edi, %ecx; and $1, %ecx; shr $1, %rdi\n" \
            "lea .L" name "t(%rip), %r8; lea .L" name "a(%rip), %r9; " load "; add %r9, %rcx; jmp *%rcx\n" \
            ".L" name "e: ret\n.cfi_endproc\n.size " name ", . - " name "\n.section .rodata\n.balign 2\n" \
            ".L" name "t: " entry " .L" name "a - .L" name "a, .L" name "b - .L" name "a\n.text\n")
LEAF("p0_bytes", "xor %eax, %eax", "movzbl (%r8,%rcx), %ecx", ".byte");
LEAF("p0_shorts", "xor %eax, %eax; nop", "movswq (%r8,%rcx,2), %rcx", ".short");
LEAF("p0_room", "mov $0, %eax", "movsbq (%r8,%rcx), %rcx", ".byte");
word p0_bytes(word, int), p0_shorts(word, int), p0_room(word, int);
int main(int count, char **words) {
    word sum = 0, rounds = count > 1 ? strtoul(words[1], 0, 10) : 1;
    for (word round = 0; round < rounds; round++) {
        for (int n = 0; n < 9; n++) sum = sum * 7 + p0_bytes(round * 77, n) + p0_shorts(round + 5, n) + p0_room(round * 3, n);
        if (rounds < 100) printf("%lu\n", sum);
    }
    printf("%lu\n", sum);
    return (int)(sum % 7);
}
