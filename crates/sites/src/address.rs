//! Link-time addresses.

use serde::{Deserialize, Serialize};

/// An address as the ELF file states it (stated virtual memory address), before the loader adds
/// its bias.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Svma(pub u64);
