# Hooks of functions whose return address is kept on the shadow stack, or whose return is not
# recorded.

# Entry with a return: function_graph and profile, and function beside them. event: an event is
# stored.
.macro tap_entry name clock mcount event profile parent fix tailfix
    tap_begin \name \mcount 5f
    tap_slot rdx \mcount
    shr rdx, {granule}
    lea r11, [rip + calltap_shadow]
    cmp byte ptr [r11 + rdx], 1
    jne 6f
1:
    .if \event
        mov ecx, 0
        tap_state 7f
        tap_store \clock \mcount \fix \parent 7f
    .endif
3:    # recorded: move the return address to the shadow stack
    tap_load_slot rcx \mcount
    tap_slot rdx \mcount
    btc rdx, {shadow_bit}
    mov qword ptr [rdx], rcx
    .if \profile
    31:
        tap_profile_entry \clock \mcount 33f
    32:
    .endif
    mov rax, qword ptr [rsp + 40]
    .cfi_remember_state
    .if \mcount
        add rax, {to_landing}
        mov qword ptr [rbp + 8], rax
        tap_restore
        ret
    .else
        mov qword ptr [rsp + 48], rax
        .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27    # RA at (CFA - 8) ^ 1<<44
        tap_restore
        lea rsp, [rsp + 8]; .cfi_adjust_cfa_offset -8
        ret
    .endif
    tap_resume 40
5:    # entered by a jump
    tap_jumped_to \clock \mcount \event \profile \parent \tailfix
9:    # continue in the body, with the return address unchanged
    .ifeq \mcount; add qword ptr [rsp + 40], {to_tail}; .endif
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
6:    # no shadow stack here yet
    tap_code \mcount \fix
    mov eax, ecx
    tap_slot rdx \mcount
    call calltap_shadow_shim
    test al, al
    jnz 1b
    jmp 9b
    tap_entry_slow \mcount \event \profile \fix \tailfix
    .cfi_endproc
.endm

# Entry without a return: function.
.macro tap_call name clock mcount fix
    .balign 64
\name:
    .cfi_startproc
    .if \mcount == 0; tap_frame 16; .else; tap_frame 8; .endif
    tap_save
    tap_load_slot rcx \mcount
    mov rax, rcx
    sub rax, qword ptr [rip + {stubs}]
    cmp rax, {region}
    mov ecx, 0
    jb 5f
    tap_state 7f
    tap_store \clock \mcount \fix 1 7f 0
9:
    .cfi_remember_state
    tap_restore
    ret
    tap_resume 40
7:
    tap_load_slot rdx \mcount
    tap_slow \mcount \fix
    jmp 9b
5:    # entered by a jump from a function of the graph tracer
    tap_state 8f
    tap_store \clock \mcount \fix 2 8f 0
    jmp 9b
8:
    tap_load_parent \mcount 2
    tap_slow \mcount \fix
    jmp 9b
    .cfi_endproc
.endm

# The return. Its call pushed stub+16 into S; a word below S is reserved for it.
.macro tap_exit name clock event profile
    .balign 64
\name:
    .cfi_startproc
    .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27    # RA at (CFA - 8) ^ 1<<44
    lea rsp, [rsp - 8]; .cfi_adjust_cfa_offset 8
    tap_save
    mov rax, qword ptr [rsp + 48]
    mov qword ptr [rsp + 40], rax
    .if \profile && \clock != 3
    31:
        tap_profile_exit \clock 0 33f
    32:
    .endif
    .if \event
        mov ecx, 0
        tap_state 7f
        tap_store \clock 0 0 0 7f
    .endif
3:
    lea rdx, [rsp + 48]
    btc rdx, {shadow_bit}
    mov rcx, qword ptr [rdx]
    test rcx, rcx
    jz 8f
4:
    mov qword ptr [rsp + 48], rcx
    .cfi_offset 16, -8
    tap_restore
    ret
    .cfi_adjust_cfa_offset 40
    .cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27
8:
# The return took n bytes of arguments from the stack, so its slot is n bytes below S. Slots are at 8
# modulo 16, and n is, too: no call ever had its slot at S. With n = 8 the word below is the slot. With
# n = 24 and more, an earlier call may have left its address in a word between: it is taken then, as
# nothing tells it from the right one.
    mov r11d, {max_arguments}
81:
    lea rdx, [rdx - 8]
    mov rcx, qword ptr [rdx]
    mov rax, rcx
    sub rax, qword ptr [rip + {stubs}]
    cmp rax, {region}
    jb 82f    # the mark of a call
    test rcx, rcx
    jnz 4b
82:
    dec r11d
    jnz 81b
    xor ecx, ecx    # no address is known
    jmp 4b
    .if \event
    7:
        tap_slow 0 0
        jmp 3b
    .endif
    .if \profile && \clock != 3
    33:
        tap_profile_slow 1
        jnz 31b
        jmp 32b
    .endif
    .cfi_endproc
.endm
