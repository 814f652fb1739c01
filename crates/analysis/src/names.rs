//! Demangled names of the functions, modules and threads of a trace.

use crate::colours::Colours;
use crate::units::one_line;
use calltap_names::{ShortNames, Word, demangle, file_name, is_named, selects};
use calltap_trace::{Meta, Module, SiteId, ThreadId};
use std::borrow::Cow;
use std::cell::OnceCell;

/// The names of a trace. Each function is demangled on first use.
pub struct Names<'a> {
    meta: &'a Meta,
    linker_names: bool,
    /// Whether the trace has functions of both the kernel and a program.
    has_both: bool,
    colours: Colours,
    functions: Vec<OnceCell<String>>,
}

/// Name of a function that is not known.
pub(crate) const UNKNOWN: &str = "[unknown]";
/// The kind of the sites of kernel functions.
const OF_KERNEL: &str = "kernel";

impl<'a> Names<'a> {
    /// Makes the names of `meta`; with `linker_names` functions keep their linker symbols.
    pub fn new(meta: &'a Meta, linker_names: bool) -> Self {
        // Kernel functions without a process belong to one with id 0.
        let has_both = meta.processes.iter().any(|process| process.pid != 0);
        let functions = vec![OnceCell::new(); meta.sites.len()];
        Self { meta, linker_names, has_both, colours: Colours::default(), functions }
    }

    /// Makes names that are shortened to what distinguishes them; linker symbols stay whole.
    pub(crate) fn short(meta: &'a Meta, linker_names: bool) -> Self {
        let names = Self::new(meta, linker_names);
        if !linker_names {
            let full: Vec<String> = meta.sites.iter().map(|site| demangle(&site.name)).collect();
            let short: ShortNames = full.iter().map(String::as_str).collect();
            names.functions.iter().zip(&full).for_each(|(cell, name)| drop(cell.set(short.of(name))));
        }
        names
    }

    /// Makes [`Self::shown`] names that have the colours of their modules.
    pub(crate) fn coloured(mut self, is_coloured: bool) -> Self {
        if is_coloured {
            self.colours = Colours::new(self.meta);
        }
        self
    }

    /// Returns the function's [marked](Self::marked) name on one line, in its colour if there is
    /// one.
    pub(crate) fn shown(&self, site: SiteId) -> String {
        self.painted(site, one_line(&self.marked(site))).into_owned()
    }

    /// Returns a text about the function in its colour, if there is one.
    pub(crate) fn painted<'t>(&self, site: SiteId, text: Cow<'t, str>) -> Cow<'t, str> {
        self.colours.paint(self.module(site), text)
    }

    /// Returns the function's name.
    pub fn function(&self, site: SiteId) -> &str {
        match self.functions.get(site.0 as usize) {
            Some(cell) if !self.linker_names => cell.get_or_init(|| demangle(self.linker(site))),
            _ => self.linker(site),
        }
    }

    /// Returns the function's name; if the trace has functions of a program too, a kernel function
    /// is followed by its module: `ext4_write [ext4]`.
    pub fn marked(&self, site: SiteId) -> Cow<'_, str> {
        let name = self.function(site);
        let is_of_kernel = || self.meta.sites.get(site.0 as usize).is_some_and(|site| site.kind == OF_KERNEL);
        match self.has_both && is_of_kernel() {
            true => Cow::Owned(format!("{name} {}", self.module(site))),
            false => Cow::Borrowed(name),
        }
    }

    /// Returns the function's linker symbol; `[unknown]` if the trace does not describe it.
    pub fn linker(&self, site: SiteId) -> &'a str {
        self.meta.sites.get(site.0 as usize).map_or("[unknown]", |site| &site.name)
    }

    /// Whether a word names the function.
    pub fn is(&self, site: SiteId, word: &Word) -> bool {
        let described = self.meta.sites.get(site.0 as usize);
        described.is_some_and(|described| {
            let module = self.meta.modules.get(described.module as usize);
            is_named(word, described.names(), module.map(Module::names))
        })
    }

    /// Whether a list of words selects the function.
    pub fn selects(&self, site: SiteId, words: &[Word]) -> bool {
        selects(words, |word| self.is(site, word))
    }

    /// Returns the file name of the function's module, without directories.
    pub fn module(&self, site: SiteId) -> &'a str {
        self.module_path(site).map_or("[unknown]", file_name)
    }

    /// Returns the path of the function's module.
    pub fn module_path(&self, site: SiteId) -> Option<&'a str> {
        let site = self.meta.sites.get(site.0 as usize)?;
        self.meta.modules.get(site.module as usize).map(|module| module.path.as_str())
    }

    /// Returns the name of the symbolic link through which a program was started from the
    /// function's module.
    pub fn link(&self, site: SiteId) -> Option<&'a str> {
        let site = self.meta.sites.get(site.0 as usize)?;
        self.meta.modules.get(site.module as usize)?.link.as_deref()
    }

    /// Returns the thread's name; `<...>` if unknown, as in ftrace.
    pub fn comm(&self, thread: ThreadId) -> &'a str {
        match self.meta.threads.get(thread.0 as usize) {
            Some(thread) if !thread.comm.is_empty() => &thread.comm,
            _ => "<...>",
        }
    }

    /// Returns the thread's kernel id, or a goroutine's number; 0 if unknown.
    pub fn tid(&self, thread: ThreadId) -> u32 {
        self.meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.tid)
    }

    /// Returns the title of the thread's track: its name, for a goroutine followed by its number.
    pub fn title(&self, thread: ThreadId) -> Cow<'a, str> {
        let comm = self.comm(thread);
        match self.meta.threads.get(thread.0 as usize).and_then(|thread| thread.goroutine) {
            Some(number) => Cow::Owned(format!("{comm} {number}")),
            None => Cow::Borrowed(comm),
        }
    }

    /// Returns `comm-tid`.
    pub fn task(&self, thread: ThreadId) -> String {
        format!("{}-{}", self.comm(thread), self.tid(thread))
    }
}
