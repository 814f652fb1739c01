//! Transcripts of a real kernel, compared with the directory line by line.

use calltap_selection::Listed;
use calltap_tracefs::{Read, Tracefs};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Functions of the transcripts, in the order of their addresses.
const FUNCTIONS: &[&str] = &[
    "__traceiter_initcall_level",
    "__probestub_initcall_level",
    "__traceiter_initcall_start",
    "kfree",
    "vfs_readv",
    "vfs_read",
    "vfs_write",
    "vfs_writev",
    "vfs_rename",
    "schedule",
    "do_nanosleep",
];

fn directory() -> Tracefs {
    let mut tracefs = Tracefs::new(1, (0, 0));
    let function = |(n, name): (usize, &&str)| Listed {
        function: (*name).into(),
        address: 0x1000 + 64 * n as u64,
        size: 64,
        module: "vmlinux".into(),
        ..Listed::default()
    };
    tracefs.set_functions(FUNCTIONS.iter().enumerate().map(function).collect());
    tracefs
}

fn find(tracefs: &mut Tracefs, path: &str) -> u64 {
    path.split('/')
        .fold(1, |inode, name| tracefs.lookup(inode, name).unwrap_or_else(|_| panic!("{path}")).inode)
}

fn cat(tracefs: &mut Tracefs, path: &str) -> String {
    let inode = find(tracefs, path);
    let handle = tracefs.open(inode, OFlags::RDONLY).expect(path);
    let (mut text, mut offset) = (Vec::new(), 0);
    while let Ok(Read::Data(data)) = tracefs.read(handle, offset, 7, true)
        && !data.is_empty()
    {
        offset += data.len() as u64;
        text.extend(data);
    }
    tracefs.release(handle);
    String::from_utf8(text).expect("text")
}

/// Opens a file, writes until all is taken, and closes it. Returns the result in the form of the
/// transcripts.
fn write(tracefs: &mut Tracefs, mode: &str, path: &str, text: &str) -> String {
    let flags = match mode {
        "t" => OFlags::WRONLY | OFlags::TRUNC,
        "a" => OFlags::WRONLY | OFlags::APPEND,
        _ => OFlags::WRONLY,
    };
    let inode = find(tracefs, path);
    let handle = tracefs.open(inode, flags).expect(path);
    let mut said = format!("open({path},{mode}) ok;");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        said += &format!(" write({}) = ", rest.len());
        match tracefs.write(handle, rest, 1, "sh", 0) {
            Ok(taken) => {
                said += &taken.to_string();
                rest = &rest[taken..];
            }
            Err(errno) => {
                let names = [
                    (Errno::INVAL, "EINVAL"),
                    (Errno::NODEV, "ENODEV"),
                    (Errno::PERM, "EPERM"),
                    (Errno::OVERFLOW, "EOVERFLOW"),
                    (Errno::RANGE, "ERANGE"),
                    (Errno::BUSY, "EBUSY"),
                ];
                let name = names.iter().find(|(known, _)| *known == errno).map_or("?", |(_, name)| name);
                said += &format!("-1 {name}");
                break;
            }
        }
    }
    tracefs.flush(handle).expect("flush");
    tracefs.release(handle);
    tracefs.take_effects();
    said + "; close = 0"
}

fn unescape(text: &str) -> String {
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.replace("\\n", "\n")
}

fn check(transcript: &str) {
    let tracefs = &mut directory();
    let lines: Vec<&str> =
        transcript.lines().filter(|line| !line.starts_with('#') || line.starts_with("####")).collect();
    let mut at = 0;
    let mut commands = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        let Some(words) = line.strip_prefix("$ wf ") else { panic!("what is this: {line}") };
        let mut words = words.splitn(3, ' ');
        let (mode, path, text) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
        let said = write(tracefs, mode, path, &unescape(text));
        let mut expected = lines[at].trim_start();
        at += 1;
        if let Some(ours) = lines.get(at).and_then(|line| line.strip_prefix("=> ")) {
            expected = ours;
            at += 1;
        }
        assert_eq!(said, expected, "{line}");
        commands += 1;
        // The expected text stands behind bars, or as `cat` prints it; lines behind `=>` replace
        // the kernel's by calltap's.
        let (mut theirs, mut ours, mut is_read) = (Vec::new(), Vec::new(), false);
        while let Some(next) = lines.get(at).filter(|next| !next.starts_with("$ ")) {
            at += 1;
            is_read = true;
            if next.starts_with("  -> ") {
                continue;
            }
            match (next.strip_prefix("     | "), next.strip_prefix("    => ")) {
                (_, Some(line)) => ours.push(line),
                (Some(line), _) => theirs.push(line),
                _ => theirs.push(*next),
            }
        }
        if is_read {
            let expected = if ours.is_empty() { theirs } else { ours };
            assert_eq!(cat(tracefs, path).lines().collect::<Vec<_>>(), expected, "{line}");
        }
    }
    assert!(commands > 10, "only {commands} commands were understood");
}

#[test]
fn filters_are_written_and_read_as_the_kernels() {
    check(include_str!("kernel/filter.txt"));
}

#[test]
fn triggers_come_and_go_as_the_kernels() {
    check(include_str!("kernel/triggers.txt"));
}

#[test]
fn modules_that_are_not_loaded_are_waited_for_and_threads_listed_as_the_kernels() {
    check(include_str!("kernel/modules_and_threads.txt"));
}

#[test]
fn graph_functions_are_written_and_read_as_the_kernels() {
    check(include_str!("kernel/graph.txt"));
}

#[test]
fn values_are_taken_and_refused_as_the_kernels() {
    check(include_str!("kernel/values.txt"));
}
