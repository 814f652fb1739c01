# Common parts of the hooks at entries. Labels: 3 the event is recorded; 5 entered by a jump; 9
# done; 31 and 32 before and behind the profile tracer's part.

# Begins a hook at an entry. Jumps to `jumped` if the function was entered by a jump from a function
# whose return address is in the shadow stack. rcx = the return address.
.macro tap_begin name mcount jumped
    .balign 64
\name:
    .cfi_startproc
    .if \mcount == 0; tap_frame 16; .else; tap_frame 8; .endif    # next frame: the traced function's caller
    tap_save
    tap_load_slot rcx \mcount
    mov rax, rcx
    sub rax, qword ptr [rip + {stubs}]
    cmp rax, {region}
    jb \jumped
.endm

# 5: the function was entered by a jump, from a function that returns for both.
.macro tap_jumped_to clock mcount event profile parent tailfix
    .if \profile
        tap_profile_record 51f
        inc qword ptr [r11 + {hits}]
    52:
    .endif
    .if \event
        mov ecx, 0
        tap_state 8f
        .if \parent; tap_store \clock \mcount \tailfix 2 8f; .else; tap_store \clock \mcount \tailfix 0 8f; .endif
    .endif
.endm

# 7, 8, 33 and 51: there is no room, no state or no record yet. exits: the function's exits are
# rewritten.
.macro tap_entry_slow mcount event profile fix tailfix exits=0
    .if \event
    7:
        tap_load_slot rdx \mcount
        tap_slow \mcount \fix
        jnz 3b
        .if \exits; tap_unmark; .endif
        .if \profile    # the event is lost, the call counts
        53:
            tap_profile_record 54f
            inc qword ptr [r11 + {hits}]
            jmp 9b
        54:
            tap_profile_slow 0
            jnz 53b
        .endif
        jmp 9b
    8:
        tap_load_parent \mcount 2
        tap_slow \mcount \tailfix
        jmp 9b
    .endif
    .if \profile
    33:
        tap_profile_slow 0
        jnz 31b
        tap_slot rcx \mcount    # not timed
        test cl, 8
        jz 32b
        btc rcx, {shadow_bit}
        mov qword ptr [rcx - 8], 0
        jmp 32b
    51:
        tap_profile_slow 0
        jnz 5b
        jmp 52b
    .endif
.endm
