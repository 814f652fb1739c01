//! Sites on stable Rust, without flags of the compiler.

/// Puts a site right here: a NOP of five bytes, and a record of it with a name, which must be made
/// of literals (`concat!` will do).
///
/// [`traced`](crate::traced) puts one at the beginning of a function; in a closure, or for a part
/// of a function, write it by hand:
///
/// ```
/// let double = |n: u64| {
///     calltap::site!("double");
///     n * 2
/// };
/// assert_eq!(double(21), 42);
/// ```
// The record's section is kept by the function's (.reloc) and keeps it in turn, so linkers drop
// both or none. Not `nostack`: a call pushes its return address. Nor `preserves_flags`: while the
// site is being switched, it is `test eax, imm32`.
#[macro_export]
macro_rules! site {
    ($name:expr) => {
        $crate::site!(@record "", $name,)
    };
    // Sites at a function's entry, and at its end: rdi points to the function's frame.
    (@entry $name:expr, $frame:expr) => {
        $crate::site!(@record "\\001", $name, in("rdi") ::core::ptr::from_ref($frame),)
    };
    (@end $name:expr, $frame:expr) => {
        $crate::site!(@record "\\002", $name, in("rdi") ::core::ptr::from_ref($frame),)
    };
    (@record $mark:literal, $name:expr, $($operand:tt)*) => {
        // SAFETY: a NOP. When it is a call, the trampoline preserves every register.
        unsafe {
            ::core::arch::asm!(
                "661: .byte 0x0F, 0x1F, 0x44, 0, 0",
                ".pushsection calltap_sites,\"a\",@progbits,unique,{id}",
                ".balign 8",
                "662: .quad 661b - .",
                concat!(".asciz \"", $mark, $name, "\""),
                ".balign 8",
                ".popsection",
                ".reloc 661b, BFD_RELOC_NONE, 662b",
                id = const line!() * 1000 + column!(),
                $($operand)*
            )
        }
    };
}
