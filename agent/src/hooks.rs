//! The data path: what a stub calls when a traced function is entered and when it returns.
//!
//! Assembly, because it must preserve *every* register and flag (callers compiled with -fipa-ra keep values in caller-saved
//! registers, `rax` counts variadic vector arguments, `r10` is a static chain, `r11` a tail call's target), and must
//! use integer registers only (the x87, SSE and AVX state is then never touched, so it need not be saved).
//!
//! How the stack moves in a call-through (S = the slot of the caller's return address R0):
//!
//! ```text
//! site:     jmp stub             [S] = R0                    rsp = S
//! stub:     call entry           [S-8] = stub+5              rsp = S-8
//!   entry:  mirror[S] = R0; [S] = stub+5; rsp = S; ret    -> stub+5, rsp = S+8
//! stub+5:   call body            [S] = stub+11               the body sees the stack as compiled, arguments included
//!   body:   ret                                           -> stub+11, rsp = S+8
//! stub+11:  call exit            [S] = stub+16               rsp = S
//!   exit:   [S-8] = stub+16; [S] = mirror[S]; ret         -> stub+16, rsp = S
//! stub+16:  ret                                           -> R0, predicted: every call had its ret
//! ```
//!
//! After a prologue (mcount) the site *calls* its stub, `entry` finds S at 8(%rbp) and puts stub+11 there itself.
//!
//! A function entered by a jump finds a stub's address in S (its caller's stub+11). Its entry is recorded, the slot is
//! left alone, and one return closes both calls.
//!
//! Unwind tables: while a hook runs, the frame below is the *caller of the traced function*. Its return address is
//! in [S] until the hook overwrites that, then in mirror[S]; `entry` writes the mirror before S, so both are right at the
//! instruction that changes the rule.

use crate::{mirror, record, state};
use calltap_abi::event::code;
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, Control, stub};
use core::arch::global_asm;
use core::mem::offset_of;

// r11 = this thread's state, or jump. rax is free. (See `word`.)
#[cfg(not(feature = "placed"))]
global_asm!(
    ".macro tap_state missing",
    "mov r11, qword ptr [rip + calltap_thread@gottpoff]",
    "mov r11, qword ptr fs:[r11]",
    "test r11, r11",
    "jz \\missing",
    ".endm",
);
#[cfg(feature = "placed")]
global_asm!(
    ".macro tap_state missing",
    "mov r11, qword ptr fs:[{sysinfo}]",
    "lea rax, [r11 - 1]",
    "cmp rax, {states} - 1",
    "ja \\missing",
    "shl r11, {shift}",
    "add r11, qword ptr [rip + {base}]",
    "mov rax, qword ptr [rip + {owner_at}]",
    "mov eax, dword ptr fs:[rax]",
    "cmp eax, dword ptr [r11 + {owner}]",
    "jne \\missing",
    ".endm",
    sysinfo = const calltap_abi::SYSINFO,
    states = const calltap_abi::THREAD_MAX,
    shift = const size_of::<state::Thread>().ilog2(),
    base = sym crate::word::STATES,
    owner_at = sym crate::word::OWNER_AT,
    owner = const offset_of!(state::Thread, owner),
);

global_asm!(
    // The frame a hook builds:      0 flags  8 r11  16 rdx  24 rcx  32 rax  40 return into the stub  48 = S (call-through)
    ".macro tap_save",
    "push rax", ".cfi_adjust_cfa_offset 8",
    "push rcx", ".cfi_adjust_cfa_offset 8",
    "push rdx", ".cfi_adjust_cfa_offset 8",
    "push r11", ".cfi_adjust_cfa_offset 8",
    "lahf",
    "seto al",
    "push rax", ".cfi_adjust_cfa_offset 8",
    ".endm",
    ".macro tap_restore",
    "pop rax", ".cfi_adjust_cfa_offset -8",
    "add al, 127", // sets OF again if it was set
    "sahf",
    "pop r11", ".cfi_adjust_cfa_offset -8",
    "pop rdx", ".cfi_adjust_cfa_offset -8",
    "pop rcx", ".cfi_adjust_cfa_offset -8",
    "pop rax", ".cfi_adjust_cfa_offset -8",
    ".endm",

    // The address of S, by kind of site.
    ".macro tap_slot reg mcount",
    ".if \\mcount", "lea \\reg, [rbp + 8]", ".else", "lea \\reg, [rsp + 48]", ".endif",
    ".endm",
    ".macro tap_load_slot reg mcount",
    ".if \\mcount", "mov \\reg, qword ptr [rbp + 8]", ".else", "mov \\reg, qword ptr [rsp + 48]", ".endif",
    ".endm",

    // rdx = the return address in the caller: in S, or (2: entered by a jump) in the mirror.
    ".macro tap_load_parent mcount parent",
    ".if \\parent == 1",
    "tap_load_slot rdx \\mcount",
    ".else",
    "tap_slot rdx \\mcount",
    "btc rdx, {mirror_bit}",
    "mov rdx, qword ptr [rdx]",
    ".endif",
    ".endm",

    // ecx = low half of the event: return address in the stub, tag, and the difference to the code wanted.
    ".macro tap_code mcount fix",
    ".if \\mcount", "lea ecx, [rbp + 8]", ".else", "lea ecx, [rsp + 48]", ".endif",
    "shl ecx, 22",
    "xor ecx, dword ptr [rsp + 40]",
    ".if \\fix", "xor ecx, \\fix", ".endif",
    ".endm",

    // edx:eax = the clock, in whatever way the clock needs. Changes ecx for `counter`, so it comes before the code.
    ".macro tap_clock clock",
    ".if \\clock == 0", "rdtsc", ".endif",
    ".if \\clock == 2",
    "mov rax, qword ptr [rip + {control}]",
    "mov rax, qword ptr [rax + {tick}]",
    "mov rdx, rax", "shr rdx, 32",
    ".endif",
    ".if \\clock == 3",
    "mov rdx, qword ptr [rip + {control}]",
    "mov eax, 1",
    "lock xadd qword ptr [rdx + {counter}], rax",
    "mov rdx, rax", "shr rdx, 32",
    ".endif",
    ".endm",

    // Stores an event for the thread in r11. Falls through when done; else jumps to `slow` with rcx = what was reserved.
    // The epoch is compared after the reservation: only then is the order of this event among the thread's others fixed, and a
    // match proves that the last EPOCH word in front of it is this event's own.
    ".macro tap_store clock mcount fix parent slow",
    ".if \\clock == 1",
    "771:",
    ".if \\parent", "mov ecx, 12", ".else", "mov ecx, 4", ".endif",
    "xadd qword ptr [r11], rcx",
    "lea edx, [rcx - {data}]",
    "movzx edx, dx",
    "cmp edx, {room}",
    "jae \\slow",
    ".if \\parent", // three words inside one block: what crosses a block's time words is left to the slow path
    "lea edx, [rcx - 8]",
    "and edx, 63",
    "cmp edx, 44",
    "ja \\slow",
    "tap_load_parent \\mcount \\parent",
    "mov eax, edx",
    "shl eax, 5",
    "or eax, {parent_code}",
    "mov dword ptr [rcx + 4], eax",
    "shr rdx, 27",
    "shl edx, 5",
    "or edx, {parent_high_code}",
    "mov dword ptr [rcx + 8], edx",
    ".else",
    "test cl, 0x38",
    "jz 772f",
    ".endif",
    "mov rdx, rcx",
    "tap_code \\mcount \\fix",
    "mov dword ptr [rdx], ecx",
    ".ifeq \\parent",
    "jmp 774f",
    "772:", // the first two words of a block take the time
    "rdtsc",
    "test cl, 4",
    "jnz 773f",
    "cmp eax, 1",
    "adc eax, 0",
    "mov dword ptr [rcx], eax",
    "jmp 771b",
    "773:",
    "cmp eax, dword ptr [rcx - 4]", // the low half wrapped in between
    "sbb edx, 0",
    "or edx, 0x80000000",
    "mov dword ptr [rcx], edx",
    "jmp 771b",
    "774:",
    ".endif",
    ".else",
    "tap_clock \\clock",
    "tap_code \\mcount \\fix",
    "shl rax, 32",
    "or rax, rcx",
    ".if \\parent", "mov ecx, 16", ".else", "mov ecx, 8", ".endif",
    "xadd qword ptr [r11], rcx",
    "cmp edx, dword ptr [r11 + {epoch}]",
    "jne \\slow",
    "lea edx, [rcx - {data}]",
    "movzx edx, dx",
    "cmp edx, {room}",
    "jae \\slow",
    ".if \\parent",
    "tap_load_parent \\mcount \\parent",
    "shl rdx, 5",
    "or rdx, {parent_code}",
    "mov qword ptr [rcx + 8], rdx",
    ".endif",
    "mov qword ptr [rcx], rax",
    ".endif",
    ".endm",

    // The slow way: eax = low half of the event, rdx = caller, rcx = what was reserved. al = 1 if it was recorded.
    ".macro tap_slow mcount fix",
    "mov r11, rcx",
    "tap_code \\mcount \\fix",
    "mov eax, ecx",
    "mov rcx, r11",
    "call calltap_record_shim",
    "test al, al",
    ".endm",

    // function_graph, with or without caller.
    ".macro tap_entry name clock mcount parent fix tailfix",
    ".balign 64",
    "\\name:",
    ".cfi_startproc",
    ".if \\mcount == 0", ".cfi_def_cfa rsp, 16", ".endif", // the frame below is the caller of the traced function
    "tap_save",
    "tap_load_slot rcx \\mcount",
    "mov rax, rcx",
    "sub rax, qword ptr [rip + {stubs}]",
    "cmp rax, {region}",
    "jb 5f",
    "tap_slot rdx \\mcount",
    "shr rdx, {granule}",
    "lea r11, [rip + calltap_mirror]",
    "cmp byte ptr [r11 + rdx], 1",
    "jne 6f",
    "1:",
    "mov ecx, 0",
    "tap_state 7f",
    "tap_store \\clock \\mcount \\fix \\parent 7f",
    "3:", // recorded: take the return address aside
    "tap_load_slot rcx \\mcount",
    "tap_slot rdx \\mcount",
    "btc rdx, {mirror_bit}",
    "mov qword ptr [rdx], rcx",
    "mov rax, qword ptr [rsp + 40]",
    ".cfi_remember_state",
    ".if \\mcount",
    "add rax, {to_landing}",
    "mov qword ptr [rbp + 8], rax",
    "tap_restore",
    "ret",
    ".else",
    "mov qword ptr [rsp + 48], rax",
    ".cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27", // RA at (CFA - 8) ^ 1<<44
    "tap_restore",
    "lea rsp, [rsp + 8]", ".cfi_adjust_cfa_offset -8",
    "ret",
    ".endif",
    ".cfi_restore_state",
    "5:", // entered by a jump
    "mov ecx, 0",
    "tap_state 8f",
    ".if \\parent", "tap_store \\clock \\mcount \\tailfix 2 8f", ".else", "tap_store \\clock \\mcount \\tailfix 0 8f", ".endif",
    "9:", // into the body, the return address left alone
    ".ifeq \\mcount", "add qword ptr [rsp + 40], {to_tail}", ".endif",
    ".cfi_remember_state",
    "tap_restore",
    "ret",
    ".cfi_restore_state",
    "6:", // no mirror here yet
    "tap_code \\mcount \\fix",
    "mov eax, ecx",
    "tap_slot rdx \\mcount",
    "call calltap_mirror_shim",
    "test al, al",
    "jnz 1b",
    "jmp 9b",
    "7:",
    "tap_load_slot rdx \\mcount",
    "tap_slow \\mcount \\fix",
    "jnz 3b",
    "jmp 9b",
    "8:",
    "tap_load_parent \\mcount 2",
    "tap_slow \\mcount \\tailfix",
    "jmp 9b",
    ".cfi_endproc",
    ".endm",

    // function: caller, no return.
    ".macro tap_call name clock mcount fix",
    ".balign 64",
    "\\name:",
    ".cfi_startproc",
    ".if \\mcount == 0", ".cfi_def_cfa rsp, 16", ".endif",
    "tap_save",
    "tap_load_slot rcx \\mcount",
    "mov rax, rcx",
    "sub rax, qword ptr [rip + {stubs}]",
    "cmp rax, {region}",
    "mov ecx, 0",
    "jb 5f",
    "tap_state 7f",
    "tap_store \\clock \\mcount \\fix 1 7f",
    "9:",
    ".cfi_remember_state",
    "tap_restore",
    "ret",
    ".cfi_restore_state",
    "7:",
    "tap_load_slot rdx \\mcount",
    "tap_slow \\mcount \\fix",
    "jmp 9b",
    "5:", // entered by a jump from a function of the graph tracer
    "tap_state 8f",
    "tap_store \\clock \\mcount \\fix 2 8f",
    "jmp 9b",
    "8:",
    "tap_load_parent \\mcount 2",
    "tap_slow \\mcount \\fix",
    "jmp 9b",
    ".cfi_endproc",
    ".endm",

    // The return. Its call pushed stub+16 into S; a word is left free below for it.
    ".macro tap_exit name clock",
    ".balign 64",
    "\\name:",
    ".cfi_startproc",
    ".cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27", // RA at (CFA - 8) ^ 1<<44
    "lea rsp, [rsp - 8]", ".cfi_adjust_cfa_offset 8",
    "tap_save",
    "mov rax, qword ptr [rsp + 48]",
    "mov qword ptr [rsp + 40], rax",
    "mov ecx, 0",
    "tap_state 7f",
    "tap_store \\clock 0 0 0 7f",
    "3:",
    "lea rdx, [rsp + 48]",
    "btc rdx, {mirror_bit}",
    "mov rcx, qword ptr [rdx]",
    "mov qword ptr [rsp + 48], rcx",
    ".cfi_offset 16, -8",
    "tap_restore",
    "ret",
    "7:",
    ".cfi_adjust_cfa_offset 40",
    ".cfi_escape 0x10, 0x10, 12, 0x38, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27",
    "tap_slow 0 0",
    "jmp 3b",
    ".cfi_endproc",
    ".endm",

    // Rust may touch any caller-saved register and xmm0..15 (legacy SSE, which leaves the upper halves of ymm and zmm alone).
    ".macro tap_shim name function",
    ".balign 16",
    "\\name:",
    ".cfi_startproc",
    "push rbp", ".cfi_def_cfa_offset 16", ".cfi_offset rbp, -16",
    "mov rbp, rsp", ".cfi_def_cfa_register rbp",
    "push rdi", "push rsi", "push r8", "push r9", "push r10",
    "pushfq",
    "cld",
    "and rsp, -16",
    "sub rsp, 256",
    "movups [rsp], xmm0", "movups [rsp+16], xmm1", "movups [rsp+32], xmm2", "movups [rsp+48], xmm3",
    "movups [rsp+64], xmm4", "movups [rsp+80], xmm5", "movups [rsp+96], xmm6", "movups [rsp+112], xmm7",
    "movups [rsp+128], xmm8", "movups [rsp+144], xmm9", "movups [rsp+160], xmm10", "movups [rsp+176], xmm11",
    "movups [rsp+192], xmm12", "movups [rsp+208], xmm13", "movups [rsp+224], xmm14", "movups [rsp+240], xmm15",
    "mov edi, eax",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call \\function",
    "movups xmm0, [rsp]", "movups xmm1, [rsp+16]", "movups xmm2, [rsp+32]", "movups xmm3, [rsp+48]",
    "movups xmm4, [rsp+64]", "movups xmm5, [rsp+80]", "movups xmm6, [rsp+96]", "movups xmm7, [rsp+112]",
    "movups xmm8, [rsp+128]", "movups xmm9, [rsp+144]", "movups xmm10, [rsp+160]", "movups xmm11, [rsp+176]",
    "movups xmm12, [rsp+192]", "movups xmm13, [rsp+208]", "movups xmm14, [rsp+224]", "movups xmm15, [rsp+240]",
    "lea rsp, [rbp - 48]",
    "popfq",
    "pop r10", "pop r9", "pop r8", "pop rsi", "pop rdi",
    "pop rbp", ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".endm",

    ".text",
    ".globl calltap_hook",
    ".type calltap_hook, @function",
    "calltap_hook:",
    "tap_shim calltap_record_shim {record_slow}",
    "tap_shim calltap_mirror_shim {mirror_slow}",

    // Offsets of return addresses in the stub are 5 (entry), 7 (function), 6 (after a prologue), 16 (exit); the last numbers turn
    // them into the event codes ENTRY 5, CALL 6, ENTRY_FROM 7, TAIL_ENTRY 17, TAIL_ENTRY_FROM 18.
    ".macro tap_hooks clock",
    "tap_entry calltap_entry_\\clock \\clock 0 0 0 20",
    "tap_call calltap_call_\\clock \\clock 0 1",
    "tap_entry calltap_entry_from_\\clock \\clock 0 1 2 23",
    "tap_exit calltap_exit_\\clock \\clock",
    "tap_entry calltap_mcount_entry_\\clock \\clock 1 0 3 23",
    "tap_call calltap_mcount_call_\\clock \\clock 1 0",
    "tap_entry calltap_mcount_entry_from_\\clock \\clock 1 1 1 20",
    ".endm",
    "tap_hooks 0",
    "tap_hooks 1",
    "tap_hooks 2",
    "tap_hooks 3",
    ".size calltap_hook, . - calltap_hook",

    // Offsets from the table itself, so that nothing here needs relocation.
    ".macro tap_row clock",
    ".long calltap_entry_\\clock - calltap_hook_table, calltap_call_\\clock - calltap_hook_table",
    ".long calltap_entry_from_\\clock - calltap_hook_table, calltap_exit_\\clock - calltap_hook_table",
    ".long calltap_mcount_entry_\\clock - calltap_hook_table, calltap_mcount_call_\\clock - calltap_hook_table",
    ".long calltap_mcount_entry_from_\\clock - calltap_hook_table",
    ".endm",
    ".section .rodata.calltap_hook_table,\"a\"",
    ".balign 4",
    ".globl calltap_hook_table",
    ".hidden calltap_hook_table",
    "calltap_hook_table:",
    "tap_row 0", "tap_row 1", "tap_row 2", "tap_row 3",

    // The stub region: twice its size, so that an aligned half can be chosen. One rule covers every stub, by the offset of the pc:
    //   at 5 and 11: rsp = S+8, return address in mirror[S];  elsewhere: rsp = S (or the site's own call), return address in [rsp].
    // CFA = rsp + 1 keeps it different from the CFA of the body's frame, which libgcc's phase 2 compares.
    ".section .calltap.stubs,\"ax\",@nobits",
    ".globl calltap_stub",
    ".type calltap_stub, @function",
    "calltap_stub:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 1",
    // flag = ((rip & 31) == 5) | ((rip & 31) == 11)
    // rsp = rsp + 8 - 8*flag
    ".cfi_escape 0x16, 0x07, 16, 0x77, 8, 0x80, 0, 0x4f, 0x1a, 0x12, 0x35, 0x29, 0x16, 0x3b, 0x29, 0x21, 0x33, 0x24, 0x1c",
    // RA at flag ? (rsp - 8) ^ 1<<44 : rsp
    ".cfi_escape 0x10, 0x10, 31, 0x80, 0, 0x4f, 0x1a, 0x12, 0x35, 0x29, 0x16, 0x3b, 0x29, 0x21, 0x28, 5, 0, 0x77, 0, 0x2f, 12, 0, 0x77, 0x78, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27",
    ".skip 2 * {region}",
    ".cfi_endproc",
    ".size calltap_stub, . - calltap_stub",
    ".section .calltap.mirror,\"a\",@nobits",
    ".globl calltap_mirror",
    ".hidden calltap_mirror",
    "calltap_mirror: .skip {mirror_size}",
    ".text",

    control = sym state::CONTROL,
    stubs = sym state::STUBS,
    record_slow = sym record::record_slow,
    mirror_slow = sym mirror::mirror_slow,
    region = const stub::REGION,
    granule = const stub::MIRROR_GRANULE,
    mirror_bit = const stub::MIRROR_BIT,
    mirror_size = const mirror::GRANULES,
    data = const CHUNK_DATA,
    room = const CHUNK_LIMIT - CHUNK_DATA,
    epoch = const offset_of!(state::Thread, epoch),
    parent_code = const code::PARENT,
    parent_high_code = const code::PARENT_HIGH,
    tick = const offset_of!(Control, tick),
    counter = const offset_of!(Control, counter),
    to_landing = const stub::LANDING - stub::AFTER_MCOUNT,
    to_tail = const stub::TAIL - stub::AFTER_ENTRY,
);

unsafe extern "C" {
    static calltap_hook_table: [[i32; stub::HOOK_COUNT]; 4];
    static calltap_stub: u8;
}

/// The address of a hook for a clock.
pub fn hook(clock: usize, index: usize) -> u64 {
    // SAFETY: the table above, constant, with 4 rows of HOOK_COUNT offsets from its own address; the index expressions check bounds.
    let table = unsafe { &calltap_hook_table };
    let row = &table[clock & 3];
    let offset = if index < stub::HOOK_COUNT { row[index] } else { 0 };
    (core::ptr::from_ref(table) as u64).wrapping_add_signed(i64::from(offset))
}

/// The aligned stub region inside the reserved one.
pub fn stub_region() -> usize {
    (&raw const calltap_stub as usize).next_multiple_of(stub::REGION)
}
