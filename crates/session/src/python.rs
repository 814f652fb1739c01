//! CPython in a process: whether the agent knows its version, and the addresses that the agent
//! needs.

use calltap_abi::python::program;
use calltap_patch::{Bias, HookSet};
use calltap_process::memory::maps::{self, Region};
use calltap_selection::{Candidates, EVALUATOR, ReadModule};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs::File;

/// Offset of the address of the current thread state in `_PyRuntime`, CPython 3.11.
const CURRENT_STATE: u64 = 576;
/// Last byte of `Py_Version` in a final release.
const FINAL: u64 = 0xf0;
/// Symbols that appeared with a version, for versions without `Py_Version`; the newest first.
const OLDER: [(u8, &str); 3] =
    [(10, "PyModule_AddObjectRef"), (9, "PyObject_CallNoArgs"), (8, "PyCode_NewWithPosOnlyArgs")];
/// Name of the evaluator up to CPython 3.5.
const OLD_EVALUATOR: &str = "PyEval_EvalFrameEx";
/// Symbols of debug builds, each of some versions.
const DEBUG: [&str; 3] = ["_Py_RefTotal", "_Py_NegativeRefcount", "_Py_INCREF_IncRefTotal"];

/// Functions of CPython of which a program calls or has one, if it runs Python.
const STARTS: [&str; 5] =
    [EVALUATOR, "Py_BytesMain", "Py_InitializeEx", "Py_Initialize", "Py_InitializeFromConfig"];

/// A symbol of free-threaded builds.
const FREE_THREADED: &str = "_Py_DecRefShared";

calltap_sites::reasons! {
    /// Why Python functions of an interpreter are not traced.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Reason;

    Unreadable = "python-unreadable", "its file cannot be read", "see permissions.md";
    Older = "python-older",
        "it is older than CPython 3.8; functions are traced of final releases of 3.8 to 3.13", "use such a release";
    Release { number: String } = "python-release",
        "it is CPython {number}; functions are traced of final releases of 3.8 to 3.13", "use such a release";
    /// The objects have other layouts.
    Debug = "python-debug",
        "it is a debug build of CPython, whose objects have other layouts", "use a release build";
    /// The objects have other reference counts, and no lock protects them.
    FreeThreaded = "python-free-threaded", "it is a free-threaded build of CPython", "use a build with the interpreter lock";
    /// The agent has no hook for the kind of site.
    Site = "python-site",
        "its evaluator has a kind of entry or exit for which there are no hooks: 'calltap sites FILE' shows it",
        "use the build of a distribution";
    NoSymbol { name: &'static str } = "python-symbol", "it has no symbol '{name}'", "use a build that is not stripped";
}

impl Reason {
    /// Returns the reason for a version that is not known, with its number if the file has it.
    fn of_old(number: Option<String>) -> Reason {
        number.map_or(Reason::Older, |number| Reason::Release { number })
    }
}

/// Why a session cannot trace Python functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// No tracer records returns.
    #[error("needs calls and returns: add '--tracer function_graph'")]
    NoReturns,
    /// Events do not hold the slots of their calls.
    #[error(
        "and '--clock sparse' exclude each other: the events have no room for the values that identify Python functions"
    )]
    Sparse,
}

/// An interpreter whose version is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interpreter {
    /// Minor version: 8 for CPython 3.8.
    minor: u8,
    /// Link-time addresses that the agent needs, in the order of [`program`].
    addresses: Vec<u64>,
}

impl Interpreter {
    /// Identifies the interpreter in a file.
    pub(crate) fn read(file: Option<File>) -> Result<Interpreter, Reason> {
        let data = file.and_then(|file| calltap_sites::load_all(&file).ok()).ok_or(Reason::Unreadable)?;
        let file = object::File::parse(&*data).map_err(|_| Reason::Unreadable)?;
        let symbol = |name: &str| {
            let mut all = file.dynamic_symbols().chain(file.symbols());
            all.find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
                .map(|symbol| symbol.address())
        };
        let minor = match symbol("Py_Version") {
            Some(at) => {
                let bytes = file.sections().find_map(|section| section.data_range(at, 8).ok().flatten());
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(Reason::Unreadable)?;
                minor(u64::from_le_bytes(bytes))?
            }
            None => {
                let known = OLDER.into_iter().find(|(_, name)| symbol(name).is_some());
                known.map(|(minor, _)| minor).ok_or_else(|| Reason::of_old(number_in(&data)))?
            }
        };
        if DEBUG.iter().any(|name| symbol(name).is_some()) {
            return Err(Reason::Debug);
        }
        if symbol(FREE_THREADED).is_some() {
            return Err(Reason::FreeThreaded);
        }
        let addresses = match minor {
            ..=10 => Vec::new(),
            11 => vec![symbol("_PyRuntime").ok_or(Reason::NoSymbol { name: "_PyRuntime" })? + CURRENT_STATE],
            _ => {
                let address = |name| symbol(name).ok_or(Reason::NoSymbol { name });
                program::SYMBOLS.into_iter().map(address).collect::<Result<Vec<u64>, Reason>>()?
            }
        };
        Ok(Interpreter { minor, addresses })
    }

    /// Returns the hooks of its evaluator.
    pub(crate) fn hook_set(&self) -> HookSet {
        match self.minor {
            ..=10 => HookSet::EVALUATOR,
            _ => HookSet::EVALUATOR_ENTRY,
        }
    }

    /// Returns the program for the place where a thread releases the interpreter's lock, if the
    /// agent needs one.
    pub(crate) fn waiting_program(&self, bias: Bias) -> Option<calltap_selection::Program> {
        (self.minor > 10).then(|| self.made(program::WAITS, bias))
    }

    /// Returns the program of its evaluator.
    pub(crate) fn program(&self, bias: Bias) -> calltap_selection::Program {
        self.made(0, bias)
    }

    fn made(&self, flag: u64, bias: Bias) -> calltap_selection::Program {
        let addresses: Vec<u64> = self.addresses.iter().map(|at| bias.0.wrapping_add(*at)).collect();
        let words = program::words(u64::from(self.minor) | flag, &addresses).collect();
        calltap_selection::Program {
            words,
            addresses: Vec::new(),
            captured: Default::default(),
            left_out: Vec::new(),
        }
    }
}

/// Whether a process runs Python: it has an interpreter among its files.
pub fn process_runs_python(pid: u32) -> bool {
    let regions = maps::code_and_files(pid).unwrap_or_default();
    let mut code: Vec<&Region> =
        regions.iter().filter(|region| region.executable && region.file.1 != 0).collect();
    code.dedup_by(|one, other| one.file == other.file);
    let is_interpreter = |region: &&Region| {
        let data = region.open(pid).and_then(|file| calltap_sites::load(&file));
        data.is_ok_and(|data| has_symbol(&data, &[EVALUATOR]))
    };
    code.iter().any(is_interpreter)
}

/// Whether a program is a Python interpreter, or embeds one.
pub(crate) fn runs_python(data: &[u8]) -> bool {
    has_symbol(data, &STARTS)
}

/// Whether a file defines or uses one of these symbols of the dynamic linker.
fn has_symbol(data: &[u8], names: &[&str]) -> bool {
    let Ok(file) = object::File::parse(data) else { return false };
    file.dynamic_symbols().any(|symbol| symbol.name().is_ok_and(|name| names.contains(&name)))
}

/// Returns an interpreter among the candidates whose evaluator has the old name, with its version.
pub(crate) fn find_old(candidates: &Candidates) -> Option<(String, Reason)> {
    let is_old =
        |module: &ReadModule| module.binary.functions.iter().any(|function| function.name == OLD_EVALUATOR);
    let old = candidates.modules.iter().zip(&candidates.files).find(|(module, _)| is_old(module));
    let (interpreter, (root, path)) = old?;
    let file = File::open(root.join(path.strip_prefix("/").unwrap_or(path))).ok();
    let number = file.and_then(|file| number_in(&calltap_sites::load_all(&file).ok()?));
    Some((interpreter.name.clone(), Reason::of_old(number)))
}

/// Returns the version in an interpreter's strings, as `3.7.16`.
fn number_in(data: &[u8]) -> Option<String> {
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let major_and_minor = |rest: &[u8]| {
        let major = digits(rest);
        let minor = digits(rest.get(major + 1..)?);
        let end = major + 1 + minor;
        let is_number = major > 0 && minor > 0 && rest[major] == b'.' && rest.get(end) == Some(&0);
        is_number.then(|| rest[..end].to_vec())
    };
    // The version is in the name of the library directory, and in the full number, which may be the
    // end of a longer string.
    let starts = |text: &'static [u8]| memchr::memmem::find_iter(data, text).map(|at| at + text.len());
    let start = starts(b"lib/python").find_map(|at| major_and_minor(&data[at..]))?;
    let is_whole = |at: usize| {
        let before = at.checked_sub(1).map_or(0, |at| data[at]);
        let micro = digits(&data[at + start.len() + 1..]);
        let end = at + start.len() + 1 + micro;
        let is_number = !before.is_ascii_digit() && before != b'.' && micro > 0 && data.get(end) == Some(&0);
        is_number.then(|| String::from_utf8_lossy(&data[at..end]).into_owned())
    };
    let longer = [&start[..], b"."].concat();
    let found = memchr::memmem::find_iter(data, &longer).find_map(is_whole);
    Some(found.unwrap_or_else(|| String::from_utf8_lossy(&start).into_owned()))
}

/// Decodes `Py_Version`, if the version is known.
fn minor(version: u64) -> Result<u8, Reason> {
    let [major, minor, micro] = [24, 16, 8].map(|shift| version >> shift & 0xff);
    match (major, minor, version & 0xf0) {
        (3, 11..=13, FINAL) => Ok(minor as u8),
        _ => Err(Reason::Release { number: format!("{major}.{minor}.{micro}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_are_documented() {
        calltap_sites::reason::assert_documented(Reason::ALL);
    }

    #[test]
    fn the_number_of_a_version_is_found_in_texts() {
        let check = |data: &[u8], expected: Option<&str>| {
            assert_eq!(number_in(data).as_deref(), expected, "{}", String::from_utf8_lossy(data));
        };
        check(b"\0lib/python00.zip\0lib/python3.7\0/versions/3.7.16\0", Some("3.7.16"));
        check(b"\0lib/python2.7\0 2.7.1.3\0 12.7.4\0 2.7.5-x\0 2.7.18\0", Some("2.7.18"));
        check(b"lib/python2.7\0 2.7.", Some("2.7"));
        check(b"lib/python2.7", None);
        check(b"lib/python", None);
        check(b"", None);
    }
}
