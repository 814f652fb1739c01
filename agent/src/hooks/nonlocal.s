# Hook of a function through which the thread leaves calls without their returns.

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
