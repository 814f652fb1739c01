//! Finds the sites of loaded objects.

use crate::objects::Object;
use crate::statics::{self, SitePosition};
use crate::table::{Function, Module};
use crate::text::LocalText;
use crate::trampoline::{Cell, Kind};
use calltap_names::demangle;
use calltap_patch::{Avma, Bias, Site, Text};
use calltap_sites::{SiteForm, Svma};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// Reads an object's file. Returns `None` if it has nothing that can be traced, or if it is not the
/// file that was loaded.
pub(crate) fn module(object: &Object, text: &mut LocalText) -> Option<Module> {
    let file = File::open(&object.path).ok()?;
    if !calltap_sites::file_may_have_sites(&file) && !statics::has_any(&file) {
        return None;
    }
    let data = calltap_sites::load(&file).ok()?;
    let name = module_name(object);
    let binary = calltap_sites::read(&data, &name).ok()?;
    // A library's file may have been replaced since it was loaded.
    if binary.build_id.is_some() && build_id(object, text) != binary.build_id {
        return None;
    }
    let mut found = by_compiler(&binary.functions, &name, Bias(object.bias));
    add_static(&mut found, &data, &binary.functions, &name, Bias(object.bias));
    found.sort_by_key(|found| found.site.address());
    found.dedup_by_key(|found| found.site.address());
    (!found.is_empty()).then(|| with_sites(object, binary.build_id, found))
}

/// A site of a module, and its function.
struct ScannedSite {
    site: Site,
    kind: Kind,
    function: Function,
    place: SitePosition,
}

/// Returns the sites that the compiler left, by the addresses of their functions.
fn by_compiler(functions: &[calltap_sites::Function], module: &str, bias: Bias) -> Vec<ScannedSite> {
    let found = functions.iter().filter_map(|function| {
        let form = function.form()?;
        let site = Site::calling(form, bias)?;
        let kind = if calltap_patch::is_after_prologue(form) { Kind::AfterPrologue } else { Kind::Entry };
        let names = names(None, Some(function));
        let address = bias.apply(function.address).0;
        let site_kind = Some(function.kind());
        let module = module.to_owned();
        let function = Function { names, module, address, site: site_kind, has_frame: false };
        Some(ScannedSite { site, kind, function, place: SitePosition::Alone })
    });
    found.collect()
}

/// Adds the sites of functions with the `traced` attribute to those that the compiler left.
fn add_static(
    found: &mut Vec<ScannedSite>,
    data: &[u8],
    functions: &[calltap_sites::Function],
    module: &str,
    bias: Bias,
) {
    let by_compiler = found.len();
    for statics::Record { address, name: own_name, place } in statics::read(data) {
        let function = containing(functions, address);
        let entry = function.map_or(0, |function| bias.apply(function.address).0);
        let known = found[..by_compiler].binary_search_by_key(&entry, |found| found.function.address);
        // A single site per function is enough, and the compiler's is the better one.
        let is_end = place == SitePosition::End;
        if let Ok(n) = known
            && !is_end
        {
            let names = &mut found[n].function.names;
            if !names.contains(&own_name) {
                names.push(own_name);
            }
            continue;
        }
        let form = SiteForm::Entry { at: Svma(address), old: statics::NOP.to_vec() };
        let Some(site) = Site::calling(&form, bias) else { continue };
        let at = function.map_or(Svma(address), |function| function.address);
        // The end of a frame may be in another function, if the drop was not inlined.
        let names = if is_end { vec![own_name] } else { names(Some(own_name), function) };
        let address = bias.apply(at).0;
        let (has_frame, module) = (place == SitePosition::Entry, module.to_owned());
        let function = Function { names, module, address, site: None, has_frame };
        found.push(ScannedSite { site, kind: Kind::Body, function, place });
    }
}

/// Returns the module of an object with these sites, which are sorted by address.
fn with_sites(object: &Object, build_id: Option<String>, found: Vec<ScannedSite>) -> Module {
    let mut module = Module {
        path: object.path.clone(),
        is_program: object.is_program,
        bias: object.bias,
        start: object.start,
        end: object.end,
        build_id,
        sites: Vec::new(),
        functions: Vec::new(),
        afters: Vec::new(),
        cells: Vec::new(),
        returns: Vec::new(),
        ends: Vec::new(),
        gates: AtomicU64::new(0),
    };
    for ScannedSite { site, kind, function, place } in found {
        let after = site.after().0;
        let cell = |kind| Cell { combination: AtomicPtr::default(), kind, after };
        module.afters.push(after);
        module.cells.push(cell(kind));
        module.returns.push(cell(Kind::Return));
        module.sites.push(site);
        module.functions.push(function);
        module.ends.push(place == SitePosition::End);
    }
    module
}

/// Returns the file name of an object.
fn module_name(object: &Object) -> String {
    let link = if object.is_program { std::fs::read_link(&object.path).ok() } else { None };
    let path: &Path = link.as_deref().unwrap_or(&object.path);
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the function that contains an address.
fn containing(functions: &[calltap_sites::Function], address: u64) -> Option<&calltap_sites::Function> {
    let before = functions.partition_point(|function| function.address.0 <= address).checked_sub(1)?;
    let function = &functions[before];
    (address - function.address.0 < function.size).then_some(function)
}

/// Returns the names of a function, the one for users first.
fn names(own: Option<String>, function: Option<&calltap_sites::Function>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    // The attribute sees a method's name and module; its symbol has the type, too.
    if let (Some(own), Some(function)) = (&own, function) {
        names.extend(with_type(own, &demangle(&function.name)));
    }
    names.extend(own);
    if let Some(function) = function {
        names.push(demangle(&function.name));
        names.push(function.name.clone());
        names.extend(function.aliases.iter().cloned());
    }
    let mut unique = Vec::new();
    names.into_iter().for_each(|name| {
        if !unique.contains(&name) {
            unique.push(name);
        }
    });
    unique
}

/// Returns the demangled symbol of a method, if the function that an attribute named
/// `module::method` is that method. In v0 mangling it is `<krate::Type>::method`.
fn with_type(own: &str, symbol: &str) -> Option<String> {
    let plain = match symbol.strip_prefix('<').and_then(|rest| rest.split_once(">::")) {
        Some((of, method)) if !of.contains(['<', '>', ' ']) => format!("{of}::{method}"),
        _ => symbol.to_owned(),
    };
    let method = own.rsplit("::").next()?;
    let is_method = plain.strip_suffix(method).is_some_and(|before| before.ends_with("::"));
    (is_method && plain != own).then_some(plain)
}

/// Returns the build-id of the object in memory, from its notes.
pub(crate) fn build_id(object: &Object, text: &mut LocalText) -> Option<String> {
    const GNU_BUILD_ID: u32 = 3;
    object.notes.iter().find_map(|(at, length)| {
        let mut bytes = vec![0; (*length).min(1 << 16) as usize];
        text.read(Avma(*at), &mut bytes).ok()?;
        let mut rest = &bytes[..];
        while rest.len() >= 12 {
            let word = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
            let (name, length, kind) = (word(0) as usize, word(4) as usize, word(8));
            let start = 12 + name.next_multiple_of(4);
            let content = rest.get(start..start.checked_add(length)?)?;
            if kind == GNU_BUILD_ID && rest.get(12..16) == Some(b"GNU\0") {
                return Some(content.iter().take(64).map(|byte| format!("{byte:02x}")).collect());
            }
            rest = rest.get(start + length.next_multiple_of(4)..)?;
        }
        None
    })
}

/// Whether a module is still the same object.
pub(crate) fn is_same(module: &Module, object: &Object, text: &mut LocalText) -> bool {
    module.path == object.path
        && (module.bias, module.start, module.end) == (object.bias, object.start, object.end)
        && (module.build_id.is_none() || module.build_id == build_id(object, text))
}
