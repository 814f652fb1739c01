//! What a session has switched on when it starts, and what the same words mean in files that it left alone.

use super::Planner;
use crate::plan::loaded::Loaded;
use crate::plan::modules::Mapped;
use calltap_names::{FunctionNames, Word, demangle, printable};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is on, and where else the user's words name functions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Started {
    /// The process.
    pub pid: u32,
    /// Its program, where that was started by a symbolic link of another name: the name of the file, and that of the link.
    pub linked: Option<(String, String)>,
    /// Functions that are on, by file name of their module; most first.
    pub modules: Vec<(String, usize)>,
    /// Files of which nothing was chosen.
    pub elsewhere: Vec<Elsewhere>,
    /// What is not on of what the words name, in files of which functions are on.
    pub untraceable: Option<Untraceable>,
    /// Of the file most functions of which are on: that its functions have no names, if so.
    pub nameless: Option<String>,
}

/// A word names functions of a file that are not on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// The word of a filter.
    pub word: String,
    /// File name of the module.
    pub module: String,
    /// How many functions of it the word names.
    pub count: usize,
}

/// Functions that a filter's words name, and that cannot be traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untraceable {
    /// How many.
    pub count: usize,
    /// Name of the first.
    pub function: String,
    /// Why it cannot be traced.
    pub reason: String,
}

/// Where the code of a program is that has next to none of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargestLibrary {
    /// File name of the library,
    pub module: String,
    /// and without `.so` and version.
    pub stem: String,
    /// File name of the program.
    pub program: String,
}

/// Words of a filter that are looked up in other files. A list of more names was not written by hand.
const WORDS: usize = 16;
/// Functions of which a program that is no stub has more.
const STUB: usize = 64;
/// How much more code a library has than a stub.
const LARGER: u64 = 8;
/// Libraries that programs of every kind use.
const COMMON: [&str; 9] =
    ["libc", "libm", "libpthread", "libstdc++", "libgcc_s", "libdl", "librt", "ld-linux-x86-64", "libgmp"];

impl Planner<'_> {
    /// The functions that are on in the first process, by module; `words`: those of the filter that mean functions of the program; `names`: those without wildcards.
    pub(crate) fn started(&self, words: &[&Word], names: &[&Word]) -> Started {
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        for module in self.processes.get(&0).into_iter().flat_map(|process| &process.modules) {
            *on.entry(module.mapped.name()).or_default() += module.count().0;
        }
        let mut modules: Vec<(String, usize)> = on.into_iter().filter(|(_, on)| *on > 0).collect();
        modules.sort_by_key(|(_, on)| std::cmp::Reverse(*on));
        let mut elsewhere = Vec::new();
        for word in words.iter().filter(|_| words.len() <= WORDS) {
            for (module, file) in
                self.opened.iter().filter(|(file, _)| !modules.iter().any(|(on, _)| on == file))
            {
                let count = count_in(module, file, word);
                let (word, module) = (word.text().to_owned(), module.clone());
                elsewhere.extend((count > 0).then_some(Elsewhere { word, module, count }));
            }
        }
        elsewhere.sort_by_key(|found| std::cmp::Reverse(found.count));
        let first = modules.first().map(|(module, _)| module);
        let mut loaded = self.processes.get(&0).into_iter().flat_map(|process| &process.modules);
        let nameless = loaded.find(|loaded| Some(&loaded.mapped.name()) == first).and_then(Loaded::hint);
        let untraceable = self.untraceable(names, &modules);
        let pid = self.pid_of(0);
        Started { untraceable, pid, linked: linked(pid), modules, elsewhere, nameless }
    }

    fn untraceable(&self, names: &[&Word], on: &[(String, usize)]) -> Option<Untraceable> {
        let is_on = |module: &str| on.iter().any(|(name, _)| name == module);
        let mut found = self.candidates.untraceable(names).filter(|(_, module, _)| is_on(module));
        let (function, _, reason) = found.next()?;
        let (function, reason) = (demangle(&function.name), reason.to_string());
        Some(Untraceable { count: 1 + found.count(), function, reason })
    }

    /// The library with most code, if the program is nearly nothing but the start of it.
    pub(crate) fn largest_library(&self) -> Option<LargestLibrary> {
        let (on, _) = self.count();
        let program = std::fs::read_link(calltap_process::proc::place(self.pid_of(0)).join("exe")).ok()?;
        let (own, libraries): (Vec<&Mapped>, Vec<&Mapped>) =
            self.files.iter().partition(|file| file.path == program);
        let program = own.first()?;
        let stem = |file: &Mapped| file.name().split(".so").next().unwrap_or_default().to_owned();
        let others = libraries.into_iter().filter(|file| !COMMON.contains(&stem(file).as_str()));
        let largest = others.max_by_key(|file| file.text_bytes())?;
        let is_stub = on <= STUB && largest.text_bytes() / LARGER > program.text_bytes();
        is_stub.then(|| LargestLibrary {
            module: largest.name(),
            stem: stem(largest),
            program: program.name(),
        })
    }

    /// Opens what the first process has mapped, for what is told when it may have ended.
    pub(crate) fn open_files(&mut self, pid: u32) {
        if !self.told {
            let open = |file: &Mapped| Some((file.name(), file.open(pid)?));
            self.opened = self.files.iter().filter_map(open).collect();
        }
    }
}

/// The file name of a process's program, and that of the symbolic link by which it was started, if it was.
fn linked(pid: u32) -> Option<(String, String)> {
    let place = calltap_process::proc::place(pid);
    let program = fs::read_link(place.join("exe")).ok()?;
    let (directory, file) = (program.parent()?, program.file_name()?.to_string_lossy());
    // Programs write other texts over their arguments, and the kernel keeps 15 bytes of the name.
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
    (identity(&link)? == identity(&place.join("exe"))?)
        .then(|| (printable(&file).into_owned(), printable(called).into_owned()))
}

/// How many functions of a file a word names, by the file's tables of symbols.
fn count_in(module: &str, file: &File, word: &Word) -> usize {
    let is_named =
        |symbol: &str| word.may_name(symbol) && word.matches(&FunctionNames::new([symbol], Some(module)));
    calltap_sites::count_functions(file, is_named)
}
