# r11 = this thread's state, or jump. rax is free. See `word.rs`.
.macro tap_state missing
    mov r11, qword ptr [rip + calltap_thread@gottpoff]
    mov r11, qword ptr fs:[r11]
    test r11, r11
    jz \missing
.endm
