//! Every register and flag is as the caller left it when the body of a traced function begins,
//! whatever the callback does; and the data that callbacks get about a function for which the
//! compiler made room.

use calltap::{Call, Ops, register};
use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

/// Returns a lock, as the tests share their functions.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// The compared state, in the layout in which the assembly stores it.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Machine {
    /// rax rbx rcx rdx rsi rdi r8 to r15, rbp.
    general: [u64; 15],
    flags: u64,
    mxcsr: u32,
    x87: u16,
    _padding: [u8; 58],
    vectors: [[u64; 8]; 32],
    masks: [u64; 8],
}

global_asm!(
    // As compilers generate it with -fpatchable-function-entry=5.
    ".pushsection .text",
    ".globl recorded_function",
    ".type recorded_function, @function",
    "recorded_function:",
    "661: .byte 0x0F, 0x1F, 0x44, 0, 0",
    "ret",
    ".size recorded_function, . - recorded_function",
    // A function with a site in its body, as the macro makes it.
    ".type body_function, @function",
    "body_function:",
    "662: .byte 0x0F, 0x1F, 0x44, 0, 0",
    "ret",
    ".size body_function, . - body_function",
    ".popsection",
    ".pushsection __patchable_function_entries,\"awR\",@progbits",
    ".balign 8",
    ".quad 661b",
    ".popsection",
    ".pushsection calltap_sites,\"aR\",@progbits",
    ".balign 8",
    ".quad 662b - .",
    ".asciz \"body_function\"",
    ".balign 8",
    ".popsection",
    // through(rdi = function, rsi = Machine in, rdx = Machine out, rcx = vectors: 0 xmm, 1 ymm, 2
    // zmm and masks)
    ".macro each_vector op, wide",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "\\op \\wide\\n",
    ".endr",
    ".endm",
    ".macro load_x n",
    "movups xmm\\n, [rsi + 192 + 64 * \\n]",
    ".endm",
    ".macro load_y n",
    "vmovups ymm\\n, [rsi + 192 + 64 * \\n]",
    ".endm",
    ".macro load_z n",
    "vmovups zmm\\n, [rsi + 192 + 64 * \\n]",
    ".endm",
    ".macro clean",
    "vzeroupper",
    "all16 load_x",
    ".endm",
    ".macro store_x n",
    "movups [rsi + 192 + 64 * \\n], xmm\\n",
    ".endm",
    ".macro store_y n",
    "vmovups [rsi + 192 + 64 * \\n], ymm\\n",
    ".endm",
    ".macro store_z n",
    "vmovups [rsi + 192 + 64 * \\n], zmm\\n",
    ".endm",
    ".macro all16 what",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "\\what \\n",
    ".endr",
    ".endm",
    ".macro all32 what",
    "all16 \\what",
    ".irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "\\what \\n",
    ".endr",
    ".endm",
    ".macro through name, load, store, masks",
    ".globl \\name",
    "\\name:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 24",
    "stmxcsr [rsp + 16]",
    "push rdx",
    "push rdi",
    "\\load",
    ".if \\masks",
    ".irp n, 1,2,3,4,5,6,7",
    "kmovq k\\n, [rsi + 2240 + 8 * \\n]",
    ".endr",
    ".endif",
    "ldmxcsr [rsi + 128]",
    "fldcw [rsi + 132]",
    "mov rax, [rsi]",
    "mov rbx, [rsi + 8]",
    "mov rcx, [rsi + 16]",
    "mov rdx, [rsi + 24]",
    "mov rdi, [rsi + 40]",
    "mov r8, [rsi + 48]",
    "mov r9, [rsi + 56]",
    "mov r10, [rsi + 64]",
    "mov r11, [rsi + 72]",
    "mov r12, [rsi + 80]",
    "mov r13, [rsi + 88]",
    "mov r14, [rsi + 96]",
    "mov r15, [rsi + 104]",
    "mov rbp, [rsi + 112]",
    "push [rsi + 120]",
    "mov rsi, [rsi + 32]",
    "popfq",
    "call [rsp]",
    "pushfq",
    "push rsi",
    "mov rsi, [rsp + 24]", // out
    "mov [rsi], rax",
    "mov [rsi + 8], rbx",
    "mov [rsi + 16], rcx",
    "mov [rsi + 24], rdx",
    "mov [rsi + 40], rdi",
    "mov [rsi + 48], r8",
    "mov [rsi + 56], r9",
    "mov [rsi + 64], r10",
    "mov [rsi + 72], r11",
    "mov [rsi + 80], r12",
    "mov [rsi + 88], r13",
    "mov [rsi + 96], r14",
    "mov [rsi + 104], r15",
    "mov [rsi + 112], rbp",
    "pop [rsi + 32]",
    "pop [rsi + 120]",
    "stmxcsr [rsi + 128]",
    "fnstcw [rsi + 132]",
    "\\store",
    ".if \\masks",
    ".irp n, 1,2,3,4,5,6,7",
    "kmovq [rsi + 2240 + 8 * \\n], k\\n",
    ".endr",
    ".endif",
    "add rsp, 16",
    "ldmxcsr [rsp + 16]",
    "fninit",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".endm",
    ".pushsection .text",
    "through through_x, \"all16 load_x\", \"all16 store_x\", 0",
    "through through_y, \"all16 load_y\", \"all16 store_y\", 0",
    "through through_clean, \"clean\", \"all16 store_y\", 0",
    // The upper halves of the first sixteen are not in use, the other registers are.
    ".macro load_high",
    "clean",
    ".irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "load_z \\n",
    ".endr",
    ".endm",
    "through through_high, \"load_high\", \"all32 store_z\", 1",
    "through through_z, \"all32 load_z\", \"all32 store_z\", 1",
    ".globl spoil_x",
    "spoil_x:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "pcmpeqd xmm\\n, xmm\\n",
    ".endr",
    "ret",
    ".globl spoil_z",
    "spoil_z:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vpternlogd zmm\\n, zmm\\n, zmm\\n, 255",
    ".endr",
    ".irp n, 1,2,3,4,5,6,7",
    "kxnorq k\\n, k\\n, k\\n",
    ".endr",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn recorded_function();
    fn through_x(function: *const (), from: *const Machine, to: *mut Machine);
    fn through_y(function: *const (), from: *const Machine, to: *mut Machine);
    fn through_clean(function: *const (), from: *const Machine, to: *mut Machine);
    fn through_high(function: *const (), from: *const Machine, to: *mut Machine);
    fn through_z(function: *const (), from: *const Machine, to: *mut Machine);
    fn spoil_x();
    fn spoil_z();
}

/// Number of words for a way in which the lower halves of the first sixteen vector registers are
/// set, the upper ones zero.
const CLEAN: usize = 0;
/// Number of words for a way in which the other sixteen are set as well.
const HIGH: usize = 1;

type Through = unsafe extern "C" fn(*const (), *const Machine, *mut Machine);

/// Returns the gate to which the call at the beginning of an enabled function leads.
fn gate(function: *const ()) -> extern "C" fn() {
    // SAFETY: five bytes of code, which may be read; if they are a call, it is one of a gate, which
    // may be called from everywhere: it returns.
    unsafe {
        let code: [u8; 5] = std::ptr::read_volatile(function.cast());
        assert_eq!(code[0], 0xE8, "it is on");
        let distance = i32::from_le_bytes([code[1], code[2], code[3], code[4]]) as isize;
        std::mem::transmute(function.byte_offset(distance + 5))
    }
}

/// Changes every register that a callback may change.
fn spoil() {
    // SAFETY: changes caller-saved registers, as any function may, and preserves the callee-saved
    // ones.
    unsafe {
        if is_x86_feature_detected!("avx512bw") {
            asm!("call {}", sym spoil_z, clobber_abi("C"));
        } else if is_x86_feature_detected!("avx") {
            asm!("vzeroall", clobber_abi("C"));
        }
        asm!("call {}", sym spoil_x, clobber_abi("C"));
        let other: u32 = 0x7F80;
        asm!(
            "ldmxcsr [{0}]", "fninit", "fld1", "fstp st(0)", "fldcw [{1}]",
            "mov rax, -1", "mov rcx, -1", "mov rdx, -1", "mov rsi, -1", "mov rdi, -1",
            "mov r8, -1", "mov r9, -1", "mov r10, -1", "mov r11, -1", "add rax, 1",
            in(reg) &raw const other, in(reg) &0x0F7Fu16, clobber_abi("C"),
        );
    }
}

fn machine(seed: u64, flags: u64) -> Machine {
    let (mut number, even) = (seed | 1, seed.is_multiple_of(2));
    let mut next = || {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        number
    };
    Machine {
        general: std::array::from_fn(|_| next()),
        flags: 0x202 | flags,
        // Rounding mode, and whether tiny numbers become zero.
        mxcsr: 0x1F80 | (0x6000 * u32::from(even)) | (0x8000 * u32::from(seed.is_multiple_of(3))),
        x87: 0x37F & !(0x300 * u16::from(even)),
        _padding: [0; 58],
        vectors: std::array::from_fn(|_| std::array::from_fn(|_| next())),
        masks: std::array::from_fn(|_| next()),
    }
}

/// Calls a function with all registers set, and checks that they are the same afterwards.
fn check(function: *const (), what: &str) {
    let mut ways: Vec<(Through, usize, usize)> = vec![(through_x, 16, 2)];
    if is_x86_feature_detected!("avx") {
        ways.push((through_y, 16, 4));
        // Upper halves are zero and stay so.
        ways.push((through_clean, 16, CLEAN));
    }
    if is_x86_feature_detected!("avx512bw") {
        ways.push((through_z, 32, 8));
        ways.push((through_high, 32, HIGH));
    }
    // CF, PF, AF, ZF, SF, OF: each alone, none, all.
    const FLAGS: [u64; 8] = [0, 1, 4, 16, 64, 128, 2048, 0x8D5];
    for (way, (through, vectors, words)) in ways.into_iter().enumerate() {
        for (seed, flags) in (1..).zip(FLAGS) {
            let mut from = machine(seed, flags);
            let mut words = words;
            if words == CLEAN || words == HIGH {
                from.vectors[..16].iter_mut().for_each(|vector| vector[2..].fill(0));
                // x87 is not in use either, in every second round.
                from.x87 = if seed.is_multiple_of(2) { 0x37F } else { from.x87 };
                words = if words == CLEAN { 4 } else { 8 };
            }
            let mut to = machine(99, 0);
            // SAFETY: sets and stores registers around a call, and preserves the callee-saved ones.
            unsafe { through(function, &raw const from, &raw mut to) };
            let what = format!("{what}, way {way}, flags {flags:#x}");
            assert_eq!(to.general, from.general, "{what}: general registers");
            assert_eq!(to.flags & 0xCD5, from.flags & 0xCD5, "{what}: flags");
            assert_eq!((to.mxcsr, to.x87), (from.mxcsr, from.x87), "{what}: control words");
            for n in 0..vectors {
                assert_eq!(to.vectors[n][..words], from.vectors[n][..words], "{what}: vector register {n}");
            }
            if words == 8 {
                assert_eq!(to.masks[1..], from.masks[1..], "{what}: mask registers");
            }
        }
    }
}

fn body_function() -> *const () {
    let address;
    // SAFETY: an address.
    unsafe { asm!("lea {}, [rip + body_function]", out(reg) address, options(nomem, nostack)) };
    address
}

#[test]
fn every_register_is_preserved() {
    let _alone = alone();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let functions = [("recorded", recorded_function as *const ()), ("body", body_function())];
    for (name, function) in functions {
        check(function, &format!("{name}, untraced"));
    }
    let spoiling = |_: &Call| {
        CALLS.fetch_add(1, Relaxed);
        spoil();
    };
    let make = || register(Ops::new("spoiling", spoiling).filter(["recorded_function", "body_function"]));
    let one = make().expect("registered");
    for (name, function) in functions {
        check(function, &format!("{name}, one ops"));
    }
    let per_check = CALLS.swap(0, Relaxed);
    let more: Vec<_> = (0..4).map(|_| make().expect("registered")).collect();
    for (name, function) in functions {
        check(function, &format!("{name}, five ops"));
    }
    assert_eq!(CALLS.load(Relaxed), 5 * per_check);
    drop((one, more));
    for (name, function) in functions {
        check(function, &format!("{name}, off again"));
    }
    assert_eq!(CALLS.load(Relaxed), 5 * per_check);
}

#[test]
fn a_callback_at_the_entry_sees_arguments_and_parent() {
    let _alone = alone();
    type Told = ([u64; 6], u64, u64, u64);
    static SEEN: Mutex<Vec<Told>> = Mutex::new(Vec::new());
    let ops = Ops::new("arguments", |call: &Call| {
        let arguments = call.arguments().expect("a site at the entry");
        let (parent, stack) = (call.parent_ip(), call.stack_pointer());
        let name = call.function().map(calltap::Function::name);
        assert_eq!(name, Some("recorded_function"));
        SEEN.lock().expect("a lock").push((
            arguments,
            parent.expect("known"),
            stack.expect("known"),
            call.ip(),
        ));
    });
    let registered = register(ops.filter(["recorded_function"])).expect("registered");
    // SAFETY: the function takes anything and does nothing.
    let function: extern "C" fn(u64, u64, u64, u64, u64, u64) =
        unsafe { std::mem::transmute(recorded_function as *const ()) };
    function(1, 2, 3, 4, 5, 6);
    drop(registered);
    let seen = SEEN.lock().expect("a lock");
    let (arguments, parent, stack, ip) = seen[0];
    assert_eq!(seen.len(), 1);
    assert_eq!(arguments, [1, 2, 3, 4, 5, 6]);
    let own = a_callback_at_the_entry_sees_arguments_and_parent as *const () as u64;
    assert!((own..own + 0x2000).contains(&parent), "{parent:#x} is not in the caller at {own:#x}");
    assert_eq!((stack % 16, ip), (8, recorded_function as *const () as u64));
}

#[test]
fn interrupted_thread_in_gate_sees_current_ops() {
    let _alone = alone();
    static CALLS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let make = |n: usize| {
        let count = move |_: &Call| {
            CALLS[n].fetch_add(1, Relaxed);
        };
        register(Ops::new("counting", count).filter(["recorded_function"])).expect("registered")
    };
    let check = |expected: [u64; 2]| assert_eq!([0, 1].map(|n: usize| CALLS[n].swap(0, Relaxed)), expected);
    let first = make(0);
    // Runs like a thread that was interrupted behind the call that is at the site now.
    let late = gate(recorded_function as *const ());
    late();
    check([1, 0]);
    drop(first);
    late();
    check([0, 0]);
    let second = make(1);
    late();
    check([0, 1]);
    drop((make(0), second));
    late();
    check([0, 0]);
}
