# Hooks of functions that may have little room on their stack, or whose return address must stay.

# Hook of function and profile, on a stack that has room for this hook but not for Rust. The return
# address stays, so there are no times. With goid: of a Go function, see tap_store.
.macro tap_small name clock mcount event profile fix=0 parent=1 goid=0
    .balign 64
\name:
    .cfi_startproc
    .if \mcount == 0; tap_frame 16; .else; tap_frame 8; .endif
    tap_save
    .if \event
        .if \parent && \goid == 0
            tap_load_slot rcx \mcount
            sub rcx, qword ptr [rip + {stubs}]
            cmp rcx, {region}
            jb 5f
        .endif
        mov ecx, 0
        tap_state 7f
        tap_store \clock \mcount \fix \parent 7f \goid \goid
    .endif
3:
    .if \profile
        tap_profile_record 33f
        inc qword ptr [r11 + {hits}]
    .endif
9:
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
    .if \event
    7:
        tap_load_slot rdx \mcount
        .if \goid
            tap_slow \mcount \fix calltap_small_go_shim \goid
        .else
            tap_slow \mcount \fix calltap_small_record_shim
        .endif
        jmp 3b
        .if \parent && \goid == 0
        5:    # entered by a jump from a function that has its return address in the shadow stack
            mov ecx, 0
            tap_state 8f
            tap_store \clock \mcount \fix 2 8f 0
            jmp 3b
        8:
            tap_load_parent \mcount 2
            tap_slow \mcount \fix calltap_small_record_shim
            jmp 3b
        .endif
    .endif
    .if \profile
    33:
        tap_profile_slow 0 calltap_small_profile_shim
        jnz 3b
        jmp 9b
    .endif
    .cfi_endproc
.endm

# Shim that calls Rust on a stack of the agent. Signals are blocked meanwhile: their handlers would
# find an unknown stack pointer, and one that runs on the alternate stack would be overwritten by
# the next, as the kernel decides by the stack pointer whether it is in use.
.macro tap_small_shim name function go=0
    .balign 16
\name:
    .cfi_startproc
    push rbp; .cfi_def_cfa_offset 16; .cfi_offset rbp, -16
    mov rbp, rsp; .cfi_def_cfa_register rbp
    push rdi; push rsi; push r8; push r9; push r10
    pushfq
    cld
    push rcx
    push rax    # for the mask of blocked signals
    mov r8d, eax
    mov r9, rdx
    mov eax, {sigprocmask}
    mov edi, 2    # SIG_SETMASK
    lea rsi, [rip + calltap_all_signals]
    mov rdx, rsp
    mov r10d, 8
    syscall
    mov rdi, qword ptr [rip + {private}]
    add rdi, {stacks}
    mov rsi, rsp    # start of the search, different for each thread
    shr rsi, 11
2:
    inc esi
    and esi, {stacks_mask}
    mov eax, 1
    xchg byte ptr [rdi + rsi], al
    test al, al
    jz 3f
    pause
    jmp 2b
3:
    lea rax, [rsi + 1]
    shl rax, {stack_shift}
    lea rax, [rdi + rax + {stack_memory}]
    mov rdx, qword ptr [rsp + 8]
    xchg rsp, rax
    push rax
    lea rax, [rdi + rsi]
    push rax
    sub rsp, 256
    tap_vectors movups_out
    mov edi, r8d
    mov rsi, r9
    .if \go
        mov rcx, r14
        lea r8, [rbp + 16]    # the last push of the hook
        .if \go == 2
            mov rdx, rbx
            mov r9, rsp    # the vector registers
        .endif
    .else
        xor ecx, ecx    # no slot
    .endif
    call \function
    tap_vectors movups_in
    add rsp, 256
    pop rdx
    pop rsp
    mov byte ptr [rdx], 0
    mov r8d, eax
    mov eax, {sigprocmask}
    mov edi, 2
    mov rsi, rsp
    xor edx, edx
    mov r10d, 8
    syscall
    mov eax, r8d
    lea rsp, [rsp + 16]
    popfq
    pop r10; pop r9; pop r8; pop rsi; pop rdi
    pop rbp; .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
.endm

.section .rodata.calltap_all_signals,"a"
.balign 8
calltap_all_signals: .quad -1
