//! What happens in a process, and what `trace`, `trace_pipe` and their like show of it.

use calltap_selection::Listed;
use calltap_trace::{
    Batch, ClockKind, Event, EventKind, Module, Process, Record, Session, Site, SiteId, Thread, ThreadId,
    Values,
};
use calltap_tracefs::{Moment, Read, Tracefs};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ops::Range;

/// Functions by number of their sites.
const FUNCTIONS: [&str; 4] = ["main", "parse", "lex", "emit"];
const BASE: u64 = 0x40_0000;
/// Every thread's stack.
const STACK: Range<u64> = 0x7000_0000..0x7001_0000;

struct World {
    tracefs: Tracefs,
    now: u64,
    /// The functions that are open in each thread.
    open: HashMap<u32, Vec<u32>>,
}

impl World {
    fn new() -> World {
        let mut tracefs = Tracefs::new(2, (0, 0));
        tracefs.record(&Record::Session(Session {
            calltap: String::new(),
            command: Vec::new(),
            host: String::new(),
            kernel: String::new(),
            cpu: String::new(),
            start_realtime_ns: 0,
            start_monotonic_ns: 0,
            clock: ClockKind::Coarse,
            clock_note: None,
            tracers: Vec::new(),
        }));
        tracefs.record(&Record::Process(Process {
            id: 0,
            pid: 100,
            parent: None,
            forked: false,
            comm: "cc".into(),
        }));
        for (id, tid, comm) in [(0, 100, "cc"), (1, 101, "a-long-worker-name")] {
            tracefs.record(&Record::Thread(Thread { id: ThreadId(id), process: 0, tid, comm: comm.into() }));
        }
        tracefs.record(&Record::Module(Module {
            id: 0,
            process: 0,
            path: "/usr/bin/cc".into(),
            build_id: None,
            bias: BASE,
            range: (BASE, BASE + 0x10000),
            unloaded_ticks: None,
        }));
        let address = |n: usize| 0x1000 + 0x100 * n as u64;
        let listed = |(n, name): (usize, &&str)| Listed {
            function: (*name).into(),
            address: BASE + address(n),
            size: 0x80,
            module: "cc".into(),
            ..Listed::default()
        };
        tracefs.set_functions(FUNCTIONS.iter().enumerate().map(listed).collect());
        let site = |(n, name): (usize, &&str)| Site {
            id: SiteId(n as u32),
            module: 0,
            address: address(n),
            size: 0x80,
            name: (*name).into(),
            kind: String::new(),
            aliases: Vec::new(),
            captured: None,
            tracers: 0,
        };
        tracefs.record(&Record::Sites { sites: FUNCTIONS.iter().enumerate().map(site).collect() });
        World { tracefs, now: 5_000_000_000, open: HashMap::new() }
    }

    /// After all this: values are written to files (`VALUE > FILE`), things happen in threads (`0: ...`), instances are made (`mkdir NAME`), processes fork
    /// (`fork PID THREAD TID`: the first one has the thread), threads begin and end (`begin THREAD TID`, `end THREAD`).
    fn after(script: &str) -> World {
        let mut world = World::new();
        script.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| world.does(line));
        world.settle();
        world
    }

    fn does(&mut self, line: &str) {
        if let Some((value, path)) = line.split_once(" > ") {
            self.settle();
            return self.echo(value, path);
        }
        if let Some((thread, events)) = line.split_once(": ") {
            return self.run(thread.parse().expect(line), events);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u32>().expect(line);
        let thread = |id, process, tid| Thread { id: ThreadId(id), process, tid, comm: "new".into() };
        let tracefs = &mut self.tracefs;
        match words[0] {
            "mkdir" => {
                let instances = self.find("instances");
                self.tracefs.make_directory(instances, words[1]).expect(line);
            }
            "fork" => {
                let comm = String::from("child");
                tracefs.record(&Record::Process(Process {
                    id: 1,
                    pid: number(1),
                    parent: Some(0),
                    forked: false,
                    comm,
                }));
                tracefs.record(&Record::Thread(thread(number(2), 1, number(3))));
            }
            "begin" => tracefs.record(&Record::Thread(thread(number(1), 0, number(2)))),
            "end" => {
                self.tracefs.end_thread(ThreadId(number(1)));
                self.settle();
            }
            _ => panic!("what is this: {line}"),
        }
    }

    /// What a read gives that does not wait.
    fn take(&mut self, handle: u64, size: usize) -> Vec<u8> {
        match self.tracefs.read(handle, 0, size, false) {
            Ok(Read::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    fn find(&mut self, path: &str) -> u64 {
        let tracefs = &mut self.tracefs;
        path.split('/').fold(1, |inode, name| tracefs.lookup(inode, name).expect(path).inode)
    }

    fn open(&mut self, path: &str, flags: OFlags) -> u64 {
        let inode = self.find(path);
        self.tracefs.open(inode, flags).expect(path)
    }

    fn cat(&mut self, path: &str) -> String {
        let handle = self.open(path, OFlags::RDONLY);
        let (mut text, mut offset) = (Vec::new(), 0);
        while let Ok(Read::Data(data)) = self.tracefs.read(handle, offset, 100, true)
            && !data.is_empty()
        {
            offset += data.len() as u64;
            text.extend(data);
        }
        self.tracefs.release(handle);
        String::from_utf8(text).expect("text")
    }

    fn echo(&mut self, text: &str, path: &str) {
        let handle = self.open(path, OFlags::WRONLY | OFlags::TRUNC);
        let line = format!("{text}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let taken = self.tracefs.write(handle, rest, 100, "cc", self.now).expect(path);
            rest = &rest[taken..];
        }
        self.tracefs.flush(handle).expect(path);
        self.tracefs.release(handle);
        self.tracefs.take_effects();
    }

    /// A thread's events: `+parse` enters (`+parse<main` also from there, `~parse<main` by a jump), `-` returns; each a microsecond after the last. `@40`
    /// behind it: the return address lies so many bytes below the end of the thread's stack.
    fn run(&mut self, thread: u32, events: &str) {
        let number = |name: &str| FUNCTIONS.iter().position(|known| *known == name).expect(name) as u32;
        let parent = |name: &str| BASE + 0x1010 + 0x100 * u64::from(number(name));
        let mut values = Values::default();
        let open = self.open.entry(thread).or_default();
        let events = events.split_whitespace().enumerate().map(|(n, word)| {
            self.now += 1000;
            let (word, below) = word.split_once('@').unwrap_or((word, ""));
            if let Ok(below) = below.parse::<u64>() {
                values.add(n, &[&[0, 0][..], &(STACK.end - below).to_le_bytes()].concat());
            }
            if let Some((name, from)) = word.strip_prefix('~').and_then(|word| word.split_once('<')) {
                let kind = EventKind::TailEntryFrom { parent: parent(from) };
                open.push(number(name));
                return Event { ticks: self.now, site: SiteId(number(name)), kind };
            }
            let (site, kind) = match word.strip_prefix('+') {
                Some(word) => match word.split_once('<') {
                    Some((name, from)) => (number(name), EventKind::EntryFrom { parent: parent(from) }),
                    None => (number(word), EventKind::Entry),
                },
                None => match word.split_once('<') {
                    Some((name, from)) => (number(name), EventKind::Call { parent: parent(from) }),
                    None => {
                        // The outermost of those that end is the one that returns.
                        let first = open.len().saturating_sub(word.len());
                        let returns = open.drain(first..).next().unwrap_or(0);
                        (returns, EventKind::Exit { pops: word.len() as u32 })
                    }
                },
            };
            open.extend(kind.enters().map(|_| site));
            Event { ticks: self.now, site: SiteId(site), kind }
        });
        let events = events.collect();
        let batch = Batch { thread: ThreadId(thread), events, values };
        self.tracefs.events(&batch);
    }

    fn settle(&mut self) {
        for (thread, ..) in self.tracefs.stacks_sought() {
            self.tracefs.set_stack(thread, Some(STACK));
        }
        let (ticks, monotonic_ns) = (self.now, self.now);
        self.tracefs.settle(Moment { monotonic_ns, ticks, ..Moment::default() });
    }

    /// `trace` without what stands above the records.
    fn trace(&mut self, path: &str) -> String {
        self.settle();
        self.cat(path)
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.to_owned() + "\n")
            .collect()
    }
}

/// After a script ([`World::after`]), `trace` shows this.
fn check(script: &str, expected: &str) {
    let expected: String = expected
        .lines()
        .skip(1)
        .map(|line| line.trim_start_matches("            |").to_owned() + "\n")
        .collect();
    assert_eq!(World::after(script).trace("trace"), expected, "{script}");
}

#[test]
fn the_function_tracer_says_who_called_whom_where_and_when() {
    check(
        "function > current_tracer
         0: parse<main lex<parse
         1: emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000002: lex <-parse
            |a-long-worker-name-101     [000] .....     5.000003: emit <-main",
    );
}

#[test]
fn filters_and_threads_decide_what_is_recorded() {
    check(
        "function > current_tracer
         parse > set_ftrace_filter
         0: parse<main lex<parse
         *e* > set_ftrace_filter
         emit > set_ftrace_notrace
         0: emit<main lex<parse
         101 > set_ftrace_pid
         0: lex<parse
         1: lex<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000004: lex <-parse
            |a-long-worker-name-101     [000] .....     5.000006: lex <-main",
    );
}

#[test]
fn options_change_how_lines_look() {
    check(
        "function > current_tracer
         1 > options/sym-offset
         0 > options/irq-info
         1 > options/record-tgid
         0: parse<main",
        "
            |              cc-100     (    100) [000]      5.000001: parse+0x0/0x80 <-main+0x10/0x80",
    );
    check(
        "function > current_tracer
         0 > options/context-info
         0 > options/print-parent
         0: parse<main",
        "
            |parse",
    );
    check(
        "function > current_tracer
         1 > options/func-no-repeats
         0: parse<main lex<parse lex<parse lex<parse emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000002: lex <-parse
            |              cc-100     [000] .....     5.000003: lex <-parse (repeats: 2, last_ts:     5.000004)
            |              cc-100     [000] .....     5.000005: emit <-main",
    );
}

#[test]
fn function_graph_indents_calls_and_adds_up_their_time() {
    check(
        "function_graph > current_tracer
         0: +main +parse +lex - - +emit -
         1: +lex -
         0: -",
        "
            | 0)               |  main() {
            | 0)               |    parse() {
            | 0)   1.000 us    |      lex();
            | 0)   3.000 us    |    }
            | 0)   1.000 us    |    emit();
            | ------------------------------------------
            | 0)     cc-100     =>  a-long--101  
            | ------------------------------------------
            |
            | 0)   1.000 us    |  lex();
            | ------------------------------------------
            | 0)  a-long--101   =>     cc-100    
            | ------------------------------------------
            |
            | 0)   9.000 us    |  }",
    );
}

#[test]
fn what_was_entered_before_is_named_when_it_returns() {
    check(
        "function_graph > current_tracer
         0: +main +parse
         1 > tracing_on
         x > trace
         0: - +emit - -",
        "
            | 0)   1.000 us    |    } /* parse */
            | 0)   1.000 us    |    emit();
            | 0)   5.000 us    |  } /* main */",
    );
}

#[test]
fn graph_functions_depth_and_threshold_choose_calls() {
    let calls = "0: +main +parse +lex - - +emit - -";
    check(
        &format!("function_graph > current_tracer\nparse > set_graph_function\n{calls}"),
        "
            | 0)               |  parse() {
            | 0)   1.000 us    |    lex();
            | 0)   3.000 us    |  }",
    );
    check(
        &format!("function_graph > current_tracer\nparse > set_graph_notrace\n{calls}"),
        "
            | 0)               |  main() {
            | 0)   1.000 us    |    emit();
            | 0)   7.000 us    |  }",
    );
    check(
        &format!("function_graph > current_tracer\n1 > max_graph_depth\n{calls}"),
        "
            | 0)   7.000 us    |  main();",
    );
    check(
        &format!("function_graph > current_tracer\n2 > tracing_thresh\n{calls}"),
        "
            | 0)   3.000 us    |    } /* parse */
            | 0)   7.000 us    |  } /* main */",
    );
}

#[test]
fn frames_that_are_left_have_no_end() {
    check(
        "function_graph > current_tracer
         0: +main +parse +lex --- +emit -",
        "
            | 0)               |  main() {
            | 0)               |    parse() {
            | 0)               |      lex() {
            | 0)   3.000 us    |  }
            | 0)   1.000 us    |  emit();",
    );
}

#[test]
fn triggers_act_at_the_call_they_are_set_at() {
    check(
        "function > current_tracer
         lex:traceoff > set_ftrace_filter
         0: parse<main lex<parse emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main",
    );
    check(
        "function > current_tracer
         0 > tracing_on
         lex:traceon:1 > set_ftrace_filter
         0: parse<main lex<parse emit<main
         0 > tracing_on
         0: lex<parse",
        "
            |              cc-100     [000] .....     5.000002: lex <-parse
            |              cc-100     [000] .....     5.000003: emit <-main",
    );
    check(
        "lex:stacktrace > set_ftrace_filter
         0: parse<main lex<parse",
        "
            |              cc-100     [000] .....     5.000002: <stack trace>
            | => lex
            | => parse",
    );
}

#[test]
fn marks_stand_among_the_calls_in_the_order_of_time() {
    check(
        "function > current_tracer
         0: parse<main
         here > trace_marker
         0: lex<parse",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000001: tracing_mark_write: here
            |              cc-100     [000] .....     5.000002: lex <-parse",
    );
}

#[test]
fn instances_trace_by_themselves() {
    let mut world = World::after(
        "mkdir mine
         function > current_tracer
         parse > set_ftrace_filter
         function_graph > instances/mine/current_tracer
         lex > instances/mine/set_ftrace_filter
         0: +parse<main +lex<parse - -",
    );
    let instances = world.find("instances");
    assert_eq!(world.trace("trace"), "              cc-100     [000] .....     5.000001: parse <-main\n");
    assert_eq!(world.trace("instances/mine/trace"), " 0)   1.000 us    |  lex();\n");
    assert_eq!(world.cat("enabled_functions"), "parse (1)\nlex (1)\n");
    world.echo("lex", "set_ftrace_filter");
    assert_eq!(world.cat("enabled_functions"), "lex (2)\n");
    let names: Vec<String> = world.tracefs.words().tracers.into_iter().map(|tracer| tracer.name).collect();
    assert_eq!(names, ["trace", "mine/trace"]);
    let open = world.open("instances/mine/trace", OFlags::RDONLY);
    assert_eq!(world.tracefs.remove_directory(instances, "mine"), Err(rustix::io::Errno::BUSY));
    world.tracefs.release(open);
    world.tracefs.remove_directory(instances, "mine").expect("rmdir");
    assert_eq!(world.cat("enabled_functions"), "lex (1)\n");
    world.run(0, "lex<main");
    assert!(world.trace("trace").ends_with("lex <-main\n"));
}

#[test]
fn an_instance_that_goes_leaves_the_open_calls_of_others_as_they_are() {
    let mut world = World::after(
        "mkdir a
         mkdir b
         function_graph > instances/a/current_tracer
         function_graph > instances/b/current_tracer
         0: +main +parse",
    );
    let instances = world.find("instances");
    world.tracefs.remove_directory(instances, "a").expect("rmdir");
    world.tracefs.take_effects();
    world.run(0, "- -");
    assert_eq!(
        world.trace("instances/b/trace"),
        " 0)               |  main() {\n 0)   1.000 us    |    parse();\n 0)   3.000 us    |  }\n"
    );
}

#[test]
fn the_pipe_takes_out_what_it_reads_and_belongs_to_one() {
    let mut world = World::after("function > current_tracer");
    let pipe = world.open("trace_pipe", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(pipe, 0, 4096, true), Ok(Read::Wait));
    assert!(!world.tracefs.is_readable(pipe));
    world.run(0, "parse<main lex<parse");
    world.settle();
    assert!(world.tracefs.is_readable(pipe));
    assert_eq!(String::from_utf8_lossy(&world.take(pipe, 4096)).lines().count(), 2);
    assert_eq!(world.trace("trace"), "");
    let again = world.find("trace_pipe");
    assert_eq!(world.tracefs.open(again, OFlags::RDONLY), Err(rustix::io::Errno::BUSY));
    let busy = world.open("current_tracer", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(busy, b"nop\n", 1, "sh", 0), Err(rustix::io::Errno::BUSY));
    // With tracing off, a reader that has read something has seen all.
    world.echo("0", "tracing_on");
    assert_eq!(world.tracefs.read(pipe, 0, 4096, true), Ok(Read::Data(Vec::new())));
    world.tracefs.release(pipe);
    let fresh = world.open("trace_pipe", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(fresh, 0, 4096, true), Ok(Read::Wait));
    world.tracefs.end();
    assert_eq!(world.tracefs.read(fresh, 0, 4096, true), Ok(Read::Data(Vec::new())));
}

fn thousand_calls_in_a_small_buffer() -> String {
    "function > current_tracer\n4 > buffer_size_kb\n0:".to_owned() + &" parse<main".repeat(1000)
}

#[test]
fn a_full_buffer_tells_the_pipe_how_many_were_lost() {
    let mut world = World::after(&thousand_calls_in_a_small_buffer());
    let pipe = world.open("trace_pipe", OFlags::RDONLY);
    let data = world.take(pipe, 200);
    // Two processors, two sub-buffers of 4080 bytes each, 28 bytes a record.
    assert!(data.starts_with(format!("CPU:0 [LOST {} EVENTS]\n", 1000 - 4 * 4080 / 28).as_bytes()));
}

#[test]
fn a_snapshot_keeps_what_was_there() {
    let mut world = World::after("function > current_tracer\n0: parse<main\n1 > snapshot");
    assert_eq!(world.trace("trace"), "");
    assert!(world.trace("snapshot").ends_with("parse <-main\n"));
    world.echo("2", "snapshot");
    assert!(world.cat("snapshot").contains("# * Snapshot is allocated *\n"));
    world.echo("0", "snapshot");
    assert!(world.cat("snapshot").contains("# * Snapshot is freed *\n"));
}

#[test]
fn a_session_of_the_first_proposal_reads_literally() {
    let mut world = World::after("function > current_tracer");
    assert_eq!(world.cat("function_tracers"), "*trace\n");
    world.echo("1", "function_profile_enabled");
    assert_eq!(world.cat("function_tracers"), "trace\n*trace_profile\n");
    world.echo("lex", "set_ftrace_filter");
    let expected = "[ trace] #### all functions enabled ####\n[ trace_profile] lex\n";
    assert_eq!(world.cat("set_ftrace_filter"), expected);
}

#[test]
fn who_knows_of_one_tracer_only_has_one_filter() {
    let mut world = World::after(
        "function > current_tracer
         1 > function_profile_enabled
         lex > set_ftrace_filter",
    );
    assert_eq!(world.cat("set_ftrace_filter"), "lex\n");
    let words = world.tracefs.words();
    assert!(words.tracers.iter().all(|tracer| tracer.filter == ["=lex"]), "{words:?}");
}

#[test]
fn reading_in_any_pieces_gives_the_same_bytes() {
    let calls = "0: +main +parse +lex - - +emit - -\n1: +lex -\n".repeat(200);
    let mut world = World::after(&("function_graph > current_tracer\n".to_owned() + &calls));
    let whole = world.cat("trace");
    let handle = world.open("trace", OFlags::RDONLY);
    for size in [1, 3, 4096, 1 << 20] {
        let (mut text, mut offset) = (Vec::new(), 0);
        while let Ok(Read::Data(data)) = world.tracefs.read(handle, offset, size, true)
            && !data.is_empty()
        {
            offset += data.len() as u64;
            text.extend(data);
        }
        assert!(text == whole.as_bytes(), "in pieces of {size}");
    }
}

/// The events of pages: time, what follows the event's header. And how many are missing before.
fn events(pages: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
    let (mut events, mut missing) = (Vec::new(), 0);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    for page in pages.chunks(4096) {
        assert_eq!(page.len(), 4096);
        let (mut time, length) = (number(&page[..8]), number(&page[8..16]));
        let end = 16 + (length & 0xfffff) as usize;
        if length >> 30 == 3 {
            missing += number(&page[end..end + 8]);
        }
        let mut at = 16;
        while at < end {
            let head = number(&page[at..at + 4]);
            let (kind, delta) = (head & 31, head >> 5);
            at += 4;
            if kind == 30 {
                time += (number(&page[at..at + 4]) << 27) + delta;
                at += 4;
                continue;
            }
            let size = if kind == 0 { number(&page[at..at + 4]) } else { 4 * kind } as usize;
            time += delta;
            let record = if kind == 0 { &page[at + 4..at + size] } else { &page[at..at + size] };
            events.push((time, record.to_vec()));
            at += size;
        }
    }
    (events, missing)
}

#[test]
fn pages_have_what_was_recorded_once_and_kallsyms_names_it() {
    let mut world = World::after("function > current_tracer\n0: parse<main lex<parse");
    world.now += 1 << 40;
    world.run(1, "emit<lex");
    world.settle();
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let busy = world.open("current_tracer", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(busy, b"nop\n", 1, "sh", 0), Err(rustix::io::Errno::BUSY));
    // A reader that wants several pages, and waits, gets full ones.
    assert_eq!(world.tracefs.read(raw, 0, 65536, true), Ok(Read::Wait));
    let mut pages = Vec::new();
    // Pieces of a page come one after the other.
    for size in [1, 1000, 4096] {
        pages.extend(world.take(raw, size));
    }
    assert_eq!(world.tracefs.read(raw, 0, 4096, true), Ok(Read::Wait));
    let (events, missing) = events(&pages);
    assert_eq!(missing, 0);
    let field =
        |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let names: Vec<(u64, String)> = (world.cat("kallsyms").lines())
        .map(|line| line.split_once(" t ").expect(line))
        .map(|(at, name)| (u64::from_str_radix(at, 16).expect(at), name.replace("\t[cc]", "")))
        .collect();
    let name = |at: u64| names[names.partition_point(|(start, _)| *start <= at) - 1].1.as_str();
    let shown: Vec<(u64, u64, &str, &str)> = events
        .iter()
        .map(|(time, record)| {
            (*time, field(record, 0) >> 32, name(field(record, 8)), name(field(record, 16)))
        })
        .collect();
    let start = 5_000_000_000;
    assert_eq!(
        shown,
        [
            (start + 1000, 100, "parse", "main"),
            (start + 2000, 100, "lex", "parse"),
            (start + 3000 + (1 << 40), 101, "emit", "lex")
        ]
    );
    assert_eq!(world.trace("trace"), "");
    world.echo("0", "tracing_on");
    assert_eq!(world.tracefs.read(raw, 0, 65536, true), Ok(Read::Data(Vec::new())));
}

#[test]
fn pages_say_how_many_records_are_missing() {
    let mut world = World::after(&thousand_calls_in_a_small_buffer());
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let (events, missing) = events(&world.take(raw, 1 << 20));
    assert_eq!((events.len() as u64 + missing, events.len()), (1000, 4 * 4080 / 28));
    let other = world.open("per_cpu/cpu1/trace_pipe_raw", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(other, 0, 4096, false), Ok(Read::Wait));
}

#[test]
fn a_snapshot_can_be_read_as_pages() {
    let mut world = World::after(
        "function_graph > current_tracer
         0: +main +parse - -
         1 > snapshot
         hello > trace_marker",
    );
    for (file, ids) in [("snapshot_raw", vec![11, 11, 10, 10]), ("trace_pipe_raw", vec![5])] {
        let raw = world.open(&format!("per_cpu/cpu0/{file}"), OFlags::RDONLY);
        let found: Vec<u16> =
            events(&world.take(raw, 4096)).0.iter().map(|(_, record)| record[0].into()).collect();
        assert_eq!(found, ids, "{file}");
    }
}

#[test]
fn dump_triggers_empty_the_buffer_into_a_file() {
    let mut world = World::after(
        "lex > set_ftrace_filter
         emit:dump > set_ftrace_filter
         function > current_tracer
         0: lex<main emit<main lex<parse",
    );
    let dumped = world.cat("dump");
    assert!(dumped.contains("lex <-main\n") && !dumped.contains("lex <-parse"), "{dumped}");
    assert!(world.trace("trace").ends_with("lex <-parse\n"));
    assert!(world.cat("set_ftrace_filter").contains("emit:dump:count=0\n"));
}

#[test]
fn clocks_show_their_own_times() {
    let mut world = World::after("function > current_tracer");
    let times = |world: &mut World, clock: &str| {
        world.echo(clock, "trace_clock");
        world.now += 1_000_000;
        let (ticks, monotonic_ns) = (world.now, world.now);
        let ahead = |ns| monotonic_ns + ns;
        let moment = Moment {
            monotonic_ns,
            ticks,
            raw_ns: ahead(1_000_000_000),
            boot_ns: ahead(20_000_000_000),
            tai_ns: ahead(300_000_000_000),
        };
        world.run(0, "lex<main");
        world.tracefs.settle(moment);
        let text = world.cat("trace");
        let line = text.lines().rfind(|line| !line.starts_with('#')).expect("a record").to_owned();
        line.split("..... ")
            .nth(1)
            .and_then(|rest| rest.split(": ").next())
            .expect("a time")
            .trim()
            .to_owned()
    };
    assert_eq!(times(&mut world, "mono"), "5.001001");
    times(&mut world, "boot");
    assert_eq!(times(&mut world, "boot"), "25.003003");
    assert_eq!(times(&mut world, "mono_raw"), "6.004004");
    assert_eq!(times(&mut world, "tai"), "305.005005");
    assert_eq!(times(&mut world, "counter"), "1");
    assert!(world.cat("per_cpu/cpu0/stats").contains("oldest event ts: 1\nnow ts: 1\n"));
    let clocks = world.cat("trace_clock");
    assert_eq!(clocks, "local global [counter] uptime perf mono mono_raw boot tai\n");
    let handle = world.open("trace_clock", OFlags::WRONLY);
    // The processor's clock was not read here.
    assert_eq!(world.tracefs.write(handle, b"x86-tsc\n", 1, "sh", 0), Err(rustix::io::Errno::INVAL));
}

#[test]
fn stacks_are_the_open_calls_around_a_call() {
    // The caller of main is not known; parse is called by a function that is not traced.
    check(
        "function > current_tracer
         lex > set_ftrace_filter
         1 > options/func_stack_trace
         0: +main +parse<emit +lex<parse - - +lex<main",
        "
            |              cc-100     [000] .....     5.000003: lex <-parse
            |              cc-100     [000] .....     5.000003: <stack trace>
            | => lex
            | => parse
            | => emit
            | => main
            |              cc-100     [000] .....     5.000006: lex <-main
            |              cc-100     [000] .....     5.000006: <stack trace>
            | => lex
            | => main",
    );
    // A function that jumps to another is on the stack no more.
    check(
        "lex:stacktrace > set_ftrace_filter
         1 > options/sym-offset
         0: +main +emit<main ~lex<main",
        "
            |              cc-100     [000] .....     5.000003: <stack trace>
            | => lex+0x0/0x80
            | => main+0x10/0x80",
    );
}

#[test]
fn stacks_need_all_calls_and_the_filter_does_not_show_that() {
    let mut world = World::after(
        "function > current_tracer
         lex > set_ftrace_filter
         emit > set_ftrace_notrace
         1 > options/func_stack_trace",
    );
    let stacks = |world: &World| -> Vec<(String, Vec<String>)> {
        let tracers = world.tracefs.words().tracers.into_iter();
        let own = tracers.filter(|tracer| tracer.name.starts_with("stacks/") && tracer.filter.is_empty());
        own.map(|tracer| (tracer.name, tracer.notrace)).collect()
    };
    let notrace = vec![String::from("=emit")];
    let expected = ["stacks/calls", "stacks/callers"].map(|name| (name.to_owned(), notrace.clone()));
    assert_eq!(stacks(&world), expected);
    assert_eq!(world.cat("enabled_functions"), "lex (1)\n");
    world.echo("0", "options/func_stack_trace");
    assert_eq!(stacks(&world), []);
}

/// After a script, `stack_trace` shows this below its header.
fn check_stack(script: &str, expected: &[&str]) -> World {
    let mut world = World::after(script);
    let text = world.cat("stack_trace");
    let header = format!("        Depth    Size   Location    ({} entries)", expected.len());
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[..2], [header.as_str(), "        -----    ----   --------"], "{script}");
    assert_eq!(lines[2..], *expected, "{script}");
    world
}

#[test]
fn the_deepest_stack_is_kept_with_what_each_has_of_it() {
    let on = "1 > stack_tracer_enabled";
    let all = [
        "  0)      308       8   lex+0x0/0x80",
        "  1)      300     100   parse+0x10/0x80",
        "  2)      200     200   main+0x10/0x80",
    ];
    // The caller of main is not known; of what another thread does, nothing is deeper.
    let calls = "0: +main@100 +parse<main@200 +lex<parse@300 - - +emit<main@250 -\n1: +lex<main@48";
    let mut world = check_stack(&format!("{on}\n{calls}"), &all);
    assert_eq!(world.cat("stack_max_size"), "308\n");
    assert_eq!(world.cat("enabled_functions").lines().next(), Some("main (1)"));
    assert_eq!(world.tracefs.words().arguments, ["*@$stack"]);
    // It stays when it is off, and as long as nothing is deeper than what was written.
    for (text, path) in [("0", "stack_tracer_enabled"), ("0", "stack_max_size")] {
        world.echo(text, path);
        assert!(world.cat("stack_trace").ends_with(&(all.join("\n") + "\n")));
    }
    assert!(world.cat("stack_trace").contains("\n#  Stack tracer disabled\n"));
    assert!(world.tracefs.words().arguments.is_empty());
    check_stack(&format!("{on}\n308 > stack_max_size\n{calls}"), &[]);
    check_stack(calls, &[]);
}

#[test]
fn the_stack_tracer_looks_at_filtered_functions_on_their_own_stack() {
    let parse = ["  0)      208       8   parse+0x0/0x80", "  1)      200     200   main+0x10/0x80"];
    let on = "1 > stack_tracer_enabled";
    let filter = "pars* > stack_trace_filter";
    let calls = "0: +main@100 +parse<main@200 +lex<parse@300";
    let mut world = check_stack(&format!("{on}\n{filter}\n{calls}"), &parse);
    assert_eq!(world.cat("stack_trace_filter"), "parse\n");
    assert_eq!(world.cat("enabled_functions"), "parse (1)\n");
    // A signal handler's stack, above and below.
    check_stack(&format!("{on}\n0: +parse<main@200 +lex<parse@70000 - -\n0: +emit<main@0"), &parse);
    // A function that jumped is on the stack no more; what is between two of which one called an untraced function is of both.
    check_stack(
        &format!("{on}\n0: +main@100 +emit<main@200 ~parse<main@200 +lex<parse@300"),
        &[
            "  0)      308       8   lex+0x0/0x80",
            "  1)      300     100   parse+0x10/0x80",
            "  2)      200     200   main+0x10/0x80",
        ],
    );
    check_stack(
        &format!("{on}\n0: +main<emit@96 +parse<lex@500"),
        &[
            "  0)      508       8   parse+0x0/0x80",
            "  1)      500     404   lex+0x10/0x80",
            "  2)       96       0   main+0x0/0x80",
            "  3)       96      96   emit+0x10/0x80",
        ],
    );
    // Triggers of no process.
    let handle = world.open("stack_trace_filter", OFlags::WRONLY);
    let written = world.tracefs.write(handle, b"parse:traceoff\n", 100, "cc", 0);
    assert_eq!(written, Err(rustix::io::Errno::NODEV));
}

#[test]
fn a_page_has_the_whole_stack() {
    let mut world = World::after(
        "function > current_tracer
         lex > set_ftrace_filter
         1 > options/func_stack_trace
         0: +main +parse<main +lex<parse",
    );
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let (events, _) = events(&world.take(raw, 4096));
    let number = |at: usize| u64::from_le_bytes(events[1].1[at..at + 8].try_into().expect("8 bytes"));
    // Behind the header a count, then addresses: a function's own, and calls.
    assert_eq!((events[1].1[0], events[1].1[8]), (4, 3));
    assert_eq!([16, 24, 32].map(number), [BASE + 0x1200, BASE + 0x1110, BASE + 0x1010]);
}

#[test]
fn children_of_listed_tasks_are_listed_if_that_is_wanted() {
    let script = "100 > set_ftrace_pid
         101 > set_ftrace_notrace_pid
         function > current_tracer
         begin 7 107
         1 > options/function-fork
         begin 8 108
         fork 200 9 200
         9: lex<main
         end 9";
    let mut world = World::after(script);
    // Of the threads of one process, it is not known which has made which: both lists grow, and notrace wins.
    assert_eq!(world.cat("set_ftrace_pid"), "100\n108\n");
    assert_eq!(world.cat("set_ftrace_notrace_pid"), "101\n108\n");
    let mut world = World::after(&script.replace("101 >", "55 >"));
    assert_eq!(world.cat("set_ftrace_pid"), "100\n108\n");
    assert!(world.trace("trace").ends_with("new-200     [000] .....     5.000001: lex <-main\n"));
}

#[test]
fn the_log_says_what_was_wrong_and_where() {
    let mut world = World::after("function > current_tracer");
    let refused = |world: &mut World, text: &str, path: &str| {
        let handle = world.open(path, OFlags::WRONLY | OFlags::APPEND);
        let written = world.tracefs.write(handle, format!("{text}\n").as_bytes(), 100, "cc", 7_000_001_000);
        world.tracefs.release(handle);
        assert!(written.is_err(), "{text} > {path}");
    };
    assert_eq!(world.cat("error_log"), "");
    refused(&mut world, "no_such", "set_ftrace_filter");
    refused(&mut world, "lex:traceof", "set_ftrace_filter");
    refused(&mut world, "!lex:traceoff:3", "set_ftrace_filter");
    refused(&mut world, "lex:traceoff:x", "set_ftrace_filter");
    refused(&mut world, "12 x", "set_ftrace_pid");
    refused(&mut world, "functoin", "current_tracer");
    let expected = [
        "[    7.000001] set_ftrace_filter: error: no function matches 'no_such'",
        "  Command: no_such",
        "           ^",
        "[    7.000001] set_ftrace_filter: error: no command 'traceof'",
        "  Command: lex:traceof",
        "               ^",
        "[    7.000001] set_ftrace_filter: error: no function has this trigger",
        "  Command: !lex:traceoff:3",
        "                ^",
        "[    7.000001] set_ftrace_filter: error: 'x' is no count",
        "  Command: lex:traceoff:x",
        "                        ^",
        "[    7.000001] set_ftrace_pid: error: 'x' is no thread id",
        "  Command: 12 x",
        "           ^",
        "[    7.000001] current_tracer: error: no tracer named 'functoin' (see available_tracers)",
        "  Command: functoin",
        "           ^",
    ];
    assert_eq!(world.cat("error_log").lines().collect::<Vec<_>>(), expected);
    // Eight are kept, of each instance its own.
    (0..10).for_each(|n| refused(&mut world, &format!("none{n}"), "set_ftrace_notrace"));
    let log = world.cat("error_log");
    assert_eq!((log.lines().count(), log.contains("none1"), log.contains("none2")), (24, false, true));
    world.does("mkdir mine");
    refused(&mut world, "no_such", "instances/mine/trace_clock");
    assert_eq!(world.cat("instances/mine/error_log").lines().count(), 3);
    world.echo("", "error_log");
    assert_eq!(world.cat("error_log"), "");
    // What is only understood when the file is closed can only be reported there.
    let handle = world.open("set_ftrace_filter", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(handle, b"bad", 100, "cc", 0), Ok(3));
    world.tracefs.release(handle);
    assert!(world.cat("error_log").contains("no function matches 'bad'"));
}

#[test]
fn a_filter_that_only_waits_names_nothing() {
    let world = World::after("function > current_tracer\n*:mod:later > set_ftrace_filter");
    assert!(world.tracefs.awaits_library());
    assert_eq!(world.tracefs.words().tracers[0].filter, ["!*"]);
}
