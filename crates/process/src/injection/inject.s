# Code that a hijacked thread runs: a call, and a tail that can be entered again. The fields of the
# block are described in inject.rs.

.macro calltap_call_back rax rip
    mov rax, [rip + calltap_call_end + \rax]
    mov rbx, [rip + calltap_call_end + {rbx}]
    mov rcx, [rip + calltap_call_end + {rcx}]
    mov rdx, [rip + calltap_call_end + {rdx}]
    mov rsi, [rip + calltap_call_end + {rsi}]
    mov rdi, [rip + calltap_call_end + {rdi}]
    mov rbp, [rip + calltap_call_end + {rbp}]
    mov r8, [rip + calltap_call_end + {r8}]
    mov r9, [rip + calltap_call_end + {r9}]
    mov r10, [rip + calltap_call_end + {r10}]
    mov r11, [rip + calltap_call_end + {r11}]
    mov r12, [rip + calltap_call_end + {r12}]
    mov r13, [rip + calltap_call_end + {r13}]
    mov r14, [rip + calltap_call_end + {r14}]
    mov r15, [rip + calltap_call_end + {r15}]
    mov rsp, [rip + calltap_call_end + {rsp}]
    jmp [rip + calltap_call_end + \rip]
.endm
# rt_sigprocmask(SIG_SETMASK, a field of the block).
.macro calltap_call_mask signals
    mov eax, {sigprocmask}
    mov edi, 2
    lea rsi, [rip + calltap_call_end + \signals]
    xor edx, edx
    mov r10d, 8
    syscall
.endm
.pushsection .rodata.calltap_call,"a",@progbits
.balign 16
.globl calltap_call_start, calltap_call_end
.hidden calltap_call_start, calltap_call_end
calltap_call_start:
    syscall
    cmp rax, -4095
    jae 8f
    mov rbx, rax
    lea rsp, [rax + {scratch}]
    calltap_call_mask {waiting}
    cld
    mov r13d, {called}
    mov eax, -1
    mov edx, -1
    xsave64 [rbx]
    cmp qword ptr [rip + calltap_call_end + {opens_files}], 0
    je calltap_call_directly
# A new thread makes the call: the opener, which shares everything but the descriptor table. This
# thread gets another stack first, as a handler may run as soon as there are two.
    lea rsp, [rbx + {result}]
    mov eax, {clone}
    mov edi, {opener_flags}
    lea rsi, [rbx + {scratch}]
    lea rdx, [rbx + {opener}]
    mov r10, rdx
    xor r8d, r8d
    syscall
    test rax, rax
    jz calltap_call_opener
    js calltap_call_directly # the process may have no more threads
# This thread waits until the kernel has cleared the opener's id: the opener has ended.
calltap_call_await:
    mov edx, [rbx + {opener}]
    mov r12, [rbx + {outcome}]
    test edx, edx
    jz 7f
    mov eax, {futex}
    lea rdi, [rbx + {opener}]
    xor esi, esi
    xor r10d, r10d
    syscall
    jmp calltap_call_await
calltap_call_opener:
    mov eax, {close_range}
    xor edi, edi
    mov esi, -1
    mov edx, {unshare_range}
    syscall
    test rax, rax
    jz 2f
    mov eax, {unshare}
    mov edi, {files}
    syscall
2:
    call calltap_call_work
    mov [rbx + {outcome}], r12
.globl calltap_call_quit
.hidden calltap_call_quit
calltap_call_quit:
    mov eax, {exit}
    xor edi, edi
    syscall
calltap_call_directly:
    lea rsp, [rbx + {scratch}]
    call calltap_call_work
7:
    mov eax, -1
    mov edx, -1
    xrstor64 [rbx]
    calltap_call_mask {all_signals}
# The controller, if it lives, stops the thread here.
    mov qword ptr [rbx + {returned}], 1
    mov ecx, {linger_rounds}
calltap_call_wait:
    cmp qword ptr [rbx + {go_on}], 0
    jne calltap_call_told
    pause
    dec ecx
    jnz calltap_call_wait
calltap_call_told:
    test r12, r12
    jz 8f
    mov eax, {munmap}
    mov rdi, rbx
    mov esi, {scratch}
    syscall
8: # the code may use the thread's own stack below its red zone
    mov rsp, [rip + calltap_call_end + {rsp}]
    lea rsp, [rsp - {red_zone}]
# The controller stops the thread once more at this call, which changes nothing.
    calltap_call_mask {all_signals}
.globl calltap_call_done
.hidden calltap_call_done
calltap_call_done:
# Reads the pending signals into the first eight bytes on the stack.
    push 0
    mov eax, {sigpending}
    mov rdi, rsp
    mov esi, 8
    syscall
    pop rbx
    and rbx, [rip + calltap_call_end + {handled}]
# Signals are unblocked only now: the scratch memory is unmapped, and their frames go to the
# thread's own stack.
    calltap_call_mask {signals}
# A parked thread waits here for a limited number of rounds.
    mov rcx, [rip + calltap_call_end + {linger}]
    jrcxz 6f
.globl calltap_call_linger, calltap_call_lingered
.hidden calltap_call_linger, calltap_call_lingered
calltap_call_linger:
    pause
    dec rcx
    jnz calltap_call_linger
calltap_call_lingered:
6:
    push qword ptr [rip + calltap_call_end + {flags}]
# The way back depends on whether a signal is pending. Jumps and `mov` do not change the flags.
    test rbx, rbx
    jnz 9f
    popfq
    calltap_call_back {rax} {rip}
9:
    popfq
    calltap_call_back {interrupted_rax} {interrupted_rip}
# Calls the function, and the one that explains its failure. Returns in r12 the result; 0 if the
# scratch memory, which holds the explanation, has to stay.
calltap_call_work:
    sub rsp, 8
    mov rdi, [rip + calltap_call_end + {arguments}]
    mov rsi, [rip + calltap_call_end + {arguments} + 8]
    call [rip + calltap_call_end + {function}]
    mov r12, rax
    test rax, rax
    jnz 3f
    mov r12, [rip + calltap_call_end + {complaint}]
    test r12, r12
    mov r12d, 1
    jz 3f
    call [rip + calltap_call_end + {complaint}]
    mov [rbx + {result}], rax
    xor r12d, r12d
3:
    add rsp, 8
    ret
# A function to call: opens the file at rdi and makes the mappings at rsi, a list that ends with
# address 0. Returns 1, or why the file cannot be opened.
.globl calltap_call_map
.hidden calltap_call_map
calltap_call_map:
    push rbx
    push r12
    mov rbx, rsi
    mov eax, {openat}
    mov rsi, rdi
    mov edi, {cwd}
    mov edx, {open_flags}
    xor r10d, r10d
    syscall
    test rax, rax
    js 5f
    mov r12d, eax
4:
    mov rdi, [rbx + {map_address}]
    test rdi, rdi
    jz 3f
    mov rsi, [rbx + {map_length}]
    mov r9, [rbx + {map_offset}]
    mov edx, [rbx + {map_protection}]
    mov r10d, [rbx + {map_flags}]
    mov r8d, r12d
    mov eax, {mmap}
    syscall
    add rbx, {map_size}
    cmp rax, rdi
    je 4b
3:
    mov edi, r12d
    mov eax, {close}
    syscall
    mov eax, 1
5:
    pop r12
    pop rbx
    ret
.balign 8
calltap_call_end:
.popsection
