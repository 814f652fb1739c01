# The same where the agent has no thread-local variable: the C library's word in each thread has the state's number, if it is this thread's.
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
