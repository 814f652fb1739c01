//! Modules and their sites, in a table that callbacks on every thread read without a lock.
//!
//! A module's description is never freed: names that callbacks were given stay valid. If the same
//! file is loaded at the same address again, it is reused.
//!
//! Uses `unsafe` because the table of modules is exchanged under its readers; the old one is freed
//! after a grace period.
#![allow(unsafe_code)]

use crate::grace::{self, Reader};
use crate::trampoline::Cell;
use calltap_patch::Site;
use calltap_sites::SiteKind;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

/// A function that can be traced.
#[derive(Debug)]
pub struct Function {
    /// The name for users, then others that filters match: linker symbols.
    pub(crate) names: Vec<String>,
    pub(crate) module: String,
    pub(crate) address: u64,
    pub(crate) site: Option<SiteKind>,
    /// Whether its site passes a frame, in which the call's beginning is stored.
    pub(crate) has_frame: bool,
}

impl Function {
    /// Returns the name, demangled.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Returns all names with which filters are compared: demangled, linker symbol, aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the file name of the program or library that contains it.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Returns the address of the first instruction; for a [`traced`](crate::traced) function
    /// without a symbol, that of its site.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the kind of its site: the name of the compiler's flag, or `traced` for the
    /// attribute.
    pub fn site(&self) -> &'static str {
        self.site.map_or("traced", SiteKind::name)
    }
}

/// A site of a module.
#[derive(Clone, Copy)]
pub(crate) struct SiteRef(&'static Module, usize);

impl SiteRef {
    pub(crate) fn function(&self) -> &'static Function {
        &self.0.functions[self.1]
    }

    /// Returns the cell for its returns.
    pub(crate) fn returns(&self) -> *const Cell {
        &raw const self.0.returns[self.1]
    }
}

/// The description of a module. All lists are by site.
pub(crate) struct Module {
    pub path: PathBuf,
    pub is_program: bool,
    pub bias: u64,
    pub start: u64,
    pub end: u64,
    pub build_id: Option<String>,
    pub sites: Vec<Site>,
    pub functions: Vec<Function>,
    /// Return addresses of the sites' calls, ascending.
    pub afters: Vec<u64>,
    pub cells: Vec<Cell>,
    /// Cells for returns of the sites' functions.
    pub returns: Vec<Cell>,
    /// Whether each site is at the end of a frame, not at a function's entry.
    pub ends: Vec<bool>,
    /// Address of the gates of its sites; 0 before there are any.
    pub gates: AtomicU64,
}

type Table = Vec<&'static Module>;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Returns the site whose call returns to `after`. For readers only.
pub(crate) fn find(after: u64) -> Option<SiteRef> {
    // SAFETY: null, or a table that was published and is freed a grace period after it was
    // replaced: callers are readers.
    let table = unsafe { TABLE.load(SeqCst).as_ref() }?;
    let module = table.get(table.partition_point(|module| module.start <= after).checked_sub(1)?)?;
    Some(SiteRef(module, module.afters.binary_search(&after).ok()?))
}

/// Returns the function with a site at an address.
pub fn function(ip: u64) -> Option<&'static Function> {
    let _reader = Reader::enter();
    find(ip.checked_add(5)?).map(|site| site.function())
}

/// Replaces the table. One caller at a time.
pub(crate) fn publish(mut modules: Table) {
    modules.sort_by_key(|module| module.start);
    let old = TABLE.swap(Box::into_raw(Box::new(modules)), SeqCst);
    if !old.is_null() {
        grace::synchronize();
        // SAFETY: it came from a Box, and no thread can see it any more.
        drop(unsafe { Box::from_raw(old) });
    }
}
