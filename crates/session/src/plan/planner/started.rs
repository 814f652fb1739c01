//! Functions that are enabled at the start of a session, and functions of other files that the
//! user's words would match.

use super::Planner;
use crate::plan::loaded::ProcessModule;
use crate::plan::modules::Mapped;
use calltap_names::{FunctionNames, Word, in_message, printable};
use calltap_process::proc;
use calltap_selection::EVALUATOR;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Enabled functions, and other functions that the user's words name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Started {
    /// Process id.
    pub pid: u32,
    /// File names of the program and of the symbolic link through which it was started, if they
    /// differ.
    pub linked: Option<(String, String)>,
    /// Number of enabled functions by file name of the module, in descending order.
    pub modules: Vec<(String, usize)>,
    /// Number of selected functions that cannot be traced, in these modules.
    pub untraced: u64,
    /// Matches in files without enabled functions.
    pub elsewhere: Vec<MatchesElsewhere>,
    /// Named functions that cannot be traced, in files with enabled functions.
    pub untraceable: Option<UntraceableFunctions>,
    /// Advice if the functions of the first module have no names.
    pub nameless: Option<String>,
    /// Whether nothing is enabled, and the selection excludes functions.
    pub all_excluded: bool,
    /// File of the Python interpreter that the process runs, if the selection names no functions,
    /// neither in C nor in Python.
    pub interpreter: Option<String>,
    /// Globs of the selected Python functions: which ones match is known only when they are called.
    pub python: Vec<String>,
}

/// Functions that a word names in a file where none are enabled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchesElsewhere {
    /// Word of a filter.
    pub word: String,
    /// File name of the module.
    pub module: String,
    /// Number of functions that the word names.
    pub count: usize,
}

/// Functions that a filter names and that cannot be traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UntraceableFunctions {
    /// Number of functions.
    pub count: usize,
    /// Name of the first.
    pub function: String,
    /// Why it cannot be traced.
    pub reason: String,
}

/// The largest library of a program that contains almost no code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargestLibrary {
    /// File name of the library.
    pub module: String,
    /// File name without `.so` and version.
    pub stem: String,
    /// File name of the program.
    pub program: String,
}

/// Maximum number of a filter's words that are looked up in other files. A longer list was not
/// written by hand.
const WORDS: usize = 16;
/// Maximum number of functions of a stub: a program that only starts a library.
const STUB: usize = 64;
/// Part of the file names of CPython and its library.
const PYTHON: &str = "python";
/// How many times more code a library has than a stub.
const LARGER: u64 = 8;
/// Libraries that programs of every kind use.
const COMMON: [&str; 9] =
    ["libc", "libm", "libpthread", "libstdc++", "libgcc_s", "libdl", "librt", "ld-linux-x86-64", "libgmp"];

impl Planner<'_> {
    /// Returns the enabled functions of the first process, by module. `words`: those of the filter
    /// that mean functions of the program; `names`: those without wildcards.
    pub(crate) fn started(&self, words: &[&Word], names: &[&Word]) -> Started {
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        for module in self.processes.get(&0).into_iter().flat_map(|process| &process.modules) {
            *on.entry(module.mapped.name()).or_default() +=
                module.traced().filter(|(_, is_on)| *is_on).count();
        }
        let mut modules: Vec<(String, usize)> = on.into_iter().filter(|(_, on)| *on > 0).collect();
        modules.sort_by_key(|(_, on)| std::cmp::Reverse(*on));
        let mut elsewhere = Vec::new();
        for word in words.iter().filter(|_| words.len() <= WORDS) {
            for (module, file) in
                self.start.opened.iter().filter(|(file, _)| !modules.iter().any(|(on, _)| on == file))
            {
                // The selection excludes functions that could be traced and are not.
                let is_excluded = self.files.candidates.can_be_traced(word, module);
                let count = if is_excluded { 0 } else { count_in(module, file, word) };
                let (word, module) = (word.text().to_owned(), module.clone());
                elsewhere.extend((count > 0).then_some(MatchesElsewhere { word, module, count }));
            }
        }
        elsewhere.sort_by_key(|found| std::cmp::Reverse(found.count));
        let first = modules.first().map(|(module, _)| module);
        let mut loaded = self.processes.get(&0).into_iter().flat_map(|process| &process.modules);
        let nameless =
            loaded.find(|loaded| Some(&loaded.mapped.name()) == first).and_then(ProcessModule::hint);
        let untraceable = self.untraceable(names, &modules);
        let untraced = self.processes.get(&0).into_iter().flat_map(|process| &process.modules);
        let untraced = untraced.map(|module| module.record.untraceable.count).sum();
        let pid = self.pid_of(0);
        let mut loaded = self.processes.get(&0).into_iter().flat_map(|process| &process.modules);
        let linked = loaded.find_map(|loaded| Some((loaded.mapped.name(), loaded.mapped.link.clone()?)));
        Started { untraceable, untraced, pid, linked, modules, elsewhere, nameless, ..Started::default() }
    }

    /// Returns the file of the Python interpreter that the first process runs.
    pub(crate) fn interpreter(&self) -> Option<String> {
        let is_named = |name: &str| name.contains(PYTHON);
        let mut files = self.start.opened.iter().filter(|(name, _)| is_named(name));
        let found =
            files.find(|(_, file)| calltap_sites::count_functions(file, |name| name == EVALUATOR) > 0);
        found.map(|(name, _)| name.clone())
    }

    fn untraceable(&self, names: &[&Word], on: &[(String, usize)]) -> Option<UntraceableFunctions> {
        let is_on = |module: &str| on.iter().any(|(name, _)| name == module);
        let mut found = self.files.candidates.untraceable(names).filter(|(_, module, _)| is_on(module.file));
        let (function, _, reason) = found.next()?;
        let (function, reason) = (in_message(&function.name), reason.to_string());
        Some(UntraceableFunctions { count: 1 + found.count(), function, reason })
    }

    /// Returns the library with the most code, if the program is a stub for it.
    pub(crate) fn largest_library(&self) -> Option<LargestLibrary> {
        let (on, _) = self.count();
        let program = self.start.program?;
        let (own, libraries): (Vec<&Mapped>, Vec<&Mapped>) =
            self.start.files.iter().partition(|file| file.file.1 == program);
        let program = own.first()?;
        let stem = |file: &Mapped| file.name().split(".so").next().unwrap_or_default().to_owned();
        let others = libraries.into_iter().filter(|file| !COMMON.contains(&stem(file).as_str()));
        let others: Vec<&Mapped> = others.collect();
        let largest = others.iter().copied().max_by_key(|file| file.text_bytes())?;
        // The library of an interpreter may be smaller than one that a module has loaded.
        let name = program.name();
        let letters = name.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let is_named = |file: &&Mapped| {
            stem(file).strip_prefix("lib").is_some_and(|rest| rest.starts_with(letters))
                && file.text_bytes() > largest.text_bytes() / LARGER
        };
        let largest = others.iter().copied().find(is_named).filter(|_| letters.len() > 2).unwrap_or(largest);
        let is_stub = on <= STUB && largest.text_bytes() / LARGER > program.text_bytes();
        is_stub.then(|| LargestLibrary {
            module: largest.name(),
            stem: stem(largest),
            program: program.name(),
        })
    }

    /// Opens the files that the first process has mapped, as it may have ended when they are
    /// needed.
    pub(crate) fn open_files(&mut self, pid: u32) {
        if !self.start.told {
            let open = |file: &Mapped| Some((file.name(), file.open(pid)?));
            self.start.opened = self.start.files.iter().filter_map(open).collect();
        }
    }
}

/// Returns the name of the symbolic link through which a process's program was started, if there
/// was one.
pub(super) fn link_to_program(pid: u32) -> Option<String> {
    let place = proc::place(pid);
    let program = proc::program(pid)?;
    let (directory, file) = (program.parent()?, program.file_name()?.to_string_lossy());
    // Programs overwrite their arguments, and the kernel keeps 15 bytes of the name.
    let name = fs::read_to_string(place.join("comm")).ok()?;
    let arguments = fs::read(place.join("cmdline")).ok()?;
    let first = String::from_utf8_lossy(arguments.split(|byte| *byte == 0).next()?).into_owned();
    let first =
        first.split_whitespace().next().and_then(|word| Path::new(word).file_name()?.to_str()).unwrap_or("");
    let name = name.trim_end();
    let called = if first.starts_with(name) { first } else { name };
    if called.is_empty() || called.contains('/') || called == file {
        return None;
    }
    let identity = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let link = place.join("root").join(directory.strip_prefix("/").ok()?).join(called);
    (identity(&link)? == identity(&proc::program_link(pid))?).then(|| printable(called).into_owned())
}

/// Counts the functions that a word names in a file's symbol tables.
fn count_in(module: &str, file: &File, word: &Word) -> usize {
    let is_named = |symbol: &str| {
        word.may_name(symbol) && word.matches(&FunctionNames::new([symbol], Some(module.into())))
    };
    calltap_sites::count_functions(file, is_named)
}
