# Replaces the profiling function while first calls are recorded: mcount or __fentry__ was called,
# so the call returns to [rsp]. Nearly always the call is recorded already, and this code is all
# that runs. It calls nothing but the slow path, so recursion is impossible: a signal handler may
# interrupt it, whose calls are like any other.
.balign 64
.globl calltap_first
.hidden calltap_first
calltap_first:
    .cfi_startproc
    tap_save    # the call returns to [rsp + 40]
    push rsi; .cfi_adjust_cfa_offset 8
    mov r11, qword ptr [rip + {control}]
    test r11, r11
    jz 9f
    cmp dword ptr [r11 + {suspended}], 0
    jne 9f
    mov rax, qword ptr [rip + {private}]
    mov eax, dword ptr [rax + {process}]
    test eax, eax    # 0 in a forked child without an entry
    jz 7f
    mov rdx, qword ptr [rsp + 48]
    movabs rcx, {golden}
    imul rcx, rdx
    shr rcx, {bucket_shift}
    mov ecx, dword ptr [r11 + rcx * 4 + {buckets}]
    mov esi, {longest}
1:
    dec ecx
    cmp ecx, {records} - 1
    ja 7f    # the end of the chain
    shl rcx, 4
    cmp qword ptr [r11 + rcx + {ip_at}], rdx
    jne 2f
    cmp dword ptr [r11 + rcx + {process_at}], eax
    je 9f
2:
    mov ecx, dword ptr [r11 + rcx + {next_at}]
    dec esi
    jnz 1b
7:
    mov rdx, qword ptr [rsp + 48]
    call calltap_first_shim
9:
    pop rsi; .cfi_adjust_cfa_offset -8
    tap_restore
    ret
    .cfi_endproc
.size calltap_hook, . - calltap_hook
