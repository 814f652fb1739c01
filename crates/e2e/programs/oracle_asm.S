// The oracle's assembly part and its subjects, with sites written by hand.
    .intel_syntax noprefix
    .text
    .globl oracle
    .type oracle, @function
oracle:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 536
    fxsave64 [rsp + 16]
    mov rdi, [rip + oracle_in]
    fxrstor64 [rdi + 256]
    cmp qword ptr [rip + oracle_avx], 0
    je 1f
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vinsertf128 ymm\n, ymm\n, [rdi + 768 + 16 * \n], 1
    .endr
1:  push qword ptr [rdi + 120]
    popfq
    mov rax, [rdi]
    mov rcx, [rdi + 8]
    mov rdx, [rdi + 16]
    mov rbx, [rdi + 24]
    mov rsi, [rdi + 32]
    mov rbp, [rdi + 48]
    mov r8, [rdi + 56]
    mov r9, [rdi + 64]
    mov r10, [rdi + 72]
    mov r11, [rdi + 80]
    mov r12, [rdi + 88]
    mov r13, [rdi + 96]
    mov r14, [rdi + 104]
    mov r15, [rdi + 112]
    mov rdi, [rdi + 40]
    mov [rip + saved_rsp], rsp
    call [rip + oracle_subject]
    mov [rip + saved_rdi], rdi
    mov rdi, [rip + oracle_out]
    mov [rdi], rax
    mov [rdi + 8], rcx
    mov [rdi + 16], rdx
    mov [rdi + 24], rbx
    mov [rdi + 32], rsi
    mov [rdi + 48], rbp
    mov [rdi + 56], r8
    mov [rdi + 64], r9
    mov [rdi + 72], r10
    mov [rdi + 80], r11
    mov [rdi + 88], r12
    mov [rdi + 96], r13
    mov [rdi + 104], r14
    mov [rdi + 112], r15
    mov rax, [rip + saved_rdi]
    mov [rdi + 40], rax
    mov rax, rsp
    mov rsp, [rip + saved_rsp]
    pushfq
    pop qword ptr [rdi + 120]
    sub rax, rsp
    mov [rip + oracle_rsp_changed], rax
    fxsave64 [rdi + 256]
    cmp qword ptr [rip + oracle_avx], 0
    je 2f
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vextractf128 [rdi + 768 + 16 * \n], ymm\n, 1
    .endr
    vzeroupper
2:  fxrstor64 [rsp + 16]
    add rsp, 536
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
    .size oracle, . - oracle

    .macro site name
    .globl \name
    .type \name, @function
\name:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    .pushsection __patchable_function_entries, "awo", @progbits, \name
    .balign 8
    .quad \name
    .popsection
    .endm

    site subject
    ret
    .size subject, . - subject
    site subject_tail // entered by a call, leaves by a jump
    jmp subject
    .size subject_tail, . - subject_tail
    site subject_nested // two frames deep
    call subject
    ret
    .size subject_nested, . - subject_nested
    site subject_calls // leaves by a jump after a call
    call subject
    jmp 3f
3:  ret
    .size subject_calls, . - subject_calls

#ifdef MCOUNT
    .globl subject_mcount
    .type subject_mcount, @function
subject_mcount:
    push rbp
    mov rbp, rsp
    call [rip + mcount@GOTPCREL]
    pop rbp
    ret
    .size subject_mcount, . - subject_mcount
    .globl subject_fentry
    .type subject_fentry, @function
subject_fentry:
    call [rip + __fentry__@GOTPCREL]
    ret
    .size subject_fentry, . - subject_fentry
#endif

    .local saved_rsp, saved_rdi
    .comm saved_rsp, 8
    .comm saved_rdi, 8
    .section .note.GNU-stack, "", @progbits
