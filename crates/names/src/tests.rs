//! Tests of the rule in docs/reference/names.md.

use crate::function::FunctionNames;
use crate::is_named;
use crate::module::ModuleNames;
use crate::set::GlobSet;
use crate::word::{Word, selects, split_list};
use proptest::prelude::*;

/// Linker symbols: C, C++, Rust in both manglings, and compiler-made clones and pieces.
const SYMBOLS: [&str; 17] = [
    "handle_request",
    "parse.isra.0",
    "parse.part.0",
    "_Z14handle_requestR7Request",
    "_ZNK3Srv6handleEi",
    "_ZN2ns3Srv6handleEd",
    "_Z7computeIdET_S0_S0_",
    "_Z7computeIiET_S0_S0_",
    "_ZN2ns3BoxIiE3putIcEET_S3_",
    "_ZN2ns3BoxIiEclEi",
    "_ZN12_GLOBAL__N_14anonEi",
    "_ZN2ns4nameB5cxx11ERKSt6vectorIiSaIiEE",
    "_Z1fi.isra.0",
    "_Z1gi.cold",
    "_ZN3app6module5parse17h0123456789abcdefE",
    "_ZN47_$LT$app..Job$u20$as$u20$core..future..Task$GT$3run17h0123456789abcdefE",
    "_RNvNtC3app6module4load",
];

#[track_caller]
fn check(word: &str, expected: &[&str]) {
    let compiled = Word::new(word);
    let named =
        |symbol: &&&str| compiled.matches(&FunctionNames::new([**symbol], Some("libapp-2.1.so.3".into())));
    let found: Vec<&str> = SYMBOLS.iter().filter(named).copied().collect();
    assert_eq!(found, expected, "{word}");
}

#[test]
fn as_much_of_a_name_as_the_word_tells() {
    check("handle_request", &["handle_request", "_Z14handle_requestR7Request"]);
    check("Srv::handle", &["_ZNK3Srv6handleEi", "_ZN2ns3Srv6handleEd"]);
    check("ns::Srv::handle", &["_ZN2ns3Srv6handleEd"]);
    check("handle", &["_ZNK3Srv6handleEi", "_ZN2ns3Srv6handleEd"]);
    check("Srv::handle(int)", &["_ZNK3Srv6handleEi"]);
    check("Srv::handle( int )const", &["_ZNK3Srv6handleEi"]);
    check("handle(double)", &["_ZN2ns3Srv6handleEd"]);
    check("compute", &["_Z7computeIdET_S0_S0_", "_Z7computeIiET_S0_S0_"]);
    check("compute<int>", &["_Z7computeIiET_S0_S0_"]);
    check("Box::put", &["_ZN2ns3BoxIiE3putIcEET_S3_"]);
    check("Box<int>::put", &["_ZN2ns3BoxIiE3putIcEET_S3_"]);
    check("Box<double>::put", &[]);
    check("Box::operator()", &["_ZN2ns3BoxIiEclEi"]);
    check("anon", &["_ZN12_GLOBAL__N_14anonEi"]);
    check("(anonymous namespace)::anon", &["_ZN12_GLOBAL__N_14anonEi"]);
    check("ns::name", &["_ZN2ns4nameB5cxx11ERKSt6vectorIiSaIiEE"]);
    check("name(std::vector<int, std::allocator<int>> const&)", &["_ZN2ns4nameB5cxx11ERKSt6vectorIiSaIiEE"]);
}

#[test]
fn an_empty_argument_list_is_that_of_a_name_without_one() {
    check("handle_request()", &["handle_request"]);
    check("handle*()", &["handle_request"]);
    check("libapp:handle_request()", &["handle_request"]);
    check("module::parse()", &["_ZN3app6module5parse17h0123456789abcdefE"]);
    check("load()", &["_RNvNtC3app6module4load"]);
    check("anon()", &[]);
    check("=handle_request()", &[]);
    check("Box::operator()", &["_ZN2ns3BoxIiEclEi"]);
    check("()", &[]);
}

#[test]
fn rust_and_clones() {
    let parse = "_ZN3app6module5parse17h0123456789abcdefE";
    check("parse", &["parse.isra.0", parse]);
    check("parse.part.0", &["parse.part.0"]);
    check("module::parse", &[parse]);
    check("app::module::parse", &[parse]);
    check("other::module::parse", &[]);
    check("module::parse::h0123456789abcdef", &[parse]);
    check("app::module::parse::h0123456789abcdef", &[parse]);
    check("module::parse::h0123456789abcdee", &[]);
    check("parse::h0123", &[]);
    let run = "_ZN47_$LT$app..Job$u20$as$u20$core..future..Task$GT$3run17h0123456789abcdefE";
    for word in
        ["Job::run", "Task::run", "app::Job::run", "run", "<app::Job as core::future::Task>::run", "*::run"]
    {
        check(word, &[run]);
    }
    check("load", &["_RNvNtC3app6module4load"]);
    check("module::l*", &["_RNvNtC3app6module4load"]);
    check("f", &["_Z1fi.isra.0"]);
    check("g", &[]);
}

#[test]
fn a_pattern_of_several_parts_names_a_subtree() {
    let is = |word: &str, symbol: &str| Word::new(word).matches(&FunctionNames::new([symbol], None));
    // `<svc::net::proto::Conn>::send`
    let send = "_RNvMNtNtCs2EPLhKWrBEa_3svc3net5protoNtB2_4Conn4send";
    // `<app::Job as core::future::Task>::run`
    let run = "_ZN47_$LT$app..Job$u20$as$u20$core..future..Task$GT$3run17h0123456789abcdefE";
    for word in ["svc::*", "net::*", "net::proto::*", "svc::*::send", "Conn::*"] {
        assert!(is(word, send) && !is(word, run), "{word}");
    }
    for word in ["app::*", "core::*", "future::*", "core::*::run"] {
        assert!(is(word, run) && !is(word, send), "{word}");
    }
    for word in ["sv::*", "svc::*::run", "et::*", "net::*::send::*", "net::proto", "svc::send"] {
        assert!(!is(word, send), "{word}");
    }
}

#[test]
fn the_last_word_of_a_list_decides() {
    let selected = |words: &[&str], function: &str| {
        let words: Vec<Word> = words.iter().map(|word| Word::listed(word)).collect();
        selects(&words, |word| word.matches(&FunctionNames::new([function], None)))
    };
    for (words, expected) in [
        (&["*", "!leaf"][..], [true, false]),
        (&["!leaf"], [true, false]),
        (&["!leaf", "leaf"], [true, true]),
        (&["leaf", "!*"], [false, false]),
        (&["leaf"], [false, true]),
        (&[], [false, false]),
    ] {
        assert_eq!(["main", "leaf"].map(|function| selected(words, function)), expected, "{words:?}");
        // A set of words that commands which trace use has the same rule.
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let has = |function| GlobSet::new(&words).has(&FunctionNames::new([function], None));
        assert_eq!(["main", "leaf"].map(has), expected, "{words:?}");
    }
}

#[test]
fn patterns_take_parts_too() {
    check("handle_*", &["handle_request", "_Z14handle_requestR7Request"]);
    check("Srv::*", &["_ZNK3Srv6handleEi", "_ZN2ns3Srv6handleEd"]);
    check("comp?te", &["_Z7computeIdET_S0_S0_", "_Z7computeIiET_S0_S0_"]);
    // `S*` does not match every function of a class whose name begins so.
    check("S*", &["_ZNK3Srv6handleEi"]);
    check("=handle_request", &["handle_request"]);
    check("=_ZNK3Srv6handleEi", &["_ZNK3Srv6handleEi"]);
    check("=Srv::handle(int) const", &["_ZNK3Srv6handleEi"]);
    check("=handle", &[]);
}

#[test]
fn modules_in_front_and_behind() {
    for module in
        ["libapp-2.1.so.3", "libapp-2.1.so", "libapp-2.1", "libapp", "app", "app-2.1", "lib*", "*.so*"]
    {
        check(&format!("{module}:anon"), &["_ZN12_GLOBAL__N_14anonEi"]);
        check(&format!("anon:mod:{module}"), &["_ZN12_GLOBAL__N_14anonEi"]);
        check(&format!("{module}:*"), &SYMBOLS);
        check(&format!("{module}:"), &SYMBOLS);
        check(&format!(":mod:{module}"), &SYMBOLS);
        check(&format!("anon:mod:!{module}"), &[]);
    }
    check("libapp:Srv::handle", &["_ZNK3Srv6handleEi", "_ZN2ns3Srv6handleEd"]);
    check("libap:*", &[]);
    check("other:anon", &[]);
    check("other:mod:x", &[]);
    let go = FunctionNames::new(["type:.eq.main.T"], Some("prog".into()));
    assert!(Word::new("type:.eq.main.T").matches(&go) && Word::new("type:.eq.*").matches(&go));
    assert!(Word::new("prog:type*").matches(&go) && !Word::new("libc:type*").matches(&go));
    assert!(!Word::new("prog:f").matches(&FunctionNames::new(["f"], None)));
}

#[test]
fn commas_separate_words_and_no_arguments() {
    let cases: [(&str, &[&str]); 6] = [
        ("a,b", &["a", "b"]),
        ("max<int, int>, f(int, char)", &["max<int, int>", "f(int, char)"]),
        ("operator,,a", &["operator,", "a"]),
        ("Box::operator<,b", &["Box::operator<", "b"]),
        ("", &[""]),
        ("a,", &["a"]),
    ];
    for (list, words) in cases {
        assert_eq!(split_list(list), words, "{list}");
    }
}

/// Makes the parts of a name with template arguments.
fn a_name() -> impl Strategy<Value = Vec<(String, String)>> {
    let generics =
        prop_oneof![Just(""), Just("<int>"), Just("<std::pair<a, b>, (c)>"), Just("<fn(u8) -> u8>")];
    proptest::collection::vec(("[a-z_][a-z0-9_]{0,6}", generics.prop_map(str::to_owned)), 1..5)
}

proptest! {
    /// Any word of the last parts of a name, with or without brackets, names it; with a changed
    /// part it does not.
    #[test]
    fn last_parts_are_enough(name in a_name(), keep in 1usize..5, mask in any::<u8>(), arguments in any::<bool>()) {
        let keep = keep.min(name.len());
        let render = |parts: &[(String, String)], mask: u8| {
            let part = |(n, (base, generics)): (usize, &(String, String))| {
                if mask >> n & 1 == 1 { format!("{base}{generics}") } else { base.clone() }
            };
            parts.iter().enumerate().map(part).collect::<Vec<_>>().join("::")
        };
        let full = render(&name, 0xFF) + "(int, char const*)";
        let last = &name[name.len() - keep..];
        let word = render(last, mask) + if arguments { "(int,char const *)" } else { "" };
        let short = |word: &str| crate::function::Shape::of(word).unwrap();
        let paths = crate::path::paths(&full);
        prop_assert_eq!(paths.len(), 1);
        let (shape, text) = short(&word);
        prop_assert_eq!(shape.spell(&full, &paths[0]), Some(text), "{} {}", full, word);
        let (shape, text) = short(&(word.clone() + "x"));
        prop_assert_ne!(shape.spell(&full, &paths[0]), Some(text));
    }

    /// The last word of a set that names a function decides, whichever way it is looked up.
    #[test]
    fn a_set_is_its_words_one_by_one(picked in proptest::collection::vec((any::<bool>(), 0usize..12), 0..6)) {
        const WORDS: [&str; 12] = ["handle_request", "Srv::handle", "*::handle", "compute<int>", "compute", "app:anon",
            "parse", "Task::run", "=handle", "m*", "*", "_ZNK3Srv6handleEi"];
        let words: Vec<String> =
            picked.iter().map(|(takes, n)| format!("{}{}", if *takes { "!" } else { "" }, WORDS[*n])).collect();
        let set = GlobSet::new(&words);
        for symbol in SYMBOLS {
            let function = FunctionNames::new([symbol], Some("libapp.so".into()));
            let last = words.iter().rev().find(|word| Word::new(word.trim_start_matches('!')).matches(&function));
            let begins = words.first().is_some_and(|word| word.starts_with('!'));
            let expected = last.map_or(begins, |word| !word.starts_with('!'));
            prop_assert_eq!(set.has(&function), expected, "{:?} {}", words, symbol);
        }
    }

    /// Any text is a word and a list, and may be a name.
    #[test]
    fn any_text_is_a_word(text in "[a-z:<>()\\[\\]{}* ,&-]{0,24}|.{0,12}", name in "[a-zé:<>(){} &-]{0,24}") {
        let _ = Word::new(&text).matches(&FunctionNames::new([name.as_str()], Some(text.as_str().into())));
        let _ = crate::path::paths(&text);
        let _ = split_list(&text);
    }
}

#[test]
fn thousands_of_names_are_looked_up() {
    let words: Vec<String> = (0..20_000).map(|n| format!("ns::Type{n}::method{n}")).collect();
    let set = GlobSet::new(&words);
    let symbols: Vec<String> = (0..20_000).map(|n| format!("_ZN2ns4Type{}method{n}Ev", n)).collect();
    let mangled = |n: usize| {
        let (outer, inner) = (format!("Type{n}"), format!("method{n}"));
        format!("_ZN3top2ns{}{outer}{}{inner}Ei", outer.len(), inner.len())
    };
    // Comparing each function with each word would take 400 million comparisons, for minutes.
    assert!((0..20_000).all(|n| set.has(&FunctionNames::new([mangled(n).as_str()], None))));
    assert!(!symbols.iter().any(|symbol| set.has(&FunctionNames::new([symbol.as_str()], None))));
}

#[test]
fn names_of_sources_and_of_tables_are_words() {
    let handle = "_ZN3Srv6handleERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
    let vector = "_ZNSt6vectorIiSaIiEEC2ERKS1_";
    let is = |word: &str, symbol: &str| {
        let module = ModuleNames::from("libapp.so.3");
        is_named(&Word::new(word), std::iter::once(symbol), Some(module))
    };
    for word in [
        "Srv::handle(std::string const&)",
        "handle(std::string const&)",
        "libapp:Srv::handle(std::string const&)",
        "/usr/lib/libapp.so.3:*handle*",
        "/usr/lib/libapp.so.3:handle",
    ] {
        assert!(is(word, handle), "{word}");
    }
    for word in ["Srv::handle(std::string)", "handle(my::std::string const&)", "/usr/lib/libother.so:handle"]
    {
        assert!(!is(word, handle), "{word}");
    }
    let run = "_ZN47_$LT$app..Job$u20$as$u20$core..future..Task$GT$3run17h0123456789abcdefE";
    for word in ["<Job as Task>::run", "<app::Job as core::future::Task>::run", "<Job<..> as Task<..>>::run"]
    {
        assert!(is(word, run), "{word}");
    }
    for word in ["<Job as Other>::run", "<Other as Task>::run", "<Job as Task>::walk"] {
        assert!(!is(word, run), "{word}");
    }
    for word in ["std::vector<..>::vector", "vector<..>::vector", "std::vector::vector"] {
        assert!(is(word, vector), "{word}");
    }
}
