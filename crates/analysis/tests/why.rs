//! Tests of chains of waits, in text and JSON.

use crate::common::recording;
use calltap_analysis::MemorySource;
use calltap_analysis::why::{CallToExplain, Rule, Why, locks, why, why_call};
use calltap_trace::RunState::*;
use calltap_trace::*;
use serde_json::Value;

const LOCK: u64 = 0x404040;

/// Makes a recording in which main waits for a lock of a worker, which waits for a pipe that
/// another process fills; both use some processor time.
fn waiting() -> MemorySource {
    waiting_beside("")
}

/// Makes that recording with more threads.
fn waiting_beside(others: &str) -> MemorySource {
    let mut source = recording(&format!(
        "main: E handle @10ms; E want_lock @11ms; X want_lock @30ms; X handle @31ms
         worker: E evict @5ms; E fill @8ms; X fill @27ms; X evict @29ms{others}"
    ));
    let ms = 1_000_000;
    let switches = |list: &[(u64, RunState)]| -> Vec<Switch> {
        list.iter().map(|(at, to)| Switch { at: at * ms, to: *to }).collect()
    };
    let (main, worker) = (ThreadId(0), ThreadId(1));
    source.switches.insert(main, switches(&[(1, Running), (12, Blocked), (29, Running)]));
    source.switches.insert(worker, switches(&[(1, Running), (9, Blocked), (26, Running)]));
    let waking =
        |at, interrupt, pid, tid, comm: &str| Waking { at: at * ms, interrupt, pid, tid, comm: comm.into() };
    let known = vec![(0, 40 * ms)];
    let log = |entries| KernelLog { entries, known: known.clone() };
    source.wakings.insert(main, log(vec![waking(28, false, 100, 101, "app")]));
    source.wakings.insert(worker, log(vec![waking(24, false, 77, 78, "cat")]));
    let enter =
        |at, number, first| SystemCall { at: at * ms, number, edge: Edge::Enter([first, 128, 2, 0, 0, 0]) };
    source.system_calls.insert(main, KernelLog { entries: vec![enter(12, 202, LOCK)], known: known.clone() });
    source.system_calls.insert(worker, KernelLog { entries: vec![enter(9, 0, 7)], known });
    let (name, place) = (Some("m".to_owned()), "/usr/bin/app".to_owned());
    source.meta.addresses.push(Address {
        process: 0,
        address: LOCK,
        name,
        object: None,
        place,
        recorder: false,
    });
    let events = KernelEvents { wakings: true, system_calls: true, recorder: 999, ..KernelEvents::default() };
    source.meta.kernel_events = Some(events);
    source
}

fn question(json: bool, summary: bool) -> Why {
    let rules = vec![Rule { function: "handle".into(), ns: 10_000_000 }];
    Why { rules, limit: None, summary, json, linker_names: false }
}

fn ask(source: &MemorySource, json: bool, summary: bool) -> String {
    why(source, &question(json, summary)).expect("an answer")
}

#[test]
fn a_chain_leads_from_the_slow_call_to_another_process() {
    let expected = "21.000 ms  handle  main-100  at 0.005000 s
     4.000 ms  ran: handle 2.000 ms, want_lock 2.000 ms
    16.000 ms  blocked in futex(m, FUTEX_WAIT) <- want_lock
               woken by worker-101 in evict
               meanwhile worker-101:
                  2.000 ms  ran: evict 1.000 ms, fill 1.000 ms
                 12.000 ms  blocked in read(7) <- fill <- evict
                            woken by cat (process 77)
                  2.000 ms  runnable: it could run, and had no processor
     1.000 ms  runnable: it could run, and had no processor
";
    let text = ask(&waiting(), false, false);
    let body = text.split_once("21.000").map(|(_, rest)| format!("21.000{rest}")).expect("the call");
    assert_eq!(body.trim_end(), expected.trim_end(), "{text}");
}

// Merging puts the kernel's calls into a thread of their own if the clocks are not the same.
#[test]
fn waker_is_the_thread_of_the_program_beside_that_of_the_kernel() {
    let mut source = waiting_beside("\n kernel: E sys_write @6ms; X sys_write @28500us");
    source.meta.threads[2].tid = source.meta.threads[1].tid;
    let text = ask(&source, false, false);
    assert!(text.contains("woken by worker-101 in evict\n"), "{text}");
}

#[test]
fn a_call_of_the_timeline_is_explained_with_the_places_of_its_chain() {
    let (source, ms) = (waiting(), 1_000_000_u64);
    let asked =
        CallToExplain { thread: ThreadId(0), site: Some(SiteId(0)), from_ns: 10 * ms, to_ns: 31 * ms };
    let told = why_call(&source, asked, 2 * ms).expect("an answer");
    let all: Value = serde_json::from_str(&ask(&source, true, false)).expect("JSON");
    assert_eq!(told["did"], all["calls"][0]["did"], "as 'calltap why' says it");
    let links = serde_json::json!([
        { "thread": 0, "start": 8 * ms, "length": 21 * ms, "waits": [[10 * ms, 16 * ms, 1]] },
        { "thread": 1, "start": 10 * ms, "length": 16 * ms, "waits": [[10 * ms, 12 * ms, null]] },
    ]);
    assert_eq!(told["links"], links);
}

#[test]
fn the_parts_are_all_of_the_time() {
    let answer: Value = serde_json::from_str(&ask(&waiting(), true, false)).expect("JSON");
    let did = &answer["calls"][0]["did"];
    let part = |value: &Value| value.as_u64().expect("a time");
    let all = part(&did["cpu_ns"]) + part(&did["runnable_ns"]) + part(&did["blocked"][0]["ns"]);
    assert_eq!(all, 21_000_000);
    let summed: Value = serde_json::from_str(&ask(&waiting(), true, true)).expect("JSON");
    let causes = summed["causes"].as_array().expect("causes");
    assert_eq!(causes.iter().map(|cause| part(&cause["ns"])).sum::<u64>(), 21_000_000, "{summed:#}");
    assert_eq!(causes[0]["cause"], "blocked in futex(m, FUTEX_WAIT) <- want_lock, until woken by evict");
}

#[test]
fn missing_kernel_events_are_reported_as_unknown() {
    let mut source = waiting();
    source.wakings.clear();
    source.system_calls.clear();
    source.meta.kernel_events = None;
    let text = ask(&source, false, false);
    assert!(text.contains("blocked (the system call is not known) <- want_lock"), "{text}");
    assert!(text.contains("its waker is unknown") && text.contains("--events"), "{text}");
    source.switches.clear();
    assert!(ask(&source, false, false).contains("21.000 ms  unknown"), "{text}");
}

#[test]
fn time_taken_by_recorder_is_marked() {
    let mut source = waiting();
    let waking = &mut source.wakings.get_mut(&ThreadId(0)).expect("a log").entries[0];
    (waking.pid, waking.tid) = (999, 999);
    // The wait for the lock is the program's own, whatever ended it.
    assert!(ask(&source, false, false).contains("interrupted by calltap"));
    let stopped = SystemCall { at: 11_900_000, number: 1, edge: Edge::Exit(0) };
    source.system_calls.get_mut(&ThreadId(0)).expect("a log").entries = vec![stopped];
    assert!(ask(&source, false, false).contains("woken by calltap"));
    let mut source = waiting();
    source.meta.addresses[0].recorder = true;
    assert!(ask(&source, false, true).contains("calltap: time that tracing took"));
}

#[test]
fn threads_that_wait_for_each_other_are_followed_once() {
    let mut source = waiting();
    let waking = &mut source.wakings.get_mut(&ThreadId(1)).expect("a log").entries[0];
    (waking.pid, waking.tid) = (100, 100);
    let answer: Value = serde_json::from_str(&ask(&source, true, false)).expect("JSON");
    let inner = &answer["calls"][0]["did"]["blocked"][0]["meanwhile"]["blocked"][0];
    assert_eq!(inner["woken_by"]["thread"], "main", "{answer:#}");
    assert_eq!(inner["meanwhile"], Value::Null, "{answer:#}");
}

#[test]
fn the_rest_of_a_call_in_a_forked_child_is_no_slow_call() {
    // Within the rest of a call, that call is as slow as the rest.
    let source = recording(
        "child: R handle @10ms; E handle @11ms; X handle @31ms; X handle @50ms
         other: R handle @10ms; X handle @50ms",
    );
    let told: Value = serde_json::from_str(&ask(&source, true, false)).expect("JSON");
    let calls = told["calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 1, "{told:#}");
    assert_eq!(calls[0]["duration_ns"], 20_000_000, "{told:#}");
}

#[test]
fn cut_call_is_not_slow_but_its_callees_may_be() {
    let lost = "E handle @10ms; L 5/1 @11ms; E other @40ms; X other @60ms; X run @61ms";
    for (events, durations) in [
        (format!("main: E run @1ms; {lost}"), vec![]),
        (format!("main: E run @1ms; E handle @5ms; {lost}"), vec![]),
        (
            "main: E handle @1ms; E handle @2ms; X handle @22ms; L 0/1 @23ms; E other @50ms".to_owned(),
            vec![20_000_000],
        ),
        ("main: E handle @1ms; E handle @2ms; X handle @22ms; X handle @23ms".to_owned(), vec![22_000_000]),
        ("main: E handle @1ms; E other @2ms; X other @23ms".to_owned(), vec![22_000_000]),
    ] {
        let told: Value = serde_json::from_str(&ask(&recording(&events), true, false)).expect("JSON");
        let calls = told["calls"].as_array().expect("calls");
        let got: Vec<u64> = calls.iter().filter_map(|call| call["duration_ns"].as_u64()).collect();
        assert_eq!(got, durations, "{events}: {told:#}");
    }
}

#[test]
fn locks_are_named_by_symbol() {
    let answer: Value =
        serde_json::from_str(&locks(&waiting(), false, None, true).expect("an answer")).expect("JSON");
    let lock = &answer["locks"][0];
    assert_eq!((&lock["symbol"], &lock["waits"]), (&"m".into(), &1.into()), "{answer:#}");
    assert_eq!((&lock["total_ns"], &lock["max_ns"]), (&16_000_000.into(), &16_000_000.into()));
    assert_eq!(lock["waits_in"][0]["function"], "want_lock");
    assert_eq!(lock["woken_in"][0]["function"], "evict");
    assert_eq!(lock["waits_in"][0]["path"].as_array().map(Vec::len), Some(2), "{lock:#}");
    assert_eq!(answer["locks"].as_array().map(Vec::len), Some(1), "a read is no lock");
}

/// Makes a goroutine that waits for a channel, then for an unknown reason; it does not wait after
/// that.
fn parked() -> MemorySource {
    let mut source = recording(
        "goroutine: E handle @10ms; E runtime.chanrecv @12ms; E runtime.gopark @13ms; X runtime.gopark @20ms; X runtime.chanrecv @21ms
         goroutine: E runtime.mallocgc @22ms; E runtime.gopark @23ms; X runtime.gopark @25ms; X runtime.mallocgc @26ms
         goroutine: E sync.runtime_SemacquireMutex @30ms; E runtime.semacquire1 @30ms; E runtime.gopark @31ms; X runtime.gopark @36ms; X runtime.semacquire1 @36ms; X sync.runtime_SemacquireMutex @36ms; X handle @40ms",
    );
    source.meta.threads[0].goroutine = Some(7);
    source
}

#[test]
fn goroutine_wait_is_named_after_caller_of_gopark() {
    let text = ask(&parked(), false, false);
    let expected = "30.000 ms  handle  goroutine-100  at 0.000000 s
     7.000 ms  blocked in chan receive <- runtime.chanrecv
     5.000 ms  blocked in sync.Mutex or sync.RWMutex <- runtime.semacquire1 <- sync.runtime_SemacquireMutex
     2.000 ms  blocked in a wait of the Go runtime for an unknown reason <- runtime.mallocgc
    16.000 ms  unknown whether it ran, could run, or was in a system call: handle 11.000 ms, runtime.chanrecv 2.000 ms, runtime.mallocgc 2.000 ms, runtime.semacquire1 1.000 ms
";
    let body = text.split_once("30.000").map(|(_, rest)| format!("30.000{rest}")).expect("the call");
    assert_eq!(body.trim_end(), expected.trim_end(), "{text}");
    assert!(text.contains("its wait lasts until it runs again"), "{text}");
    let json: Value = serde_json::from_str(&ask(&parked(), true, false)).expect("JSON");
    let did = &json["calls"][0]["did"];
    assert_eq!((&did["cpu_ns"], &did["unknown_ns"]), (&0.into(), &16_000_000.into()), "{did:#}");
    assert_eq!(did["unknown"][0]["function"], "handle", "{did:#}");
    let summary = ask(&parked(), false, true);
    assert!(summary.contains("blocked in chan receive <- runtime.chanrecv\n"), "{summary}");
}

#[test]
fn missing_gopark_is_reported() {
    let mut source = recording("goroutine: E handle @10ms; X handle @40ms");
    source.meta.threads[0].goroutine = Some(7);
    let text = ask(&source, false, false);
    assert!(text.contains("runtime.gopark is not traced"), "{text}");
    assert!(text.contains("30.000 ms  unknown whether it ran"), "{text}");
}

/// Makes a recording in which threads run a goroutine twice, with a system call, and leave it
/// without parking it. `others`: what another thread runs.
fn run_by_threads(others: &str) -> MemorySource {
    let mut source = recording(&format!(
        "goroutine: E runtime.gopark @1ms; X runtime.gopark @2ms; E handle @10ms; E work @12ms; X work @20ms; X handle @60ms
         m0: E runtime.execute @9ms; E runtime.schedule @30ms; E runtime.execute @50ms; E runtime.schedule @70ms
         m1: {others}"
    ));
    let ms = 1_000_000;
    let (goroutine, m0) = (ThreadId(0), ThreadId(1));
    source.meta.threads[0].goroutine = Some(7);
    let stay = |at| GoroutineRun { at: at * ms, on: m0 };
    source.goroutine_runs.insert(goroutine, vec![stay(10), stay(60)]);
    let switch = |(at, to)| Switch { at: at * ms, to };
    source.switches.insert(m0, [(1, Running), (14, Blocked), (18, Running)].map(switch).to_vec());
    let call = SystemCall { at: 13 * ms, number: 0, edge: Edge::Enter([7, 0, 0, 0, 0, 0]) };
    source.system_calls.insert(m0, KernelLog { entries: vec![call], known: vec![(0, 90 * ms)] });
    let (filter, notrace, kind) = (Vec::new(), Vec::new(), TracerKind::FunctionGraph);
    let tracer = TracerInfo { id: 0, name: "t".to_owned(), kind, filter, notrace };
    source.meta.session = Some(Session { tracers: vec![tracer], ..Session::of(ClockKind::Tsc) });
    source
}

/// Checks the milliseconds in which the goroutine ran, was ready to run, was in states that are not
/// known, and waited in a system call.
#[track_caller]
fn check_states(source: &MemorySource, expected: [u64; 4]) {
    let json: Value = serde_json::from_str(&ask(source, true, false)).expect("JSON");
    let did = &json["calls"][0]["did"];
    let blocked = did["blocked"].as_array().expect("waits").iter().map(|wait| wait["ns"].as_u64());
    let ns = |key: &str| did[key].as_u64().expect("known");
    let got =
        [ns("cpu_ns"), ns("runnable_ns"), ns("unknown_ns"), blocked.map(Option::unwrap_or_default).sum()];
    assert_eq!(got.map(|ns| ns / 1_000_000), expected, "{did:#}");
}

#[test]
fn goroutine_has_states_of_its_thread() {
    let source = run_by_threads("E runtime.execute @5ms; E runtime.schedule @6ms");
    check_states(&source, [26, 20, 0, 4]);
    let text = ask(&source, false, false);
    for line in [
        "26.000 ms  ran: handle 22.000 ms, work 4.000 ms",
        "4.000 ms  blocked in read(7) <- work",
        "20.000 ms  runnable: it could run, and had no thread or no processor",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_goroutine_that_may_have_run_elsewhere_is_not_taken_for_runnable() {
    // A thread ran something unknown, within the time in which the goroutine was on no other.
    check_states(&run_by_threads("E runtime.execute @35ms; E runtime.schedule @40ms"), [26, 0, 20, 4]);
    // The goroutine was on its own thread when the other began, or was so again before it ended.
    check_states(&run_by_threads("E runtime.execute @25ms; E runtime.schedule @40ms"), [26, 20, 0, 4]);
    check_states(&run_by_threads("E runtime.execute @35ms; E runtime.schedule @55ms"), [26, 20, 0, 4]);
    check_states(
        &run_by_threads("E runtime.schedule @1ms; L 1/1 @40ms; E runtime.schedule @45ms"),
        [26, 0, 20, 4],
    );
    let mut limited = run_by_threads("E runtime.execute @5ms; E runtime.schedule @6ms");
    let site = limited.meta.sites.iter().find(|site| site.name == "runtime.schedule").expect("a site").id;
    limited.meta.disabled_by_limit.push(DisabledByLimit { site, events_per_s: 9 });
    check_states(&limited, [0, 0, 50, 0]);
    let mut without = run_by_threads("E runtime.execute @5ms; E runtime.schedule @6ms");
    without.goroutine_runs.clear();
    check_states(&without, [0, 0, 50, 0]);
}
