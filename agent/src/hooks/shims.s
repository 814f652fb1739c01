# Shims that call Rust from a hook.

# Moves the vector registers to the stack and back.
.macro movups_out place register; movups [\place], \register; .endm

.macro movups_in place register; movups \register, [\place]; .endm

.macro tap_vectors move
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        \move rsp+16*\n, xmm\n
    .endr
.endm

# Rust may change any caller-saved register and xmm0..15 (legacy SSE, which leaves the upper halves
# of ymm and zmm unchanged).
.macro tap_shim name function values=0
    .balign 16
\name:
    .cfi_startproc
    push rbp; .cfi_def_cfa_offset 16; .cfi_offset rbp, -16
    mov rbp, rsp; .cfi_def_cfa_register rbp
    push rdi; push rsi; push r8; push r9; push r10
    pushfq
    cld
    and rsp, -16
    sub rsp, 256
    tap_vectors movups_out
    .if \values
        mov rdi, rdx
        lea rsi, [rbp - 48]    # the pushed registers, from the flags up
        mov rdx, rsp
    .else
        mov edi, eax
        mov rsi, rdx
        mov rdx, rcx
        mov rcx, r11
    .endif
    call \function
    tap_vectors movups_in
    lea rsp, [rbp - 48]
    popfq
    pop r10; pop r9; pop r8; pop rsi; pop rdi
    pop rbp; .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
.endm
