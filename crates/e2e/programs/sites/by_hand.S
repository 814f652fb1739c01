/* What compilers do not write: data behind a call, a computed jump into another function, and data
   below the stack pointer handed on to another function. */
    .text
    .globl inline_data; .type inline_data, @function
inline_data:
    call skip_data
    .quad 0x1122334455
    add %rdi, %rax
    ret
    .size inline_data, . - inline_data
    .type skip_data, @function
skip_data:
    pop %rcx
    mov (%rcx), %rax
    add $8, %rcx
    jmp *%rcx
    .size skip_data, . - skip_data

    .globl into_steps; .type into_steps, @function
into_steps:
    and $7, %edi
    lea steps(%rip), %rcx
    xor %eax, %eax
    lea (%rcx,%rdi,4), %rcx
    jmp *%rcx
    .size into_steps, . - into_steps
    .globl steps; .type steps, @function
steps:
    .rept 8
    lea 3(%rax), %rax
    .endr
    ret
    .size steps, . - steps

    .globl below_stack; .type below_stack, @function
below_stack:
    lea -32(%rsp), %rdx
    mov %rdi, (%rdx)
    mov %rsi, 8(%rdx)
    mov %rdi, %rax
    jmp add_data
    .size below_stack, . - below_stack
    .globl add_data; .type add_data, @function
add_data:
    imul $5, %rax, %rax
    add (%rdx), %rax
    add 8(%rdx), %rax
    ret
    .size add_data, . - add_data
    .section .note.GNU-stack, "", @progbits
