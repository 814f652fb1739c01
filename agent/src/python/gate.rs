//! The gate that the recorder closes when a session ends.

use core::sync::atomic::AtomicU64;

/// 1 while functions that the interpreter calls may use the session's memory. It lies in the
/// agent's own memory, as the session's is unmapped while threads run.
#[unsafe(no_mangle)]
pub static calltap_python_gate: AtomicU64 = AtomicU64::new(0);
