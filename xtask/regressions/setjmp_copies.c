// gcc -O2
// functions that save their return address, which they read through copies of the stack pointer
#include <stdio.h>
#define FUNCTION(name, body) \
    __asm__(".text\n.balign 16\n.globl " name "\n.type " name ", @function\n" name ": .cfi_startproc\n" body "\n" \
            ".cfi_endproc\n.size " name ", . - " name "\n")
#define SAVE(name, read) \
    FUNCTION("save_" name, read "; mov %rax, (%rdi); lea 8(%rsp), %rax; mov %rax, 8(%rdi); mov %rbx, 16(%rdi)\n" \
                                "mov %rbp, 24(%rdi); xor %eax, %eax; ret"); \
    FUNCTION("jump_" name, "test %rdi, %rdi; nopl 0(%rax); jmp save_" name)
SAVE("copy", "mov %rsp, %rdx; mov (%rdx), %rax");
SAVE("behind", "lea 8(%rsp), %rdx; mov -8(%rdx), %rax");
SAVE("index", "xor %ecx, %ecx; mov (%rsp,%rcx,8), %rax");
SAVE("top", "mov (%rsp), %rax");
FUNCTION("restore", "mov 16(%rdi), %rbx; mov 24(%rdi), %rbp; mov 8(%rdi), %rsp; mov %rsi, %rax; jmp *(%rdi)");
typedef long save(long *);
save save_copy, save_behind, save_index, save_top, jump_copy, jump_behind, jump_index, jump_top;
void restore(long *, long) __attribute__((noreturn));

__attribute__((noinline, returns_twice)) static long twice(save *save) {
    long state[4];
    volatile long restored = 0;
    long result = save(state);
    if (result == 0 && !restored++) restore(state, 5);
    return result;
}

int main(void) {
    save *all[] = {save_copy, save_behind, save_index, save_top, jump_copy, jump_behind, jump_index, jump_top};
    long sum = 0;
    for (unsigned n = 0; n < 8; n++) printf("%ld\n", twice(all[n])), sum += twice(all[n]);
    return (int)sum % 7;
}
