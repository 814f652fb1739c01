# Stores an event in the thread's chunk.

# Stores an event for the thread in r11. Falls through when done; else jumps to `slow` with rcx =
# the reserved address. The epoch is compared after the reservation: only then is the order of this
# event among the thread's others fixed, and a match proves that the last EPOCH word in front of it
# is this event's own. The same holds for the slot, which is compared where placed = 1: an event of
# a call that returns lies within the window of the last STACK word in front of it.
#
# goid is not 0 for a Go function, which has its g in r14. It is the distance from the return
# address in the function's stub to the byte with the place of the goroutine's number. The last
# GOROUTINE words then have to name this goroutine. A g is reused for other goroutines, so the
# number is compared, too; a thread's own stacks all have 0.
.macro tap_store clock mcount fix parent slow placed=1 goid=0
    .if \clock == 1
    771:
        .if \parent; mov ecx, 12; .else; mov ecx, 4; .endif
        xadd qword ptr [r11], rcx
        lea edx, [rcx - {data}]
        movzx edx, dx
        cmp edx, {room}
        jae \slow
        # Three words inside one block: the slow path stores an event that crosses time words.
        .if \parent
            lea edx, [rcx - 8]
            and edx, 63
            cmp edx, 44
            ja \slow
            tap_load_parent \mcount \parent
            mov eax, edx
            shl eax, 5
            or eax, {parent_code}
            mov dword ptr [rcx + 4], eax
            shr rdx, 27
            shl edx, 5
            or edx, {parent_high_code}
            mov dword ptr [rcx + 8], edx
        .else
            test cl, 0x38
            jz 772f
        .endif
        mov rdx, rcx
        tap_code \mcount \fix
        mov dword ptr [rdx], ecx
        .ifeq \parent
            jmp 774f
        772:    # the first two words of a block take the time
            rdtsc
            test cl, 4
            jnz 773f
            cmp eax, 1
            adc eax, 0
            mov dword ptr [rcx], eax
            jmp 771b
        773:
            cmp eax, dword ptr [rcx - 4]    # the low half wrapped in between
            sbb edx, 0
            or edx, 0x80000000
            mov dword ptr [rcx], edx
            jmp 771b
        774:
        .endif
    .else
        tap_clock \clock
        shl rdx, 32
        or rax, rdx
        mov rdx, rax
        shr rdx, {clock_bits}
        shl rax, 64 - {clock_bits}
        tap_position rcx \mcount \goid
        shl rcx, 64 - {window_bits}    # the bits of the slot, and none above them
        shr rcx, {clock_bits}
        or rax, rcx
        mov ecx, dword ptr [rsp + 40]
        .if \fix; xor ecx, \fix; .endif
        xor rax, rcx
        .if \parent; mov ecx, 16; .else; mov ecx, 8; .endif
        xadd qword ptr [r11], rcx
        cmp rdx, qword ptr [r11 + {epoch}]
        jne \slow
        .if \goid
            cmp r14, qword ptr [r11 + {g}]
            jne \slow
            mov rdx, qword ptr [rsp + 40]
            movzx edx, byte ptr [rdx + \goid]
            mov rdx, qword ptr [r14 + rdx * 8]
            cmp rdx, qword ptr [r11 + {goroutine}]
            jne \slow
        .endif
        .if \placed
            tap_position rdx \mcount \goid
            sub rdx, qword ptr [r11 + {window}]
            cmp rdx, {window_size}
            jae \slow
        .endif
        lea edx, [rcx - {data}]
        movzx edx, dx
        cmp edx, {room}
        jae \slow
        .if \parent
            tap_load_parent \mcount \parent
            shl rdx, 5
            or rdx, {parent_code}
            mov qword ptr [rcx + 8], rdx
        .endif
        mov qword ptr [r11 + {newest}], rcx    # for a child that is forked from here on
        mov qword ptr [rcx], rax
    .endif
.endm

# The slow path: eax = low half of the event, rdx = parent, rcx = reserved address, r11 = the slot.
# al = 1 if it was recorded.
.macro tap_slow mcount fix shim=calltap_record_shim goid=0
    mov r11, rcx
    tap_code \mcount \fix \goid
    mov eax, ecx
    mov rcx, r11
    tap_slot r11 \mcount
    call \shim
    test al, al
.endm
