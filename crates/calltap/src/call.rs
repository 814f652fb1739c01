//! The data of a call for callbacks.

use crate::table::{self, Function};
use crate::trampoline::{Kind, Regs};

/// A call of a traced function, as its callbacks get it: at the function's entry, before its body.
#[derive(Clone, Copy)]
pub struct Call<'a>(pub(crate) &'a Regs);

impl Call<'_> {
    /// Returns the address of the site, the five bytes at the function's entry. [`crate::function`]
    /// finds the function by it.
    pub fn ip(&self) -> u64 {
        self.0.ip
    }

    /// Returns the function's return address. `None` in a function with the
    /// [`traced`](crate::traced) attribute, as its site is in its body.
    pub fn parent_ip(&self) -> Option<u64> {
        Some(self.0.parent_ip).filter(|ip| *ip != 0)
    }

    /// Returns the stack pointer at the function's entry: the return address lies there, and stack
    /// arguments from `+8` on. `None` where `parent_ip` is.
    pub fn stack_pointer(&self) -> Option<u64> {
        Some(self.0.sp).filter(|sp| *sp != 0)
    }

    /// Returns the registers that pass integer arguments: rdi, rsi, rdx, rcx, r8, r9. `None` where
    /// the site is not at the function's very entry (the [`traced`](crate::traced) attribute; `-pg`
    /// without `-mfentry`): arguments may have moved by then.
    pub fn arguments(&self) -> Option<[u64; 6]> {
        (self.0.kind == Kind::Entry as u64).then_some(self.0.arguments)
    }

    /// Returns the bits of the ops that are interested in this function, see
    /// [`Registration::mask`](crate::Registration::mask).
    pub fn mask(&self) -> u32 {
        self.0.mask as u32
    }

    /// Returns a pointer to the `struct calltap_regs` of C, valid as long as the callback runs.
    pub fn as_ptr(&self) -> *const std::ffi::c_void {
        std::ptr::from_ref(self.0).cast()
    }

    /// Returns the function that was called; `None` if its module was unloaded, or its address is
    /// not known.
    pub fn function(&self) -> Option<&'static Function> {
        table::find(self.0.ip + 5).map(|site| site.function())
    }
}
