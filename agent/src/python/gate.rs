//! What the recorder closes when a session is over.

use core::sync::atomic::AtomicU64;

/// 1 while what the interpreter calls may touch the session's memory. It lies in the agent's own memory, as the session's is unmapped while threads run.
#[unsafe(no_mangle)]
pub static calltap_python_gate: AtomicU64 = AtomicU64::new(0);
