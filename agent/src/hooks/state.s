# r11 = this thread's state; jumps if there is none. Changes rax. See `word.rs`.
.macro tap_state missing
    mov r11, qword ptr [rip + calltap_thread@gottpoff]
    mov r11, qword ptr fs:[r11]
    test r11, r11
    jle \missing    # negative: the thread may not read the counter
.endm
