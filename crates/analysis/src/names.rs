//! Names as users read them: demangled, cached by site.

use calltap_trace::{Meta, SiteId, ThreadId};
use std::cell::OnceCell;
use std::fmt::{self, Write as _};

/// Longest demangled name; a symbol that would give a longer one is shown as it is.
const LONGEST: usize = 16 << 10;

/// `symbol` demangled (Rust legacy and v0 without the hash, C++), or as it is when it is neither.
pub fn demangle(symbol: &str) -> String {
    let mut text = Limited(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        if write!(text, "{name:#}").is_ok() {
            return text.0;
        }
    } else if symbol.starts_with("_Z") || symbol.starts_with("__Z") {
        let options = cpp_demangle::DemangleOptions::new().no_return_type();
        let parsed = cpp_demangle::Symbol::new(symbol.as_bytes());
        if parsed.is_ok_and(|parsed| parsed.structured_demangle(&mut text, &options).is_ok()) {
            return text.0;
        }
    }
    symbol.to_owned()
}

/// Refuses to grow past [`LONGEST`]: a few bytes of mangled name can stand for gigabytes.
struct Limited(String);

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The names of a trace. Demangles a function when it is first asked for.
pub struct Names<'a> {
    meta: &'a Meta,
    linker_names: bool,
    functions: Vec<OnceCell<String>>,
}

impl<'a> Names<'a> {
    /// Names of `meta`; with `linker_names` functions keep their linker symbols.
    pub fn new(meta: &'a Meta, linker_names: bool) -> Self {
        Self { meta, linker_names, functions: vec![OnceCell::new(); meta.sites.len()] }
    }

    /// The function's name.
    pub fn function(&self, site: SiteId) -> &str {
        match self.functions.get(site.0 as usize) {
            Some(cell) if !self.linker_names => cell.get_or_init(|| demangle(self.linker(site))),
            _ => self.linker(site),
        }
    }

    /// The function's linker symbol; `[unknown]` when the trace does not describe it.
    pub fn linker(&self, site: SiteId) -> &'a str {
        self.meta.sites.get(site.0 as usize).map_or("[unknown]", |site| &site.name)
    }

    /// The file name of the function's module, without directories.
    pub fn module(&self, site: SiteId) -> &'a str {
        self.module_path(site).map_or("[unknown]", base_name)
    }

    /// The path of the function's module.
    pub fn module_path(&self, site: SiteId) -> Option<&'a str> {
        let site = self.meta.sites.get(site.0 as usize)?;
        self.meta.modules.get(site.module as usize).map(|module| module.path.as_str())
    }

    /// The thread's name; `<...>` when unknown, as ftrace has it.
    pub fn comm(&self, thread: ThreadId) -> &'a str {
        match self.meta.threads.get(thread.0 as usize) {
            Some(thread) if !thread.comm.is_empty() => &thread.comm,
            _ => "<...>",
        }
    }

    /// The thread's kernel id; 0 when unknown.
    pub fn tid(&self, thread: ThreadId) -> u32 {
        self.meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.tid)
    }

    /// `comm-tid`.
    pub fn task(&self, thread: ThreadId) -> String {
        format!("{}-{}", self.comm(thread), self.tid(thread))
    }
}

/// The last component of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn demangles_what_compilers_make() {
        let cases = [
            ("main", "main"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_Z3maxIiET_S0_S0_", "max<int>(int, int)"),
            ("_Zbroken", "_Zbroken"),
            ("", ""),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol), name);
        }
    }
}
