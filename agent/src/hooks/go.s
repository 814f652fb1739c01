# Hooks of Go functions that have their g in r14. They run behind the stack check, or in front of
# the return, where the stack has room for a hook but not for Rust. No frame of a hook is on the
# stack when the runtime walks it.

.macro tap_go_leave name clock
    .balign 64
\name:
    .cfi_startproc
    tap_frame (24+{red_zone})
    tap_save
    mov ecx, 0
    tap_state 7f
    tap_store \clock 2 {go_left} 0 7f 1 {goid_behind_leave}
9:
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
7:
    tap_slow 2 {go_left} calltap_small_go_shim {goid_behind_leave}
    jmp 9b
    .cfi_endproc
.endm

# In front of another hook of a Go function: reads arguments, or results.
.macro tap_go_values name hook cfa
    .balign 64
\name:
    .cfi_startproc
    .cfi_def_cfa rsp, \cfa
    tap_save
    call calltap_small_values_shim
    tap_restore
    jmp \hook
    .cfi_endproc
.endm

.macro tap_go_values_of wanted clock
    tap_go_values calltap_hook_go_v\wanted\()_\clock calltap_hook_go_\wanted\()_\clock 16
.endm

# With clocks by which events do not name goroutines, no values are read.
.macro tap_go_without_values wanted clock
    .set calltap_hook_go_v\wanted\()_\clock, calltap_hook_go_\wanted\()_\clock
.endm

.macro tap_go_values_hooks clock
    .irp wanted, f, g, fg, p, fp, gp, fgp
        tap_go_values_of \wanted \clock
    .endr
    tap_go_values calltap_hook_go_vleave_\clock calltap_hook_go_leave_\clock 24+{red_zone}
.endm

# Counts a call for which its goroutine's stack has no room, and continues at the address in r12. It
# uses no stack, and only registers that are free where a Go function begins.
.macro tap_go_lost clock
    .balign 64
calltap_hook_go_lost_\clock:
    .cfi_startproc
    .cfi_def_cfa rsp, 8
    mov r13, qword ptr [rip + {control}]
    lock inc qword ptr [r13 + {lost_without_room}]
    jmp r12
    .cfi_endproc
.endm

# Without events goroutines need not be named.
.macro tap_go_profile clock
    .set calltap_hook_go_p_\clock, calltap_hook_small_p_\clock
.endm

# Offsets of return addresses are 7 (entry) and 18 (exit); event codes: GO_ENTRY 20,
# GO_ENTRY_FROM 21, GO_EXIT 22, GO_CALL 23.
.macro tap_go_hooks clock
    tap_go_profile \clock
    tap_small calltap_hook_go_f_\clock \clock 0 1 0 16 1 {goid_behind_entry}
    tap_small calltap_hook_go_g_\clock \clock 0 1 0 19 0 {goid_behind_entry}
    tap_small calltap_hook_go_fg_\clock \clock 0 1 0 18 1 {goid_behind_entry}
    tap_small calltap_hook_go_fp_\clock \clock 0 1 1 16 1 {goid_behind_entry}
    tap_small calltap_hook_go_gp_\clock \clock 0 1 1 19 0 {goid_behind_entry}
    tap_small calltap_hook_go_fgp_\clock \clock 0 1 1 18 1 {goid_behind_entry}
    tap_go_leave calltap_hook_go_leave_\clock \clock
.endm

# With clocks whose times do not order the events of a goroutine that has changed its thread, only
# entries are recorded.
.macro tap_go_entries clock
    tap_go_profile \clock
    .set calltap_hook_go_f_\clock, calltap_hook_small_f_\clock
    .set calltap_hook_go_g_\clock, calltap_hook_small_f_\clock
    .set calltap_hook_go_fg_\clock, calltap_hook_small_f_\clock
    .set calltap_hook_go_fp_\clock, calltap_hook_small_fp_\clock
    .set calltap_hook_go_gp_\clock, calltap_hook_small_fp_\clock
    .set calltap_hook_go_fgp_\clock, calltap_hook_small_fp_\clock
calltap_hook_go_leave_\clock:
    ret
    .irp wanted, f, g, fg, p, fp, gp, fgp, leave
        tap_go_without_values \wanted \clock
    .endr
.endm
