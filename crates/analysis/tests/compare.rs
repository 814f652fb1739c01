//! Tests of the flame graph of differences.

use crate::common::recording;
use calltap_analysis::MemorySource;
use calltap_analysis::explore::{Base, Calls, ComparedFlame, Explorer, Width};
use calltap_analysis::paths::By;
use calltap_analysis::timeline::Limits;

/// The base: main calls a for 30 ns, and old for 20 ns.
const OLD: &str = "t: E main @0; E a @10; X a @40; E old @50; X old @70; X main @100";
/// The trace: main calls b, twice a for 50 ns in all, and new for 100 ns.
const NEW: &str =
    "t: E main @0; E b @2; X b @5; E a @10; X a @40; E a @50; X a @70; E new @100; X new @200; X main @250";

fn pair() -> (Base<MemorySource>, Explorer<MemorySource>) {
    let explorer = Explorer::new(recording(NEW), Limits::default(), None).expect("a trace");
    (Base::new(recording(OLD), &explorer, None).expect("a base"), explorer)
}

/// Returns the boxes in words: level, function, calls and weight of both sides.
fn shown(flame: &ComparedFlame) -> Vec<String> {
    let mut boxes: Vec<_> = flame.boxes.iter().collect();
    boxes.sort_by(|a, b| (a.level, a.left).partial_cmp(&(b.level, b.left)).expect("numbers"));
    let line = |one: &&calltap_analysis::explore::ComparedBox| {
        let name = one.name.as_deref().unwrap_or("all");
        let is_gone = if one.site.is_none() && one.name.is_some() { " gone" } else { "" };
        format!("{} {name} {:?} {:?} {:?}{is_gone}", one.level, one.calls, one.weight, one.own)
    };
    boxes.iter().map(line).collect()
}

#[test]
fn each_width_shows_its_own_calls() {
    let (base, explorer) = pair();
    let width = |of_base| Width { by: By::Wall, of_base, narrowest: 0.001 };
    let own = base.flame(&explorer, Calls::All(0), width(false)).expect("a graph");
    assert_eq!(
        shown(&own),
        [
            "0 all [0, 0] [100, 250] [0, 0]",
            "1 main [1, 1] [100, 250] [50, 97]",
            "2 b [0, 1] [0, 3] [0, 3]",
            "2 a [1, 2] [30, 50] [30, 50]",
            "2 new [0, 1] [0, 100] [0, 100]",
        ]
    );
    assert_eq!((own.alone, own.timed), ([20, 103], true));
    let of_base = base.flame(&explorer, Calls::All(0), width(true)).expect("a graph");
    assert_eq!(shown(&of_base)[2..], ["2 a [1, 2] [30, 50] [30, 50]", "2 old [1, 0] [20, 0] [20, 0] gone"]);
    let a = own.boxes.iter().find(|one| one.name.as_deref() == Some("a")).expect("a");
    assert_eq!((a.left, a.width), (3.0 / 250.0, 50.0 / 250.0));
    let above = base.flame(&explorer, Calls::All(a.node), width(false)).expect("a graph");
    assert_eq!(shown(&above), ["0 a [1, 2] [30, 50] [30, 50]"]);
    assert_eq!(above.below.iter().map(|(_, name)| name.as_deref()).collect::<Vec<_>>(), [None, Some("main")]);
}

#[test]
fn a_function_has_the_callers_and_callees_of_both() {
    let (base, explorer) = pair();
    let width = Width { by: By::Wall, of_base: false, narrowest: 0.001 };
    let function = |name: &str| explorer.functions.iter().find(|one| one.name == name).expect("a function");
    let of = |name, callers| {
        let calls = Calls::Of { function: function(name), callers };
        shown(&base.flame(&explorer, calls, width).expect("a graph"))
    };
    assert_eq!(of("a", true)[1..], ["1 main [1, 2] [30, 50] [30, 50]"]);
    assert_eq!(of("new", true)[1..], ["1 main [0, 1] [0, 100] [0, 100]"]);
    assert_eq!(of("main", false).len(), 5);
}
