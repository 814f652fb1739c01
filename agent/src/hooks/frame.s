# The beginning and end of every hook, and the layout of its frame.

# The canonical frame address at the beginning of a hook, as a distance from rsp.
.macro tap_frame distance
    .cfi_def_cfa rsp, \distance
    .set tap_cfa, \distance
.endm

# Behind a way out of a hook: the frame as at the last .cfi_remember_state, with this many bytes
# saved. The assembler does not restore the distance that .cfi_adjust_cfa_offset starts from.
.macro tap_resume saved
    .cfi_restore_state
    .cfi_def_cfa_offset tap_cfa + \saved
.endm

# The frame of a hook:
#   0 flags  8 r11  16 rdx  24 rcx  32 rax  40 return into the stub  48 = S (call-through)
.macro tap_save
    push rax; .cfi_adjust_cfa_offset 8
    push rcx; .cfi_adjust_cfa_offset 8
    push rdx; .cfi_adjust_cfa_offset 8
    push r11; .cfi_adjust_cfa_offset 8
    lahf
    seto al
    push rax; .cfi_adjust_cfa_offset 8
.endm

.macro tap_restore
    pop rax; .cfi_adjust_cfa_offset -8
    add al, 127    # sets OF again if it was set
    sahf
    pop r11; .cfi_adjust_cfa_offset -8
    pop rdx; .cfi_adjust_cfa_offset -8
    pop rcx; .cfi_adjust_cfa_offset -8
    pop rax; .cfi_adjust_cfa_offset -8
.endm

# The address of S, by kind of site (2: where a function is left, one call deeper, and below the red
# zone).
.macro tap_slot reg mcount
    .if \mcount == 1; lea \reg, [rbp + 8]; .elseif \mcount == 2; lea \reg, [rsp + 56 + {red_zone}]; .else; lea \reg, [rsp + 48]; .endif
.endm

# The position of an event: the slot, or (goid: of a Go function) its distance below the top of its
# goroutine's stack, which stays the same when the stack moves. Changes flags.
.macro tap_position reg mcount goid
    tap_slot \reg \mcount
    .if \goid; sub \reg, qword ptr [r14 + {stack_top}]; .endif
.endm

.macro tap_load_slot reg mcount
    .if \mcount; mov \reg, qword ptr [rbp + 8]; .else; mov \reg, qword ptr [rsp + 48]; .endif
.endm

# ZF = 1 if the slot in rdx has a shadow stack. Changes rax and r11.
.macro tap_has_shadow
    mov rax, rdx
    shr rax, {granule}
    lea r11, [rip + calltap_shadow]
    cmp byte ptr [r11 + rax], 1
.endm

# rdx = the return address of the call: in S, or (2: entered by a jump) in the shadow stack.
.macro tap_load_parent mcount parent
    .if \parent == 1
        tap_load_slot rdx \mcount
    .else
        tap_slot rdx \mcount
        btc rdx, {shadow_bit}
        mov rdx, qword ptr [rdx]
    .endif
.endm

# ecx = low half of the event: return address in the stub, tag, and the difference to the event's
# code.
.macro tap_code mcount fix goid=0
    .if \goid; tap_position rcx \mcount \goid; .else; tap_slot ecx \mcount; .endif
    shl ecx, 22
    xor ecx, dword ptr [rsp + 40]
    .if \fix; xor ecx, \fix; .endif
.endm

# edx:eax = the clock. Changes ecx for `counter`, so it comes before the code.
.macro tap_clock clock
    .if \clock == 0; rdtsc; .endif
    .if \clock == 2
        mov rax, qword ptr [rip + {control}]
        mov rax, qword ptr [rax + {tick}]
        mov rdx, rax; shr rdx, 32
    .endif
    .if \clock == 3
        mov rdx, qword ptr [rip + {control}]
        mov eax, 1
        lock xadd qword ptr [rdx + {counter}], rax
        mov rdx, rax; shr rdx, 32
    .endif
.endm
