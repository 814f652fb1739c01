//! Imports within a crate must run in one direction. Between crates the compiler enforces that.
//!
//! An arrow leads from a file to another one of its crate if the first names an item of the second.
//! Tests do not count, nor does a file of a folder that names items of the folder's own file:
//! `a/b.rs` belongs to `a.rs`. The remaining arrows may have no circle at any level, where a folder
//! stands for all of its files. No file may import through the crate's root, which only exports
//! names to other crates.

use crate::sources::{self, ident, inside, is_punct, root};
use proc_macro2::{Group, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module in its crate; that of the root is empty.
type Module = Vec<String>;

/// The files of a crate by their modules; the root may have two.
type Files = BTreeMap<Module, Vec<PathBuf>>;

/// The arrows: from a module, to a module, and the name of the item.
type Arrows = BTreeSet<(Module, Module, String)>;

/// Folders of a crate that may import only these modules of it.
const LOW: [(&str, &str, &[&str]); 1] = [("session", "plan", &["error", "python"])];

/// A path in a source, and whether it names a macro.
type Written = (Vec<String>, bool);

/// Collects the paths in a source, each with the module around it: the file's, or one within the
/// file. Tests are left out.
fn paths(tokens: &[TokenTree], module: &[String], found: &mut Vec<(Module, Written)>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_of_tests(tokens, at) {
            at = behind_item(tokens, at);
        } else if let (true, Some(name), Some(body)) =
            (is_word(tokens, at, "mod"), ident(tokens, at + 1), sources::braces(tokens, at + 2))
        {
            paths(&inside(body), &[module, &[name.to_string()]].concat(), found);
            at += 3;
        } else if is_import(tokens, at) {
            let end = behind_item(tokens, at);
            let mut all = Vec::new();
            uses(&tokens[at + 1..end - 1], &[], &mut all);
            found.extend(all.into_iter().map(|path| (module.to_vec(), (path, false))));
            at = end;
        } else if ident(tokens, at).is_some() && !is_separator(tokens, at.wrapping_sub(2)) {
            let (path, end) = path(tokens, at);
            let is_macro = is_punct(tokens, end, '!');
            found.extend((path.len() > 1).then(|| (module.to_vec(), (path, is_macro))));
            at = end;
        } else {
            if let TokenTree::Group(group) = &tokens[at] {
                paths(&inside(group), module, found);
            }
            at += 1;
        }
    }
}

/// Whether `#[cfg(test)]` or `#[test]` begins here.
fn is_of_tests(tokens: &[TokenTree], at: usize) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(at + 1).filter(|_| is_punct(tokens, at, '#')) else {
        return false;
    };
    let attribute = inside(attribute);
    let arguments: Option<&Group> = match attribute.get(1) {
        Some(TokenTree::Group(arguments)) if is_word(&attribute, 0, "cfg") => Some(arguments),
        _ => None,
    };
    is_word(&attribute, 0, "test") || arguments.is_some_and(|all| is_word(&inside(all), 0, "test"))
}

/// Returns the position behind the item that begins here.
fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_use = |at| is_import(tokens, at);
    let first = (at..tokens.len()).find(|at| is_use(*at) || is_punct(tokens, *at, ';') || ends(tokens, *at));
    let end = match first {
        Some(first) if is_use(first) => (first..tokens.len()).find(|at| is_punct(tokens, *at, ';')),
        first => first,
    };
    end.map_or(tokens.len(), |end| end + 1)
}

/// Whether a `use` is an import, and not that of an `impl Trait`.
fn is_import(tokens: &[TokenTree], at: usize) -> bool {
    is_word(tokens, at, "use") && !is_punct(tokens, at + 1, '<')
}

fn ends(tokens: &[TokenTree], at: usize) -> bool {
    sources::braces(tokens, at).is_some()
}

fn is_word(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    ident(tokens, at).is_some_and(|ident| ident == word)
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

/// Returns the path that begins here, and the position behind it.
fn path(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(name) = ident(tokens, at) {
        path.push(name.to_string());
        at += 1;
        if !is_separator(tokens, at) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// Collects the paths of a `use`; `front` is the path before it.
fn uses(tokens: &[TokenTree], front: &[String], found: &mut Vec<Vec<String>>) {
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')) {
        let (own, end) = path(part, 0);
        let whole = [front, &own].concat();
        match part.get(end) {
            Some(TokenTree::Group(group)) => uses(&inside(group), &whole, found),
            _ if part.is_empty() => {}
            _ => found.push(whole),
        }
    }
}

/// Returns the files of a crate by their modules.
fn modules(source: &Path) -> Files {
    let mut all = Files::new();
    for path in sources::files(&[&source.to_string_lossy()], &["rs"]) {
        let inner = path.strip_prefix(source).expect("below").with_extension("");
        let mut module: Module =
            inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        let is_whole = module.len() == 1 && ["lib", "main"].contains(&&*module[0]);
        if is_whole || module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        if !module.iter().any(|name| name == "tests") {
            all.entry(module).or_default().push(path);
        }
    }
    all
}

/// Returns the arrows of a crate between different files.
fn arrows(modules: &Files) -> Arrows {
    let mut all = Arrows::new();
    for (file, own) in modules {
        let mut found = Vec::new();
        own.iter().for_each(|path| paths(&sources::tokens(path), file, &mut found));
        for (module, (path, is_macro)) in found {
            let Some(named) = resolve(&module, &path, modules) else { continue };
            let mut to = named.clone();
            while !modules.contains_key(&to) {
                to.pop();
            }
            // Exported macros are at the crate's root, wherever they are defined.
            let is_exported = is_macro && to.is_empty();
            if to != *file && !is_exported {
                let name = named.get(to.len()).cloned().unwrap_or_default();
                all.insert((file.clone(), to, name));
            }
        }
    }
    all
}

/// Returns the full path that a path in a module names; `None` for items of other crates.
fn resolve(module: &[String], path: &[String], modules: &Files) -> Option<Module> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let above = &module[..module.len().checked_sub(supers)?];
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([above, &path[supers..]].concat()),
        first if modules.contains_key(&[module, &[first.to_owned()]].concat()) => {
            Some([module, path].concat())
        }
        _ => None,
    }
}

/// Returns the arrows of a circle among the direct children of a folder, if there is one.
fn circle(folder: &[String], arrows: &Arrows) -> Vec<String> {
    let child = |module: &Module| {
        let below = module.strip_prefix(folder)?;
        Some(below.first()?.clone())
    };
    let between: Vec<_> = arrows
        .iter()
        .filter_map(|arrow| Some((child(&arrow.0)?, child(&arrow.1)?, arrow)))
        .filter(|(from, to, _)| from != to)
        .collect();
    // A child that no arrow leaves, or none reaches, is in no circle.
    let mut left: BTreeSet<&str> = between.iter().flat_map(|(from, to, _)| [&**from, &**to]).collect();
    loop {
        let inner = |from: &str, to: &str, left: &BTreeSet<&str>| left.contains(from) && left.contains(to);
        let (mut begin, mut end) = (BTreeSet::new(), BTreeSet::new());
        for (from, to, _) in between.iter().filter(|(from, to, _)| inner(from, to, &left)) {
            begin.insert(&**from);
            end.insert(&**to);
        }
        let both: BTreeSet<&str> = begin.intersection(&end).copied().collect();
        if both == left {
            break;
        }
        left = both;
    }
    let inner = between.iter().filter(|(from, to, _)| left.contains(&**from) && left.contains(&**to));
    inner.map(|(_, _, (from, to, name))| arrow(from, to, name)).collect()
}

fn arrow(from: &[String], to: &[String], name: &str) -> String {
    let place = |module: &[String]| if module.is_empty() { "the root".to_owned() } else { module.join("::") };
    format!("{} -> {}: {name}", place(from), place(to))
}

/// Returns the faults of a crate.
fn faults(name: &str, modules: &Files) -> Vec<String> {
    let arrows = arrows(modules);
    let mut faults = Vec::new();
    let to_root = arrows.iter().filter(|(_, to, _)| to.is_empty());
    faults.extend(to_root.map(|(from, to, item)| format!("by way of the root: {}", arrow(from, to, item))));
    let folders: BTreeSet<&[String]> =
        modules.keys().flat_map(|module| (0..module.len()).map(|length| &module[..length])).collect();
    for folder in folders {
        let circle = circle(folder, &arrows);
        if !circle.is_empty() {
            faults.push(format!("a circle in /{}:\n    {}", folder.join("/"), circle.join("\n    ")));
        }
    }
    for (_, low, allowed) in LOW.iter().filter(|(of, ..)| *of == name) {
        let is_above = |to: &Module| to[0] != *low && !allowed.contains(&&*to[0]);
        let up = arrows.iter().filter(|(from, to, _)| {
            from.first().is_some_and(|first| first == low) && !to.is_empty() && is_above(to)
        });
        faults.extend(up.map(|(from, to, item)| format!("upwards: {}", arrow(from, to, item))));
    }
    faults
}

#[test]
fn imports_within_crates_run_in_one_direction() {
    let entries = fs::read_dir(root().join("crates")).expect("crates").flatten().map(|entry| entry.path());
    let all: Vec<_> = entries.chain([root().join("agent"), root().join("xtask")]).collect();
    let (mut wrong, mut files) = (Vec::new(), 0);
    for path in all.into_iter().filter(|path| path.join("src").is_dir()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let modules = modules(&path.join("src"));
        files += modules.len();
        wrong.extend(faults(&name, &modules).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(files > 400, "only {files} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the faults of a crate with these files.
fn faults_of(sources: &[(&str, &str)]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    for (path, text) in sources {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    faults("some", &modules(directory.path()))
}

#[test]
fn circles_are_found_in_all_forms() {
    let root = ("lib.rs", "mod a; mod b; pub use a::A;");
    let check = |a: &str, b: &str, expected: &[&str]| {
        assert_eq!(faults_of(&[root, ("a.rs", a), ("b.rs", b)]), expected, "{a}");
    };
    check("use crate::b::B;", "pub struct B;", &[]);
    check(
        "use crate::b::{B, C};",
        "use super::a;",
        &["a circle in /:\n    a -> b: B\n    a -> b: C\n    b -> a: "],
    );
    check(
        "fn f() { crate::b::g(self::h()) }",
        "type T = crate::a::A;",
        &["a circle in /:\n    a -> b: g\n    b -> a: A"],
    );
    check("fn f(_: crate::b::B) {}", "use crate::A;", &["by way of the root: b -> the root: A"]);
    check("use crate::b::B;", "#[cfg(test)] mod tests { use crate::a::A; }", &[]);
    check("use crate::b::B; fn f() { crate::exported!() }", "#[test] fn f() { crate::a::g() }", &[]);
    check("use crate::b::B;", "// crate::a\nconst TEXT: &str = \"crate::a\";", &[]);
}

#[test]
fn folder_stands_for_its_files() {
    let root = ("lib.rs", "mod a; mod c;");
    let own = ("a.rs", "mod b; pub struct A; fn f() { b::g() }");
    assert!(faults_of(&[root, own, ("a/b.rs", "use super::A;"), ("c.rs", "use crate::a::A;")]).is_empty());
    let up = ("a/b.rs", "use crate::c::C;");
    let found = faults_of(&[root, own, up, ("c.rs", "use crate::a::A;")]);
    assert_eq!(found, ["a circle in /:\n    a::b -> c: C\n    c -> a: A"]);
}
