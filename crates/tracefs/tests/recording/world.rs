//! A simulated process: scripts say what is written to files, and which calls threads make.

use calltap_selection::Listed;
use calltap_trace::{
    Batch, ClockKind, Event, EventKind, Module, Process, Record, Session, Site, SiteId, Thread, ThreadId,
    Values,
};
use calltap_tracefs::{Moment, Read, Tracefs};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ops::Range;

/// Functions by the numbers of their sites.
pub const FUNCTIONS: [&str; 4] = ["main", "parse", "lex", "emit"];
pub const BASE: u64 = 0x40_0000;
/// The stack mapping of every thread.
pub const STACK: Range<u64> = 0x7000_0000..0x7001_0000;

pub struct World {
    pub tracefs: Tracefs,
    pub now: u64,
    /// The open functions of each thread.
    open: HashMap<u32, Vec<u32>>,
}

impl World {
    pub fn new() -> World {
        let mut tracefs = Tracefs::new(2, (0, 0));
        tracefs.record(&Record::Session(Session::of(ClockKind::Coarse)));
        tracefs.record(&Record::Process(Process::new(0, 100, "cc")));
        for (id, tid, comm) in [(0, 100, "cc"), (1, 101, "a-long-worker-name")] {
            tracefs.record(&Record::Thread(Thread {
                id: ThreadId(id),
                process: 0,
                tid,
                comm: comm.into(),
                goroutine: None,
                started: None,
            }));
        }
        tracefs.record(&Record::Module(Module {
            id: 0,
            process: 0,
            path: "/usr/bin/cc".into(),
            link: None,
            build_id: None,
            bias: BASE,
            range: (BASE, BASE + 0x10000),
            unloaded_ticks: None,
            untraceable: calltap_trace::Untraceable::default(),
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

    /// Runs a script. Its lines write values to files (`VALUE > FILE`), make events of threads (`0:
    /// ...`), instances (`mkdir NAME`) and processes (`fork PID THREAD TID`, with its first
    /// thread), and begin and end threads (`begin THREAD TID`, `end THREAD`).
    pub fn after(script: &str) -> World {
        let mut world = World::new();
        script.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| world.does(line));
        world.settle();
        world
    }

    pub fn does(&mut self, line: &str) {
        if let Some((value, path)) = line.split_once(" > ") {
            self.settle();
            return self.echo(value, path);
        }
        if let Some((thread, events)) = line.split_once(": ") {
            return self.run(thread.parse().expect(line), events);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u32>().expect(line);
        let thread = |id, process, tid| Thread {
            id: ThreadId(id),
            process,
            tid,
            comm: "new".into(),
            goroutine: None,
            started: None,
        };
        let tracefs = &mut self.tracefs;
        match words[0] {
            "mkdir" => {
                let instances = self.find("instances");
                self.tracefs.make_directory(instances, words[1]).expect(line);
            }
            "fork" => {
                let comm = String::from("child");
                tracefs.record(&Record::Process(Process {
                    parent: Some(0),
                    ..Process::new(1, number(1), comm)
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

    /// Reads without waiting.
    pub fn take(&mut self, handle: u64, size: usize) -> Vec<u8> {
        match self.tracefs.read(handle, 0, size, false) {
            Ok(Read::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    pub fn find(&mut self, path: &str) -> u64 {
        let tracefs = &mut self.tracefs;
        path.split('/').fold(1, |inode, name| tracefs.lookup(inode, name).expect(path).inode)
    }

    pub fn open(&mut self, path: &str, flags: OFlags) -> u64 {
        let inode = self.find(path);
        self.tracefs.open(inode, flags).expect(path)
    }

    pub fn cat(&mut self, path: &str) -> String {
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

    pub fn echo(&mut self, text: &str, path: &str) {
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

    /// Makes events of a thread: `+parse` enters (`+parse<main` also names the caller,
    /// `~parse<main` enters by a jump), `-` returns; each a microsecond after the last. `@40`
    /// behind it: the slot of the return address is 40 bytes below the end of the thread's stack.
    pub fn run(&mut self, thread: u32, events: &str) {
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
                        // The outermost of the ended calls is the one that returns.
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

    pub fn settle(&mut self) {
        for (thread, ..) in self.tracefs.stacks_sought() {
            self.tracefs.set_stack(thread, Some(STACK));
        }
        let (ticks, monotonic_ns) = (self.now, self.now);
        self.tracefs.settle(Moment { monotonic_ns, ticks, ..Moment::default() });
    }

    /// Returns the contents of `trace` without its header.
    pub fn trace(&mut self, path: &str) -> String {
        self.settle();
        self.cat(path)
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.to_owned() + "\n")
            .collect()
    }
}
