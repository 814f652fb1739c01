//! The formats of records: the directory's text is compared with that of a real kernel, option by
//! option.

use calltap_selection::Listed;
use calltap_trace::{
    Batch, ClockKind, Event, EventKind, Module, Process, Record, Session, Site, SiteId, Thread, ThreadId,
};
use calltap_tracefs::{Moment, Read, Tracefs};
use rustix::fs::OFlags;
use std::collections::HashMap;

/// Functions with their addresses and sizes.
const FUNCTIONS: [(&str, u64, u64); 9] = [
    ("__do_sys_getppid", 0xffff_ffff_baee_4ab0, 0x40),
    ("do_syscall_64", 0xffff_ffff_bba8_efa0, 0x180),
    ("schedule", 0xffff_ffff_bba9_0000, 0x100),
    ("__x64_sys_sysinfo", 0xffff_ffff_bba9_1000, 0x100),
    ("do_sysinfo.isra.0", 0xffff_ffff_bba9_2000, 0x100),
    ("ktime_get_with_offset", 0xffff_ffff_bba9_3000, 0x100),
    ("get_avenrun", 0xffff_ffff_bba9_4000, 0x100),
    ("si_meminfo", 0xffff_ffff_bba9_5000, 0x100),
    ("si_swapinfo", 0xffff_ffff_bba9_6000, 0x100),
];
/// Return address in `do_syscall_64`.
const RETURN: u64 = 0xffff_ffff_bba8_f027;

fn directory() -> Tracefs {
    let mut tracefs = Tracefs::new(1, (0, 0));
    tracefs.record(&Record::Session(Session {
        kernel: "6.12.117+deb12-cloud-amd64 x86_64".into(),
        ..Session::of(ClockKind::Coarse)
    }));
    tracefs.record(&Record::Process(Process::new(0, 100, "sh")));
    tracefs.record(&Record::Module(Module {
        id: 0,
        process: 0,
        path: "/vmlinux".into(),
        link: None,
        build_id: None,
        bias: 0,
        range: (0, u64::MAX),
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    }));
    let listed = |(name, address, size): (&str, u64, u64)| Listed {
        function: name.into(),
        address,
        size,
        module: "vmlinux".into(),
        ..Listed::default()
    };
    tracefs.set_functions(FUNCTIONS.into_iter().map(listed).collect());
    let site = |(n, (name, address, size)): (usize, (&str, u64, u64))| Site {
        id: SiteId(n as u32),
        module: 0,
        address,
        size,
        name: name.into(),
        kind: String::new(),
        aliases: Vec::new(),
        captured: None,
        tracers: 0,
    };
    tracefs.record(&Record::Sites { sites: FUNCTIONS.into_iter().enumerate().map(site).collect() });
    // Choosing a tracer clears the buffer.
    settle(&mut tracefs, 12_000_000_000);
    tracefs
}

fn settle(tracefs: &mut Tracefs, now: u64) {
    tracefs.settle(Moment { monotonic_ns: now, ticks: now, ..Moment::default() });
}

fn find(tracefs: &mut Tracefs, path: &str) -> u64 {
    path.split('/').fold(1, |inode, name| tracefs.lookup(inode, name).expect(path).inode)
}

fn echo(tracefs: &mut Tracefs, value: &str, path: &str) {
    let inode = find(tracefs, path);
    let handle = tracefs.open(inode, OFlags::WRONLY | OFlags::TRUNC).expect(path);
    tracefs.write(handle, format!("{value}\n").as_bytes(), 1, "sh", 0).expect(path);
    tracefs.release(handle);
    tracefs.take_effects();
}

fn cat(tracefs: &mut Tracefs, path: &str) -> String {
    let inode = find(tracefs, path);
    let handle = tracefs.open(inode, OFlags::RDONLY).expect(path);
    let Ok(Read::Data(data)) = tracefs.read(handle, 0, 1 << 20, true) else { panic!("{path}") };
    tracefs.release(handle);
    String::from_utf8(data).expect("text")
}

/// Takes a line `SECONDS TASK-PID EVENT`, passes the event to the directory, and returns its time.
fn happen(tracefs: &mut Tracefs, open: &mut HashMap<u32, Vec<SiteId>>, words: &str) -> u64 {
    let mut words = words.splitn(3, ' ');
    let (time, task, what) =
        (words.next().expect("a time"), words.next().expect("a task"), words.next().expect("what"));
    let (comm, tid) = task.rsplit_once('-').expect(task);
    let (tid, now): (u32, u64) = (tid.parse().expect(task), time.replace('.', "").parse().expect(time));
    let thread = ThreadId(tid);
    tracefs.record(&Record::Thread(Thread {
        id: thread,
        process: 0,
        tid,
        comm: comm.into(),
        goroutine: None,
        started: None,
    }));
    let site = |name: &str| {
        let place = FUNCTIONS.iter().position(|(known, ..)| *known == name).expect(name);
        SiteId(place as u32)
    };
    let (site, kind) = match (what.strip_prefix('+'), what.split_once(" <-")) {
        (Some(name), _) => (site(name), EventKind::Entry),
        (_, Some((name, _))) => (site(name), EventKind::Call { parent: RETURN }),
        _ => (open.entry(tid).or_default().pop().unwrap_or_default(), EventKind::Exit { pops: 1 }),
    };
    open.entry(tid).or_default().extend(kind.enters().map(|_| site));
    tracefs.events(&Batch { thread, events: vec![Event { ticks: now, site, kind }], ..Batch::default() });
    now
}

#[test]
fn records_are_printed_as_by_the_kernel() {
    let tracefs = &mut directory();
    let (mut lines, mut shown) = (include_str!("kernel/formats.txt").lines().skip(3).peekable(), 0);
    let (mut now, mut open) = (12_000_000_000, HashMap::new());
    while let Some(line) = lines.next() {
        if let Some(event) = line.strip_prefix("@ ") {
            now = happen(tracefs, &mut open, event);
            continue;
        }
        let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("what is this: {line}"));
        settle(tracefs, now);
        let words: Vec<&str> = command.split(' ').collect();
        if let ["echo", value, ">", path] = words[..] {
            echo(tracefs, value, path);
            continue;
        }
        let mut expected = Vec::new();
        while let Some(next) = lines.next_if(|next| !next.starts_with("$ ") && !next.starts_with("@ ")) {
            match next.strip_prefix("=>") {
                // The two characters replace blanks, if there were any.
                Some(ours) => {
                    let last: &mut String = expected.last_mut().expect("the kernel's own line");
                    let blanks = if last.starts_with("  ") { "  " } else { "" };
                    *last = format!("{blanks}{ours}");
                }
                None => expected.push(next.to_owned()),
            }
        }
        let text = cat(tracefs, words[1]);
        let all: Vec<&str> = text.lines().collect();
        let part = match words[0] {
            "head" => &all[..expected.len().min(all.len())],
            "tail" => &all[all.len().saturating_sub(expected.len())..],
            _ => &all[..],
        };
        assert_eq!(part, expected, "{command}: line {} of what is shown", shown + 1);
        shown += expected.len();
    }
    assert!(shown > 100, "only {shown} lines were compared");
}
