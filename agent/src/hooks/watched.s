# Hooks of watched functions, which are not traced.

# A function through which the thread leaves calls without their returns.

.macro tap_nonlocal clock
    .balign 64
calltap_hook_nonlocal_\clock:
    .cfi_startproc
    .cfi_def_cfa rsp, 16
    tap_save
    mov rdx, rdi    # the function's first argument
    mov rcx, qword ptr [rsp + 40]
    call calltap_nonlocal_shim
    tap_restore
    ret
    .cfi_endproc
.endm

# A function with the arguments of prctl, or of syscall. Calls of other system calls, which may have
# little stack, continue at once.
.macro tap_prctl clock
    .balign 64
calltap_hook_prctl_\clock:
    .cfi_startproc
    .cfi_def_cfa rsp, 16
    tap_save
    cmp edi, {set_tsc}
    je 1f
    cmp edi, {prctl}
    jne 9f
1:
    tap_slot rdx 0
    call calltap_values_shim
9:
    tap_restore
    ret
    .cfi_endproc
.endm
