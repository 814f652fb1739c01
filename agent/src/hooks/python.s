# Hooks of CPython's evaluator. It takes integers in rdi, rsi and rdx, and calls functions that its
# compiler did not know: no caller keeps a value in another caller-saved register, vector registers
# included, across it. So these hooks preserve its arguments and its result, and the agent may use
# the rest.

# Asks the agent what to do as the evaluator is entered, with its arguments on the stack.
# Pushed:  0 alignment  8 rdx  16 rsi  24 rdi  32 return into the stub  40 S
.macro python_ask
    push rdi; .cfi_adjust_cfa_offset 8
    push rsi; .cfi_adjust_cfa_offset 8
    push rdx; .cfi_adjust_cfa_offset 8
    push rax; .cfi_adjust_cfa_offset 8
    lea rcx, [rsp + 40]
    mov r8, qword ptr [rsp + 32]
    call {python_enter}
.endm

.macro python_restore
    pop rax; .cfi_adjust_cfa_offset -8
    pop rdx; .cfi_adjust_cfa_offset -8
    pop rsi; .cfi_adjust_cfa_offset -8
    pop rdi; .cfi_adjust_cfa_offset -8
.endm

# The evaluator is entered, by a call-through. If the agent records the Python function's return as
# well, the return address is moved to the shadow stack; if not, the hook returns to the part of the
# stub without a return.
.macro tap_python_call clock
    .balign 64
calltap_hook_python_call_\clock:
    .cfi_startproc
    tap_frame 16
    python_ask
    test al, al
    jz 9f
    mov rcx, qword ptr [rsp + 40]
    lea rdx, [rsp + 40]
    btc rdx, {shadow_bit}
    mov qword ptr [rdx], rcx
    mov rax, qword ptr [rsp + 32]
    .cfi_remember_state
    mov qword ptr [rsp + 40], rax
    .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27    # RA at (CFA - 8) ^ 1<<44
    python_restore
    lea rsp, [rsp + 8]; .cfi_adjust_cfa_offset -8
    ret
    tap_resume 32
9:
    add qword ptr [rsp + 32], {to_tail}
    python_restore
    ret
    .cfi_endproc
.endm

# The evaluator returns from a call-through, to the stub: its call pushed stub+16 into S.
# Pushed:  0 rdx  8 rax  16 return into the stub  24 S
.macro tap_python_return clock
    .balign 64
calltap_hook_python_return_\clock:
    .cfi_startproc
    .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27    # RA at (CFA - 8) ^ 1<<44
    lea rsp, [rsp - 8]; .cfi_adjust_cfa_offset 8
    push rax; .cfi_adjust_cfa_offset 8
    push rdx; .cfi_adjust_cfa_offset 8
    mov rax, qword ptr [rsp + 24]
    mov qword ptr [rsp + 16], rax
    lea rdi, [rsp + 24]
    call {python_return}
    lea rdx, [rsp + 24]
    btc rdx, {shadow_bit}
    mov rcx, qword ptr [rdx]
    mov qword ptr [rsp + 24], rcx
    .cfi_offset 16, -8
    pop rdx; .cfi_adjust_cfa_offset -8
    pop rax; .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
.endm

# The evaluator is entered, and its exits are rewritten or its returns are not recorded.
.macro tap_python_enter clock
    .balign 64
calltap_hook_python_enter_\clock:
    .cfi_startproc
    tap_frame 16
    python_ask
    python_restore
    ret
    .cfi_endproc
.endm

# The evaluator is left through one of its exits. That may be a jump to another function, whose
# arguments are preserved.
# Pushed:  0 r9  8 r8  16 rcx  24 rdx  32 rsi  40 rdi  48 rax  56 return into the stub
.macro tap_python_leave clock
    .balign 64
calltap_hook_python_leave_\clock:
    .cfi_startproc
    tap_frame (24+{red_zone})
    .irp register, rax, rdi, rsi, rdx, rcx, r8, r9
        push \register; .cfi_adjust_cfa_offset 8
    .endr
    lea rdi, [rsp + 72 + {red_zone}]
    mov rsi, qword ptr [rsp + 56]
    call {python_leave}
    .irp register, r9, r8, rcx, rdx, rsi, rdi, rax
        pop \register; .cfi_adjust_cfa_offset -8
    .endr
    ret
    .cfi_endproc
.endm
