//! Tests of the table of Python functions.

use super::*;
use std::boxed::Box;
use std::string::String;

fn table() -> Box<Table> {
    let header = Header {
        next_site: AtomicU32::new(0),
        taken: AtomicU32::new(0),
        module: AtomicU32::new(0),
        tracers: AtomicU32::new(0),
        occupied: AtomicU32::new(0),
        unknown: AtomicU32::new(0),
        placed: AtomicU32::new(0),
        pauses: AtomicU32::new(0),
        missed: AtomicU64::new(0),
        process: AtomicU32::new(0),
        selection: AtomicU32::new(0),
        late: AtomicU64::new(0),
        coroutines: AtomicU64::new(0),
        rules_length: AtomicU32::new(0),
        rules_version: AtomicU32::new(0),
        rules: [const { AtomicU8::new(0) }; arguments::RULES],
        filter_length: AtomicU64::new(0),
        filter: [const { AtomicU8::new(0) }; FILTER],
    };
    let empty = |_| Entry {
        code: AtomicU64::new(0),
        process: AtomicU32::new(0),
        state: AtomicU32::new(0),
        site: AtomicU32::new(0),
        line: AtomicU32::new(0),
        name: AtomicU32::new(0),
        file: AtomicU32::new(0),
        is_coroutine: AtomicU32::new(0),
        text: [const { AtomicU8::new(0) }; TEXT],
        arguments: AtomicU32::new(0),
        names_length: AtomicU32::new(0),
        locals: [const { AtomicU8::new(0) }; 8],
        names: [const { AtomicU8::new(0) }; arguments::NAMES],
    };
    Box::new(Table {
        header,
        buckets: [const { AtomicU32::new(0) }; BUCKETS],
        scopes: scopes::Scopes::new(),
        entries: std::array::from_fn(empty),
    })
}

fn text_of(filter: &[&str]) -> String {
    filter.iter().flat_map(|pattern| [*pattern, "\n"]).collect()
}

/// Introduces a function as the agent does.
fn introduce<'a>(table: &'a Table, name: &str) -> &'a Entry {
    let (index, entry) = table.take().expect("there is room");
    entry.code.store(u64::from(index) * 0x1f0, Relaxed);
    entry.text.iter().zip(name.bytes()).for_each(|(place, byte)| place.store(byte, Relaxed));
    entry.name.store(name.len() as u32, Relaxed);
    assert!(table.introduce(index, entry));
    entry
}

fn on_large_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(128 << 20).spawn(test).unwrap();
    thread.join().unwrap();
}

#[test]
fn the_last_pattern_that_matches_counts() {
    on_large_stack(|| {
        let table = table();
        let check = |filter: &[&str], name: &str, expected: bool| {
            assert!(table.select(text_of(filter).as_bytes()));
            assert_eq!(table.selects(name.as_bytes()), expected, "{filter:?} {name}");
        };
        check(&[], "app.f", true);
        check(&["*"], "app.f", true);
        check(&["app.*"], "app.f", true);
        check(&["app.*"], "apps.f", false);
        check(&["app.*.get"], "app.handlers.Item.get", true);
        check(&["app.*.get"], "app.handlers.Item.gets", false);
        check(&["get"], "app.handlers.Item.get", true);
        check(&["Item.get"], "app.handlers.Item.get", true);
        check(&["handlers.*"], "app.handlers.Item.get", true);
        check(&["g?t"], "app.handlers.Item.get", true);
        check(&["et"], "app.handlers.Item.get", false);
        check(&["Item"], "app.handlers.Item.get", false);
        check(&["handlers"], "app.handlers.Item.get", false);
        check(&["*", "!get"], "app.handlers.Item.get", false);
        check(&["app.?"], "app.f", true);
        check(&["app.?"], "app.ff", false);
        check(&["*.<lambda>"], "app.<lambda>", true);
        check(&["app.*", "!app.f"], "app.f", false);
        check(&["app.*", "!app.f"], "app.g", true);
        check(&["!importlib.*"], "app.f", true);
        check(&["!importlib.*"], "importlib.f", false);
    });
}

#[test]
fn functions_are_found_by_code_object_and_process_until_the_table_is_full() {
    on_large_stack(|| {
        let table = table();
        let code = |n: u64| 0x7f00_0000_0000 + 0x1f0 * n;
        for n in 0..FUNCTIONS as u64 {
            let (index, entry) = table.take().expect("there is room");
            entry.code.store(code(n), Relaxed);
            entry.process.store(n as u32 % 2, Relaxed);
            assert!(table.introduce(index, entry), "{n}");
        }
        assert!(table.take().is_none());
        for n in 0..FUNCTIONS as u64 {
            let site = |process| table.find(code(n), process).map(|entry| entry.site.load(Relaxed));
            assert_eq!(site(n as u32 % 2), Some(n as u32));
            assert_eq!(site(1 - n as u32 % 2), None);
        }
    });
}

#[test]
fn another_filter_decides_about_the_functions_that_are_known() {
    on_large_stack(|| {
        let table = table();
        let known = |entry: &Entry| (entry.state.load(Relaxed), entry.site.load(Relaxed));
        assert!(table.select(b"app.*\n"));
        let [f, g] = ["app.f", "lib.g"].map(|name| introduce(&table, name));
        assert_eq!([known(f), known(g)], [(state::ON, 0), (state::UNSELECTED, NO_SITE)]);
        assert!(table.select(b"lib.*\n"));
        // A site is kept, as events of it may still be read.
        assert_eq!([known(f), known(g)], [(state::UNSELECTED, 0), (state::ON, 1)]);
        assert!(table.select(b"*\n"));
        assert_eq!([known(f), known(g)], [(state::ON, 0), (state::ON, 1)]);
        // A function that the recorder has disabled stays off until it is selected anew.
        f.state.store(state::OFF, Relaxed);
        assert!(table.select(b"app.*\n"));
        assert_eq!([known(f).0, known(g).0], [state::OFF, state::UNSELECTED]);
        assert!(!table.select(&[b'x'; FILTER + 1]));
        assert_eq!(table.header.selection.load(Relaxed), 4 * phase::STEP);
    });
}

#[test]
fn functions_introduced_during_filter_change_follow_the_new_filter() {
    on_large_stack(|| {
        let table = table();
        std::thread::scope(|scope| {
            let agents = [0, 1].map(|n| {
                let table = &table;
                scope.spawn(move || {
                    (0..3000).for_each(|k| {
                        introduce(table, &format!("m{}.f{n}", k % 2));
                    });
                })
            });
            for filter in [&b"m0.*\n"[..], b"m1.*\n"].into_iter().cycle() {
                assert!(table.select(filter));
                if agents.iter().all(|agent| agent.is_finished()) {
                    break;
                }
            }
        });
        let entries = table.taken();
        assert_eq!(entries.len(), 6000);
        for entry in entries {
            let is_selected = entry.with_name(|name| table.selects(name));
            let expected = if is_selected { state::ON } else { state::UNSELECTED };
            assert_eq!(entry.state.load(Relaxed), expected);
            assert!(!is_selected || entry.site.load(Relaxed) != NO_SITE);
        }
    });
}

#[test]
fn rules_name_parameters_of_matching_functions() {
    on_large_stack(|| {
        let table = table();
        assert!(table.set_rules(b"app.*\tname,n\n*.f\t\n"));
        let check = |name: &str, expected: &[&str]| {
            let entry = introduce(&table, name);
            let text = |names: &[AtomicU8]| {
                String::from_utf8(names.iter().map(|byte| byte.load(Relaxed)).collect()).unwrap()
            };
            let found: std::vec::Vec<String> = table.rules_for(entry).map(text).collect();
            assert_eq!(found, expected, "{name}");
        };
        check("app.g", &["name,n"]);
        check("app.f", &["name,n", ""]);
        check("other.f", &[""]);
        check("other.g", &[]);
        assert!(!table.set_rules(&[b'x'; arguments::RULES + 1]));
    });
}

#[test]
fn functions_of_other_rules_become_unknown() {
    on_large_stack(|| {
        let table = table();
        assert!(table.set_rules(b"app.f\tname\n"));
        let [f, g] = ["app.f", "app.g"].map(|name| introduce(&table, name));
        let version = table.header.rules_version.load(SeqCst);
        assert!(!table.has_other_rules(version));
        assert!(table.set_rules(b"app.h\tname\napp.f\tname\n"));
        assert!(!f.is_retired() && !g.is_retired());
        assert!(table.has_other_rules(version) && table.has_other_rules(version + 1));
        assert!(table.set_rules(b"app.f\tn\n"));
        assert!(f.is_retired() && !g.is_retired());
        assert!(table.set_rules(b""));
        assert!(!g.is_retired());
        assert!(table.set_rules(b"*\t\n"));
        assert!(g.is_retired());
    });
}
