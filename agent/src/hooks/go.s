# Hooks of Go functions that have their g in r14. They run behind the stack check, or in front of the return: there is room for them, not for Rust.
# Nothing of theirs is on the stack when the runtime looks at it.

# How far below the top of its stack a frame lies: the same wherever the stack has moved. Changes flags.
.macro tap_go_position reg mcount
    tap_slot \reg \mcount
    sub \reg, qword ptr [r14 + {stack_top}]
.endm

# Stores an event for the thread in r11, as tap_store does. What is compared behind the reservation besides: the last words that name a goroutine name
# this one. A g is used again for another goroutine, so the number is compared, too; a thread's own stacks all have 0.
.macro tap_go_store clock mcount fix parent goid slow
    tap_clock \clock
    shl rdx, 32
    or rax, rdx
    mov rdx, rax
    shr rdx, {clock_bits}
    shl rax, 64 - {clock_bits}
    tap_go_position rcx \mcount
    shl rcx, 64 - {window_bits}
    shr rcx, {clock_bits}
    or rax, rcx
    mov ecx, dword ptr [rsp + 40]
    xor ecx, \fix
    xor rax, rcx
    .if \parent; mov ecx, 16; .else; mov ecx, 8; .endif
    xadd qword ptr [r11], rcx
    cmp rdx, qword ptr [r11 + {epoch}]
    jne \slow
    cmp r14, qword ptr [r11 + {g}]
    jne \slow
    mov rdx, qword ptr [rsp + 40]
    movzx edx, byte ptr [rdx + \goid]
    mov rdx, qword ptr [r14 + rdx * 8]
    cmp rdx, qword ptr [r11 + {goroutine}]
    jne \slow
    tap_go_position rdx \mcount
    sub rdx, qword ptr [r11 + {window}]
    cmp rdx, {window_size}
    jae \slow
    lea edx, [rcx - {data}]
    movzx edx, dx
    cmp edx, {room}
    jae \slow
    .if \parent
        tap_load_slot rdx \mcount
        shl rdx, 5
        or rdx, {parent_code}
        mov qword ptr [rcx + 8], rdx
    .endif
    mov qword ptr [rcx], rax
.endm

# The slow way: rdx = caller, rcx = what was reserved.
.macro tap_go_slow mcount fix
    mov r11, rcx
    tap_go_position rcx \mcount
    shl ecx, 22
    xor ecx, dword ptr [rsp + 40]
    xor ecx, \fix
    mov eax, ecx
    mov rcx, r11
    call calltap_small_go_shim
.endm

.macro tap_go name clock profile parent fix
    .balign 64
\name:
    .cfi_startproc
    .cfi_def_cfa rsp, 16
    tap_save
    mov ecx, 0
    tap_state 7f
    tap_go_store \clock 0 \fix \parent {goid_behind_entry} 7f
3:
    .if \profile
        tap_profile_record 33f
        inc qword ptr [r11 + {hits}]
    .endif
9:
    .cfi_remember_state
    tap_restore
    ret
    .cfi_restore_state
7:
    tap_load_slot rdx 0
    tap_go_slow 0 \fix
    jmp 3b
    .if \profile
    33:
        tap_profile_slow 0 calltap_small_profile_shim
        jnz 3b
        jmp 9b
    .endif
    .cfi_endproc
.endm

.macro tap_go_leave name clock
    .balign 64
\name:
    .cfi_startproc
    .cfi_def_cfa rsp, 24 + {red_zone}
    tap_save
    mov ecx, 0
    tap_state 7f
    tap_go_store \clock 2 {go_left} 0 {goid_behind_leave} 7f
9:
    .cfi_remember_state
    tap_restore
    ret
    .cfi_restore_state
7:
    tap_go_slow 2 {go_left}
    jmp 9b
    .cfi_endproc
.endm

# Without events there is nothing to say of goroutines.
.macro tap_go_profile clock
    .set calltap_hook_go_p_\clock, calltap_hook_small_p_\clock
.endm

# Offsets of return addresses are 7 (entry) and 18 (exit): GO_ENTRY 20, GO_ENTRY_FROM 21, GO_EXIT 22, GO_CALL 23.
.macro tap_go_hooks clock
    tap_go_profile \clock
    tap_go calltap_hook_go_f_\clock \clock 0 1 16
    tap_go calltap_hook_go_g_\clock \clock 0 0 19
    tap_go calltap_hook_go_fg_\clock \clock 0 1 18
    tap_go calltap_hook_go_fp_\clock \clock 1 1 16
    tap_go calltap_hook_go_gp_\clock \clock 1 0 19
    tap_go calltap_hook_go_fgp_\clock \clock 1 1 18
    tap_go_leave calltap_hook_go_leave_\clock \clock
.endm

# By clocks whose times do not put the events of a goroutine in order that has changed its thread, entries alone are recorded.
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
.endm
