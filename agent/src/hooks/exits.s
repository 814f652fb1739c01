# Hooks of functions whose exits are rewritten.

# The entry of a function whose exits are rewritten.
.macro tap_enter name clock event profile parent fix tailfix
    tap_begin \name 0 5f
    tap_slot rdx 0
    tap_has_shadow
    jne 6f
1:
    .if \event
        mov ecx, 0
        tap_state 7f
        tap_store \clock 0 \fix \parent 7f
    .endif
3:    # recorded: mark the call
    tap_slot rdx 0
    btc rdx, {shadow_bit}
    mov rax, qword ptr [rsp + 40]
    mov qword ptr [rdx], rax
    .if \profile
    31:
        tap_profile_entry \clock 0 33f
    32:
    .endif
9:
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
5:    # jump from a function that returns for both and has its return address in the shadow stack
    tap_jumped_to \clock 0 \event \profile \parent \tailfix
    jmp 9b
6:    # no shadow stack here yet
    tap_code 0 \fix
    mov eax, ecx
    call calltap_shadow_shim
    test al, al
    jnz 1b
    jmp 9b
    tap_entry_slow 0 \event \profile \fix \tailfix 1
    .cfi_endproc
.endm

# This call is not recorded: removes the mark that a call which never returned may have left. Any
# other value there may be a return address.
.macro tap_unmark
    tap_slot rdx 0
    tap_has_shadow
    jne 991f
    btc rdx, {shadow_bit}
    mov rax, qword ptr [rsp + 40]
    cmp qword ptr [rdx], rax
    jne 991f
    mov qword ptr [rdx], 0
991:
.endm

# Falls through if the entry of the call was recorded; it is about to leave the function through one
# of its exits. rdx = its shadow-stack slot.
.macro tap_is_marked otherwise
    tap_slot rdx 2
    tap_has_shadow
    jne \otherwise
    btc rdx, {shadow_bit}
    mov rax, qword ptr [rsp + 40]
    sub rax, {since_entry}
    cmp qword ptr [rdx], rax
    jne \otherwise
.endm

.macro tap_leave name clock event profile
    .balign 64
\name:
    .cfi_startproc
    tap_frame (24+{red_zone})
    tap_save
    tap_is_marked 9f
    mov qword ptr [rdx], 0
    .if \profile && \clock != 3
    31:
        tap_profile_exit \clock 2 33f
    32:
    .endif
    .if \event
        mov ecx, 0
        tap_state 7f
        tap_store \clock 2 {left} 0 7f
    .endif
9:
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
    .if \event
    7:
        tap_slow 2 {left}
        jmp 9b
    .endif
    .if \profile && \clock != 3
    33:
        tap_profile_slow 1
        jnz 31b
        jmp 32b
    .endif
    .cfi_endproc
.endm
