//! `record --kernel`: functions of the kernel within the calls of the program, as many as the
//! program causes.

use crate::guest::{Steps, kernels, run_script};
use calltap_e2e::{GCC, compile, one_line, rows_of};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::thread;

/// Number of writes in `save`, in two processes, and of reads in `load`.
const WRITES: u64 = 203;
const READS: u64 = 7;

const SCRIPT: &str = r#"
step record calltap record --kernel vfs_write,vfs_read -o whole.data -- files /tmp/file
step report calltap report --format json -i whole.data
step chrome calltap export --to chrome -i whole.data
step replay calltap replay -i whole.data
step graph calltap graph -i whole.data
step follow calltap record --follow -F 'files:*' --kernel vfs_write -o follow.data -- /opt/setpriv --nnp files /tmp/file
step followed calltap export --to chrome -i follow.data
step events calltap record --events sched,syscalls,faults --kernel vfs_write -o events.data -- files /tmp/file
step recorded calltap replay -i events.data
sh -c 'files /tmp/one on & files /tmp/two on & wait' &
shell=$!
sleep 1
step children calltap record -p $shell --children --duration 500ms -F 'files:*' --kernel vfs_write -o children.data
step of_children sh -c 'for file in children.data.*; do calltap report --format json -i $file; done'
killall files
step missing calltap record --kernel 'vfs_write,no_such*' -o missing.data -- files /tmp/file
step clock calltap record --kernel 'vfs_*' --clock coarse -o clock.data -- files /tmp/file
step user /opt/setpriv --reuid 1000 --clear-groups calltap record --kernel 'vfs_*' -o user.data -- files /tmp/other
mkdir /tmp/tracing
mount -t tracefs nodev /tmp/tracing
step before ls /tmp/tracing/instances
files /tmp/file on &
program=$!
calltap record -q -p $program --kernel vfs_write -o killed.data &
recorder=$!
for i in $(seq 300); do
    cat /tmp/tracing/instances/*/current_tracer 2>/dev/null | grep -q function && break
    usleep 100000
done
step switched_on cat /tmp/tracing/instances/*/current_tracer
for i in $(seq 300); do
    calltap info -i killed.data 2>/dev/null | grep -q vfs_write && break
    usleep 100000
done
kill -9 $recorder
wait $recorder
for i in $(seq 300); do
    test -z "$(ls /tmp/tracing/instances)" && break
    usleep 100000
done
step left ls /tmp/tracing/instances
step killed calltap info -i killed.data
step detach calltap detach -p $program
step after ls /tmp/tracing/instances
step attach calltap record -p $program --duration 300ms --kernel vfs_write -o attached.data
step attached calltap report --format json -i attached.data
flood() {
    calltap record -q --fail-on-loss -p $program --duration 2s --kernel '*' -o flood.data &
    recorder=$!
    for i in $(seq 300); do
        cat /tmp/tracing/instances/*/current_tracer 2>/dev/null | grep -q function && break
        usleep 100000
    done
    kill -STOP $recorder
    for i in $(seq 300); do
        cat /tmp/tracing/instances/*/per_cpu/cpu*/stats | grep -q '^overrun: [1-9][0-9][0-9][0-9]' && break
        usleep 100000
    done
    kill -CONT $recorder
    wait $recorder
}
step flood flood
step flooded calltap info -i flood.data
kill -9 $program
"#;

fn rows(steps: &Steps, step: &str) -> Vec<Value> {
    rows_of(steps.output(step))
}

fn calls(rows: &[Value], function: &str) -> u64 {
    let own = rows.iter().filter(|row| row["function"] == function);
    own.map(|row| row["calls"].as_u64().expect("a number")).sum()
}

/// Counts the calls of a function within one of another. Times of a thread must not decrease.
fn calls_within(chrome: &Value, inner: &str, outer: &str) -> u64 {
    let mut threads: HashMap<u64, (f64, Vec<&str>)> = HashMap::new();
    let mut within = 0;
    for event in chrome["traceEvents"].as_array().expect("events") {
        let ("B" | "E", Some(tid), Some(at)) =
            (event["ph"].as_str().unwrap_or_default(), event["tid"].as_u64(), event["ts"].as_f64())
        else {
            continue;
        };
        let (last, open) = threads.entry(tid).or_default();
        assert!(at >= *last, "{event} behind {last}");
        *last = at;
        if event["ph"] == "E" {
            open.pop().expect("an open call");
            continue;
        }
        let name = event["name"].as_str().expect("a name");
        within += u64::from(name == inner && open.last() == Some(&outer));
        open.push(name);
    }
    within
}

fn check(kernel: &Path) {
    let program = compile(GCC, &["files.c"], &["-pthread"]);
    let steps = run_script(kernel, &[&program.path, Path::new("/usr/bin/setpriv")], SCRIPT);
    let what = kernel.display();
    let said = &steps.of("record").stderr;
    let by_graph = said.contains(" by function_graph, ");
    assert!(by_graph || said.contains(" by function, "), "{what}: {said}");
    assert!(said.contains("210 calls of functions of the kernel (vfs_write,vfs_read)"), "{what}: {said}");
    assert!(said.contains("in 3 threads\n") && !said.contains("LOST"), "{what}: {said}");
    let report = rows(&steps, "report");
    assert_eq!([calls(&report, "vfs_write"), calls(&report, "vfs_read")], [WRITES, READS], "{what}");
    assert_eq!([calls(&report, "save"), calls(&report, "load")], [21, 1], "{what}");
    let is_of_kernel = |row: &Value| row["module"] == "[kernel]";
    assert_eq!(report.iter().filter(|row| is_of_kernel(row)).count(), 2, "{what}: {report:?}");
    if by_graph {
        let chrome = serde_json::from_str(steps.output("chrome")).expect("JSON");
        assert_eq!(calls_within(&chrome, "vfs_write", "save"), WRITES, "{what}");
        assert_eq!(calls_within(&chrome, "vfs_read", "load"), READS, "{what}");
        // `()` also matches a call that is no leaf, as its thread was descheduled within it.
        assert_eq!(steps.output("replay").matches("vfs_write [kernel]()").count() as u64, WRITES);
    }
    let graph = steps.output("graph");
    let ends = |name: &str| graph.lines().filter(|line| line.ends_with(name)).count();
    // If the calls that the forked child continues are known, its calls belong to the same `save`.
    let [writes, reads] = [ends("    vfs_write [kernel]"), ends("    vfs_read [kernel]")];
    assert!([1, 2].contains(&writes) && reads == 1, "{what}: {graph}");
    several_processes(&steps, by_graph);
    refuses(&steps);
    tells_of_losses(&steps);
    leaves_nothing(&steps, said.contains("function_graph"));
    let attached = rows(&steps, "attached");
    let [writes, saves] = [calls(&attached, "vfs_write"), calls(&attached, "save")];
    // calltap may attach and detach within a call.
    assert!(saves > 1 && writes.abs_diff(10 * saves) <= 40, "{what}: {writes} in {saves} calls");
}

/// Functions of the kernel with `--follow`, with `--events` and with `--children`, whose shell has
/// no such function.
fn several_processes(steps: &Steps, by_graph: bool) {
    let recorded = steps.output("recorded");
    if by_graph {
        let followed = serde_json::from_str(steps.output("followed")).expect("JSON");
        assert_eq!(calls_within(&followed, "vfs_write", "save"), WRITES);
        assert_eq!(recorded.matches("vfs_write [kernel]()").count() as u64, WRITES, "{recorded}");
    }
    let said = &steps.of("events").stderr;
    assert!(recorded.contains("/* page fault at 0x"), "{said}{recorded}");
    let reports = serde_json::Deserializer::from_str(steps.output("of_children")).into_iter();
    let reports: Vec<Value> = reports.map(|report| report.expect("a report")).collect();
    assert_eq!(reports.len(), 2, "{}", steps.of("children").stderr);
    for report in reports {
        let rows = rows_of(&report.to_string());
        let [writes, saves] = [calls(&rows, "vfs_write"), calls(&rows, "save")];
        assert!(saves > 1 && writes.abs_diff(10 * saves) <= 40, "{writes} in {saves} calls");
    }
}

fn refuses(steps: &Steps) {
    let refused = |name: &str, words: &[&str]| {
        let run = steps.of(name);
        assert!(!run.status.success(), "{name}: {}", run.stderr);
        one_line(run, words);
    };
    refused("missing", &["'no_such*' matches none", "available_filter_functions"]);
    refused("clock", &["--kernel", "--clock tsc"]);
    refused("user", &["tracefs needs root", "run calltap as root"]);
}

/// A stopped recorder does not read the kernel's buffers, which the kernel then overwrites.
fn tells_of_losses(steps: &Steps) {
    let flood = steps.of("flood");
    assert_eq!(flood.status.code(), Some(3), "{}", flood.stderr);
    let told = flood.stderr.lines().find(|line| line.contains("in the kernel's buffers"));
    let told = told.unwrap_or_else(|| panic!("{}", flood.stderr));
    let lost = told.split_whitespace().find_map(|word| word.replace(',', "").parse::<u64>().ok());
    // Where a page of the kernel's buffer has no room for the number, it is not known.
    assert!(lost.is_some_and(|lost| lost >= 1000 || lost > 0 && told.contains("LOST at least ")), "{told}");
    let info = steps.output("flooded");
    let calls = info.lines().find(|line| line.starts_with("calls ")).expect("calls");
    assert!(!calls.contains("+ 0 lost"), "{info}");
}

/// The instance of tracefs of a killed recorder is removed with its enabled events.
fn leaves_nothing(steps: &Steps, by_graph: bool) {
    assert_eq!(steps.output("before"), "");
    let tracer = if by_graph { "function_graph\n" } else { "function\n" };
    assert_eq!(steps.output("switched_on"), tracer);
    assert_eq!(steps.output("left"), "");
    let killed = steps.output("killed");
    assert!(
        killed.contains("functions of the kernel (vfs_write) were recorded, and are missing"),
        "{killed}"
    );
    steps.output("detach");
    assert_eq!(steps.output("after"), "");
}

#[test]
fn kernel_functions_are_nested_in_calling_functions() {
    let kernels = kernels();
    thread::scope(|scope| {
        let running: Vec<_> =
            kernels.iter().map(|kernel| (kernel, scope.spawn(move || check(kernel)))).collect();
        for (kernel, running) in running {
            assert!(running.join().is_ok(), "{}", kernel.display());
        }
    });
}
