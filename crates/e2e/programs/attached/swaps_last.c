// Prints "ready"; at each line of input resumes a coroutine, which returns by a tail call of a
// context switcher, and prints "done".
#include "e2e.h"
#include <ucontext.h>

#ifdef OWN_SWITCHER
// The return address is kept beside the stack pointer, as in libraries of coroutines.
struct context { char *stack; void (*next)(void); long kept[6]; };
void own_switch(struct context *from, struct context *to);
__asm__(".text\n.globl own_switch\n.type own_switch,@function\nown_switch:\n.cfi_startproc\n"
        "mov (%rsp),%rax\nmov %rax,8(%rdi)\nlea 8(%rsp),%rax\nmov %rax,(%rdi)\n"
        "mov %rbx,16(%rdi)\nmov %rbp,24(%rdi)\nmov %r12,32(%rdi)\nmov %r13,40(%rdi)\nmov %r14,48(%rdi)\nmov %r15,56(%rdi)\n"
        "mov 16(%rsi),%rbx\nmov 24(%rsi),%rbp\nmov 32(%rsi),%r12\nmov 40(%rsi),%r13\nmov 48(%rsi),%r14\nmov 56(%rsi),%r15\n"
        "mov (%rsi),%rsp\njmp *8(%rsi)\n"
        ".cfi_endproc\n.size own_switch,.-own_switch\n");
static struct context back, own;
static void prepare(char *stack, size_t size, void (*begin)(void)) { own.stack = stack + size - 24; own.next = begin; }
#define SWITCH own_switch
#else
static ucontext_t back, own;
static void prepare(char *stack, size_t size, void (*begin)(void)) {
    getcontext(&own);
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = size;
    makecontext(&own, begin, 0);
}
#define SWITCH swapcontext
#endif
static long turns;

TRACED void switches(void) { turns++; SWITCH(&own, &back); }
TRACED void yields(void) { turns++; switches(); }
static void coroutine(void) { for (;;) yields(); }

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    prepare(malloc(128 << 10), 128 << 10, coroutine);
    puts("ready");
    long lines = 0;
    while (getchar() != EOF) {
        SWITCH(&back, &own);
        lines++;
        puts("done");
    }
    return turns != 2 * lines;
}
