//! CPython in a process: whether its version is one that the agent knows, and where it keeps the current thread state.

use calltap_patch::Bias;
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs::File;

/// Offset of the address of the current thread state in `_PyRuntime`.
const CURRENT_STATE: u64 = 576;
/// The version, without the micro number, whose structures the agent knows.
const KNOWN: u64 = 0x030b;
/// What `Py_Version` ends with in a final release.
const FINAL: u64 = 0xf0;

/// Why Python functions of an interpreter are not traced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// Its file cannot be read.
    #[error("its file cannot be read")]
    Unreadable,
    /// It has no symbol that says its version.
    #[error("it is older than CPython 3.11, the only version whose functions are traced")]
    Older,
    /// It is another version.
    #[error("it is CPython {major}.{minor}.{micro}; functions are traced of final releases of 3.11")]
    Version {
        /// 3,
        major: u64,
        /// 12,
        minor: u64,
        /// 1.
        micro: u64,
    },
    /// Its objects have other layouts.
    #[error("it is a debug build of CPython, whose objects have other layouts")]
    Debug,
    /// A symbol that is needed is missing.
    #[error("it has no symbol '_PyRuntime'")]
    NoRuntime,
}

/// Where an interpreter keeps the address of the current thread state: a link-time address.
pub fn current_state(file: Option<File>) -> Result<u64, Reason> {
    let data = file.and_then(|file| calltap_sites::load_all(&file).ok()).ok_or(Reason::Unreadable)?;
    let file = object::File::parse(&*data).map_err(|_| Reason::Unreadable)?;
    let symbol = |name: &str| {
        let mut all = file.dynamic_symbols().chain(file.symbols());
        all.find(|symbol| symbol.is_definition() && symbol.name() == Ok(name)).map(|symbol| symbol.address())
    };
    let version = symbol("Py_Version").ok_or(Reason::Older)?;
    let bytes = file.sections().find_map(|section| section.data_range(version, 8).ok().flatten());
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(Reason::Unreadable)?;
    let version = u64::from_le_bytes(bytes);
    if version >> 16 != KNOWN || version & 0xf0 != FINAL {
        let [major, minor, micro] = [24, 16, 8].map(|shift| version >> shift & 0xff);
        return Err(Reason::Version { major, minor, micro });
    }
    if symbol("_Py_RefTotal").is_some() {
        return Err(Reason::Debug);
    }
    Ok(symbol("_PyRuntime").ok_or(Reason::NoRuntime)? + CURRENT_STATE)
}

/// The program of the hook of an interpreter's evaluator.
pub fn program(current_state: u64, bias: Bias) -> calltap_selection::Program {
    let words = calltap_abi::values::evaluator(bias.0.wrapping_add(current_state));
    calltap_selection::Program { words: words.to_vec(), captured: Default::default(), left_out: Vec::new() }
}
