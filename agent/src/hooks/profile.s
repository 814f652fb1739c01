# Adds up counts and times for the profile tracer.

# r11 = this thread's profile record of the site. Preserves rcx.
.macro tap_profile_record missing
    tap_state \missing
    mov r11, qword ptr [r11 + {profiles}]
    test r11, r11
    jz \missing
    tap_site
    mov edx, eax
    shr edx, {profile_shift}
    mov r11, qword ptr [r11 + rdx * 8]
    test r11, r11
    jz \missing
    and eax, {profile_mask}
    lea eax, [rax + rax * 2]    # 48 bytes each
    shl eax, 4
    add r11, rax
.endm

.macro tap_site
    mov eax, dword ptr [rsp + 40]
    sub eax, dword ptr [rip + {stubs}]
    shr eax, 5
.endm

# Requests memory for the record. ZF = 0 if it is there now.
.macro tap_profile_slow returns shim=calltap_profile_shim
    tap_site
    mov edx, \returns
    call \shim
    test al, al
.endm

# At an entry: counts the call, and stores its start time beside its return address.
.macro tap_profile_entry clock mcount missing
    tap_profile_record \missing
    inc qword ptr [r11 + {hits}]
    .if \clock != 3    # this clock gives an order, not times
        tap_slot rcx \mcount
        test cl, 8
        jz 783f
        .if \clock == 1; rdtsc; .else; tap_clock \clock; .endif
        shl rdx, 32
        or rax, rdx
        bts rax, {timed_bit}
        btc rcx, {shadow_bit}
        mov qword ptr [rcx - 8], rax
    783:
    .endif
.endm

# At a return: adds the call's time, if its start time is known.
.macro tap_profile_exit clock mcount missing
    tap_slot rcx \mcount
    test cl, 8
    jz 782f
    btc rcx, {shadow_bit}
    mov rcx, qword ptr [rcx - 8]
    btr rcx, {timed_bit}
    jnc 782f
    tap_profile_record \missing
    .if \clock == 1; rdtsc; .else; tap_clock \clock; .endif
    shl rdx, 32
    or rax, rdx
    sub rax, rcx
    mov edx, 0
    cmovs rax, rdx    # the clocks of two processors differ
    inc qword ptr [r11 + {timed}]
    add qword ptr [r11 + {total}], rax
    mov rcx, rax
    mov rax, qword ptr [r11 + {max}]
781:
    cmp rcx, rax
    jbe 784f
    cmpxchg qword ptr [r11 + {max}], rcx
    jne 781b
784:
    mov rax, rcx
    mul rcx
    add qword ptr [r11 + {squares_low}], rax
    adc qword ptr [r11 + {squares_high}], rdx
782:
.endm
