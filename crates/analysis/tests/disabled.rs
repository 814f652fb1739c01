//! Tests that every view reports the functions disabled by the overhead limit first.

use crate::common::{output, recording, rows};
use calltap_analysis::{MemorySource, diff, disabled, graph, info, replay, report};
use calltap_trace::{DisabledByLimit, SiteId};

const FIRST: &str = "1 of 2 functions was disabled by --max-overhead (leaf): calls are missing, and callers' times include them; '--max-overhead none' keeps all";

fn source() -> MemorySource {
    let mut source = recording("main: E main @0; E leaf @100; X leaf @200; X main @1000");
    // The function was enabled again by hand, and disabled once more.
    source.meta.disabled_by_limit = vec![DisabledByLimit { site: SiteId(1), events_per_s: 12_300_000 }; 2];
    source
}

#[test]
fn every_view_says_so_first() {
    let source = source();
    let first = format!("# {FIRST}\n");
    let collected = report::collect(&source, &report::Options::default(), None).unwrap();
    let views = [
        output(|out| graph::write(&source, &graph::Options::default(), out, None)),
        output(|out| replay::write(&source, &replay::Options::default(), out, None).map(drop)),
        output(|out| {
            collected.write(report::Format::Text, out).unwrap();
            Ok(())
        }),
    ];
    for view in views {
        assert!(view.starts_with(&first), "{view}");
    }
}

#[test]
fn tables_show_sums_of_disabled_functions_as_lower_bounds() {
    let source = source();
    let collected = report::collect(&source, &report::Options::default(), None).unwrap();
    let report = output(|out| {
        collected.write(report::Format::Text, out).unwrap();
        Ok(())
    });
    let graph = output(|out| graph::write(&source, &graph::Options::default(), out, None));
    for (table, sums) in [(report, 3), (graph, 2)] {
        let of = |function: &str| {
            let row = table.lines().find(|line| line.ends_with(function)).unwrap_or(&table);
            row.matches('>').count()
        };
        assert_eq!((of("main"), of("leaf")), (0, sums), "{table}");
    }
}

#[test]
fn rows_for_programs_say_of_which_functions_calls_are_missing() {
    let source = source();
    let collected = report::collect(&source, &report::Options::default(), None).unwrap();
    let json = output(|out| {
        collected.write(report::Format::Json, out).unwrap();
        Ok(())
    });
    let listed: serde_json::Value = serde_json::from_str(&rows(&json)).unwrap();
    let disabled: Vec<(&str, bool)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["function"].as_str().unwrap(), row["disabled_by_limit"] == true))
        .collect();
    assert_eq!(disabled, [("main", false), ("leaf", true)]);
    let options = graph::Options { json: true, ..graph::Options::default() };
    let graph = output(|out| graph::write(&source, &options, out, None));
    let nodes: serde_json::Value = serde_json::from_str(&rows(&graph)).unwrap();
    let is_disabled =
        |node: &serde_json::Value| (node["function"].clone(), node["disabled_by_limit"] == true);
    let nodes: Vec<_> =
        nodes.as_array().unwrap().iter().map(is_disabled).filter(|node| node.0.is_string()).collect();
    assert_eq!(nodes, [("main".into(), false), ("leaf".into(), true)]);
}

#[test]
fn diff_names_functions_disabled_by_limit() {
    let (limited, all) = (source(), recording("main: E main @0; E leaf @100; X leaf @200; X main @1000"));
    let diff = diff::collect([&[("a", &limited)], &[("b", &all)]], &diff::Options::default(), None).unwrap();
    let json = output(|out| {
        diff.write_json(out).unwrap();
        Ok(())
    });
    let told: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&told["a"]["disabled_by_limit"], &told["b"]["disabled_by_limit"]),
        (&["leaf"][..].into(), &Vec::<&str>::new().into())
    );
}

#[test]
fn info_lists_all_functions_disabled_by_limit_with_rates() {
    let text = output(|out| info::write(&source(), &info::Options::default(), out));
    assert!(text.contains("leaf, by --max-overhead: 12,300,000 events a second"), "{text}");
}

#[test]
fn the_first_few_are_named() {
    let names = |n: usize| (0..n).map(|n| format!("f{n}")).collect::<Vec<_>>();
    assert_eq!(disabled::sentence(names(0), Some(7)), None);
    let many = disabled::sentence(names(1842), Some(2000)).unwrap();
    assert!(
        many.starts_with(
            "1,842 of 2,000 functions were disabled by --max-overhead (f0, f1, f2, f3, f4 and 1,837 more)"
        ),
        "{many}"
    );
}
