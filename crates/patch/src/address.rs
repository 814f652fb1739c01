//! Addresses in the running process.

use calltap_sites::Svma;

/// An address in the running process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Avma(pub u64);

/// Difference that the loader added to a module's link-time addresses (wraps).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bias(pub u64);

impl Bias {
    /// Returns the run-time address of a link-time address.
    pub fn apply(self, address: Svma) -> Avma {
        Avma(address.0.wrapping_add(self.0))
    }
}
