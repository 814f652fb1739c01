# The trampoline, to which enabled sites lead while functions of the program itself are called. The
# structures are defined in trampoline.rs.

.section .tbss.calltap_local,"awT",@nobits
.balign 16
.globl calltap_local
.hidden calltap_local
.type calltap_local, @object
.size calltap_local, 32
    calltap_local: .skip 32

# r10 = this thread's line of counters. Thread pointers are a stack apart, an odd number of pages.
.macro calltap_line
    mov r10, qword ptr fs:[0]
    shr r10, 12
    and r10d, {lines} - 1
    shl r10d, 6
    lea r11, [rip + {readers}]
    add r10, r11
.endm

.macro calltap_clear_header
    xor eax, eax
.irp at, 512, 520, 528, 536, 544, 552, 560, 568
    mov qword ptr [rsp + \at], rax
.endr
.endm

.section .text.calltap_trampoline,"ax",@progbits
.balign 64
.globl calltap_trampoline
.hidden calltap_trampoline
.type calltap_trampoline, @function
calltap_trampoline:
.cfi_startproc
.cfi_def_cfa rsp, 16 # [rsp] = cell, [rsp + 8] = return to the site
    endbr64
    push rax
.cfi_def_cfa_offset 24
    mov rax, qword ptr [rsp + 8]
    mov qword ptr [rsp + 8], rbp # replaces the cell, so that the chain of frame pointers stays whole
    lea rbp, [rsp + 8]
.cfi_def_cfa rbp, 16
.cfi_offset rbp, -16
# The frame from here on: rbp-8 rax, -16 rbx, -24 flags, -32 r11, -40 r10, -48 counter,
# -136 to -48 Regs, -144 way, -140 and -138 x87.
    push rbx
.cfi_offset rbx, -32
    mov rbx, rax
    lahf
    seto al
    push rax
    push r11
    push r10
    mov r11, qword ptr [rip + calltap_local@gottpoff]
    cmp dword ptr fs:[r11], 0
    jne 29f
40:
    mov dword ptr fs:[r11], {in_callback}
    mov qword ptr fs:[r11 + {stack}], rsp
    cld
    calltap_line
    mov rax, qword ptr fs:[0]
    cmp rax, qword ptr [r10 + {owner}]
    je 42f
    mov r11, rax
    xor eax, eax
    lock cmpxchg qword ptr [r10 + {owner}], r11
    je 42f
    lea r10, [rip + {shared}]
    mov r11, qword ptr [rip + {phase}]
    lea r10, [r10 + 8 * r11]
    lock inc qword ptr [r10]
    or r10, 1 # marks the shared line
    jmp 43f
42:
    mov r11, qword ptr [rip + {phase}]
    lea r10, [r10 + 8 * r11]
    mov eax, 1
# From here on nothing that this thread finds is freed. The locked instruction orders later reads
# behind it.
    xchg qword ptr [r10], rax
43:
    push r10
    mov r11, qword ptr [rip + calltap_local@gottpoff]
    mov qword ptr fs:[r11 + {counter}], r10
    push r9
    push r8
    push rcx
    push rdx
    push rsi
    push rdi
    sub rsp, 48
    mov rax, qword ptr [rbp + 8]
    mov r8, qword ptr [rbx + {kind}]
    lea r9, [rax - 5]
    mov qword ptr [rbp - 136 + {ip}], r9
    mov qword ptr [rbp - 136 + {regs_kind}], r8
    lea rcx, [rbp + 16]
    cmp r8d, {after_prologue}
    jb 21f
    ja 22f
    mov rcx, qword ptr [rbp]
    add rcx, 8
21:
    mov rdx, qword ptr [rcx]
    lea r9, [rip + calltap_return]
    cmp rdx, r9
    je 48f
23:
    mov qword ptr [rbp - 136 + {sp}], rcx
    mov qword ptr [rbp - 136 + {parent_ip}], rdx
# Vector registers. The parts in use decide how they are saved: `way` is their mask; -1: by XSAVE.
    mov r8d, dword ptr [rip + {fast}]
    test r8d, r8d
    jz 24f
    mov ecx, 1
    xgetbv
    and eax, dword ptr [rip + {features}]
    not r8d
    test eax, r8d
    jnz 24f
    test eax, {x87}
    jz 37f
    fnstsw word ptr [rbp - 140]
    fnstcw word ptr [rbp - 138]
    test word ptr [rbp - 140], 0x3800 # x87's stack should be empty here
    jnz 24f
37:
    mov dword ptr [rbp - 144], eax
    sub rsp, {fast_area}
    and rsp, -64
.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps xmmword ptr [rsp + 16 * \n], xmm\n
.endr
    stmxcsr dword ptr [rsp + 256]
    test eax, {upper}
    jz 25f
.irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqa64 zmmword ptr [rsp + 320 + 64 * (\n - 16)], zmm\n
.endr
.irp n, 0,1,2,3,4,5,6,7
    kmovq qword ptr [rsp + 1344 + 8 * \n], k\n
.endr
25:
    mov rcx, qword ptr [rbx]
    test rcx, rcx
    jz 28f # no ops want the site any more
    mov rax, qword ptr [rcx + {mask}]
    mov qword ptr [rbp - 136 + {regs_mask}], rax
    mov rbx, qword ptr [rcx + {end}]
    jmp qword ptr [rcx + {enter}]
.irp left, 33,32,31,30,29,28,27,26,25,24,23,22,21,20,19,18,17,16,15,14,13,12,11,10,9,8,7,6,5,4,3,2,1
.Lcalltap_enter_\left:
    endbr64
    mov rdi, qword ptr [rbx - 16 * \left + 8]
    lea rsi, [rbp - 136]
    call qword ptr [rbx - 16 * \left]
.endr
28:
    mov r8d, dword ptr [rbp - 144]
    test r8d, r8d
    js 31f
    mov ecx, 1
    xgetbv
    and eax, dword ptr [rip + {features}]
    or r8d, {sse}
    not r8d
    and eax, r8d
    jnz 33f
34:
    test dword ptr [rbp - 144], {x87}
    jz 38f
    fnstsw ax
    fnstcw word ptr [rsp + 264]
    cmp ax, word ptr [rbp - 140]
    jne 39f
    mov ax, word ptr [rsp + 264]
    cmp ax, word ptr [rbp - 138]
    jne 39f
38:
    stmxcsr dword ptr [rsp + 260]
    mov eax, dword ptr [rsp + 256]
    cmp eax, dword ptr [rsp + 260]
    je 35f
    ldmxcsr dword ptr [rsp + 256]
35:
.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps xmm\n, xmmword ptr [rsp + 16 * \n]
.endr
    test dword ptr [rbp - 144], {upper}
    jz 32f
.irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqa64 zmm\n, zmmword ptr [rsp + 320 + 64 * (\n - 16)]
.endr
.irp n, 0,1,2,3,4,5,6,7
    kmovq k\n, qword ptr [rsp + 1344 + 8 * \n]
.endr
32:
    mov r10, qword ptr [rbp - 48]
    test r10, 1
    jnz 44f
    mov qword ptr [r10], 0
45:
    mov r11, qword ptr [rip + calltap_local@gottpoff]
    mov dword ptr fs:[r11], 0
    lea rsp, [rbp - 96]
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop r8
    pop r9
    pop r10
30:
    pop r10
    pop r11
    pop rax
    add al, 127 # sets OF again if it was set
    sahf
    pop rbx
    pop rax
.cfi_remember_state
    pop rbp
.cfi_def_cfa rsp, 8
    ret
.cfi_restore_state
44:
    lock dec qword ptr [r10 - 1]
    jmp 45b
48: # entered by a jump out of a call whose return is watched: its record has the true parent
    movabs r9, {records}
    mov rdx, qword ptr [r9 + rcx*4]
    jmp 23b
47: # at a return
    lea rcx, [rbp + 8]
    mov rdx, qword ptr [rcx]
    jmp 23b
22: # in the body the slot of the return address is not known
    cmp r8d, {kind_return}
    je 47b
    xor ecx, ecx
    xor edx, edx
    jmp 23b
24: # something else is in use
    mov dword ptr [rbp - 144], -1
    sub rsp, qword ptr [rip + {area}]
    and rsp, -64
    calltap_clear_header # XSAVE does not write all of the header
    mov eax, dword ptr [rip + {features}]
    mov edx, dword ptr [rip + {features} + 4]
    cmp byte ptr [rip + {compact}], 0
    je 36f
    xsavec64 [rsp]
    jmp 25b
36:
    xsave64 [rsp]
    jmp 25b
31:
    mov eax, dword ptr [rip + {features}]
    mov edx, dword ptr [rip + {features} + 4]
    xrstor64 [rsp]
    jmp 32b
33: # initializes the parts that were not in use before, and are now
    mov r8d, dword ptr [rsp + 256]
    sub rsp, 576
    mov edx, eax
    calltap_clear_header
    mov eax, edx
    xor edx, edx
    mov dword ptr [rsp + 24], r8d # mxcsr is loaded with AVX
    xrstor64 [rsp]
    add rsp, 576
    jmp 34b
39: # the callback has used x87: restores control and status words, and empties its stack
    fnstenv [rsp + 288]
    mov ax, word ptr [rbp - 138]
    mov word ptr [rsp + 288], ax
    mov ax, word ptr [rbp - 140]
    mov word ptr [rsp + 292], ax
    mov word ptr [rsp + 296], 0xFFFF
    fldenv [rsp + 288]
    jmp 38b
29: # recursion, or the callback was left
    cmp dword ptr fs:[r11], {in_callback}
    jne 41f
    cmp rsp, qword ptr fs:[r11 + {stack}]
    jb 41f
# A signal handler on its own stack, which may lie above, may have interrupted the callback.
    push rcx
    push rdx
    push rsi
    push rdi
    sub rsp, 24
    xor edi, edi
    mov rsi, rsp
    mov eax, {sigaltstack}
    syscall
    mov ecx, dword ptr [rsp + 8]
    add rsp, 24
    pop rdi
    pop rsi
    test eax, eax
    mov eax, ecx
    pop rdx
    pop rcx
    jnz 41f
    test eax, {on_stack}
    jnz 41f
    calltap_line
    mov rax, qword ptr fs:[0]
    cmp rax, qword ptr [r10 + {owner}]
    mov r11, qword ptr [rip + calltap_local@gottpoff]
    jne 46f
    mov qword ptr [r10], 0
    mov qword ptr [r10 + 8], 0
    jmp 40b
46:
    mov r10, qword ptr fs:[r11 + {counter}]
    test r10, r10
    jz 40b
    lock dec qword ptr [r10 - 1]
    jmp 40b
41:
    calltap_line
    lock inc qword ptr [r10 + {recursions}]
    jmp 30b
.cfi_endproc
.size calltap_trampoline, . - calltap_trampoline

# Return address of watched calls: rsp = S + 8, if S is the slot that their return address was in.
# The record of S has the true one, and the cell for returns. The frame's CFA is S + 9, as unwinders
# take a frame with the CFA of its caller for the same frame. rsp = CFA - 1; the return address is
# at (CFA - 9) * 4 + records.
.section .text.calltap_return,"ax",@progbits
.balign 64
.type calltap_return_frame, @function
calltap_return_frame:
.cfi_startproc
.cfi_def_cfa rsp, 1
.cfi_escape 0x16, 0x07, 2, 0x31, 0x1c
.cfi_escape 0x10, 0x10, 14, 0x39, 0x1c, 0x32, 0x24, 0x0e, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0xfe, 0xff, 0x22
    nop # unwinders look up the address before the return address
.globl calltap_return
.hidden calltap_return
calltap_return:
    lea rsp, [rsp - 16]
.cfi_def_cfa_offset 17
    push rax
.cfi_def_cfa_offset 25
    push rcx
.cfi_def_cfa_offset 33
    lea rax, [rsp + 24]
    movabs rcx, {records}
    lea rax, [rcx + rax*4]
    mov rcx, qword ptr [rax]
    mov qword ptr [rsp + 24], rcx
    mov rcx, qword ptr [rax + 8]
    mov qword ptr [rsp + 16], rcx
    pop rcx
.cfi_def_cfa_offset 25
    pop rax
.cfi_def_cfa_offset 17
    jmp calltap_trampoline # [rsp] = cell, [rsp + 8] = the true return address
.cfi_endproc
.size calltap_return_frame, . - calltap_return_frame

.section .rodata.calltap_enter,"a",@progbits
.balign 4
.globl calltap_enter
.hidden calltap_enter
calltap_enter:
.irp left, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33
.long .Lcalltap_enter_\left - calltap_trampoline
.endr
.text
