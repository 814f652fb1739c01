# Hooks that read arguments and results.

# In front of another hook: reads arguments. If the call is not to be recorded, continues in the
# body (tail: past the part of the stub for the return), with the return address unchanged.
.macro tap_values name hook mcount tail exits=0
    .balign 64
\name:
    .cfi_startproc
    .if \mcount == 0; tap_frame 16; .else; tap_frame 8; .endif
    tap_save
    tap_slot rdx \mcount
    call calltap_values_shim
    test al, al
    jz 9f
    .cfi_remember_state
    tap_restore
    jmp \hook
    tap_resume 40
9:
    .if \exits; tap_unmark; .endif
    .if \tail; add qword ptr [rsp + 40], {to_tail}; .endif
    tap_restore
    ret
    .cfi_endproc
.endm

# Reads results in front of another hook. The word below S is free, as in that hook.
.macro tap_values_exit name hook
    .balign 64
\name:
    .cfi_startproc
    .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27    # RA at (CFA - 8) ^ 1<<44
    lea rsp, [rsp - 8]; .cfi_adjust_cfa_offset 8
    tap_save
    mov rax, qword ptr [rsp + 48]
    mov qword ptr [rsp + 40], rax
    lea rdx, [rsp + 48]
    call calltap_values_shim
    tap_restore
    lea rsp, [rsp + 8]; .cfi_adjust_cfa_offset -8
    jmp \hook
    .cfi_endproc
.endm

# Reads results where exits are rewritten.
.macro tap_values_leave name hook
    .balign 64
\name:
    .cfi_startproc
    tap_frame (24+{red_zone})
    tap_save
    tap_is_marked 9f
    tap_slot rdx 2
    call calltap_values_shim
    .cfi_remember_state
    tap_restore
    jmp \hook
    tap_resume 40
9:
    tap_restore
    ret
    .cfi_endproc
.endm
