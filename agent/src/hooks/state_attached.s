# r11 = this thread's state; jumps if there is none. Changes rax. For an agent without a
# thread-local variable: a field of the C library's control block holds the state's number, if the
# state is this thread's.
.macro tap_state missing
    mov r11, qword ptr fs:[{sysinfo}]
    lea rax, [r11 - 1]
    cmp rax, {states} - 1
    ja \missing
    shl r11, {shift}
    add r11, qword ptr [rip + {base}]
    mov rax, qword ptr [rip + {owner_at}]
    mov eax, dword ptr fs:[rax]
    cmp eax, dword ptr [r11 + {owner}]
    jne \missing
.endm
