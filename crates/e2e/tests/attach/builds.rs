//! Processes to which another build of calltap is or was attached.

use calltap_e2e::*;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Returns the start and end of the mapping of a session's file with these permissions.
fn mapping(pid: u32, flags: &str, file: &str) -> (u64, u64) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let line = maps.lines().find(|line| line.contains(flags) && line.contains(file)).expect(file);
    let range = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let [start, end] = [range.0, range.1].map(|hex| u64::from_str_radix(hex, 16).expect("an address"));
    (start, end)
}

fn memory(pid: u32) -> File {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).expect("its memory")
}

#[test]
fn an_agent_of_another_build_is_not_used() {
    for flags in [&[][..], &["-static"][..]] {
        let program = compile(GCC, &["resident.c"], flags);
        let resident = Resident::start(&program, &["counted"]);
        assert!(resident.attach(SHORT).status.success(), "{flags:?}");
        // The mapping keeps its headers and gets other code.
        let (start, end) = mapping(resident.pid, "r-xp", "attached.so");
        let code = vec![0xc3; (end - start - 4096) as usize];
        memory(resident.pid).write_all_at(&code, start + 4096).expect("its code");
        let again = resident.attach(SHORT);
        assert!(again.status.success(), "{flags:?}: {}", again.stderr);
        resident.sound();
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{flags:?}: {status} {output}{errors}");
    }
}

/// Checks that `detach` refuses and changes nothing while a byte of a session's mapping differs,
/// and that it succeeds afterwards.
fn refused_while(flags: &str, file: &str, at: u64, says: &str) {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["counted"]);
    let pid = resident.pid.to_string();
    let detach = || calltap_run(&["detach", "-p", &pid]);
    let attached = calltap_run(&["attach", "-p", &pid]);
    assert!(attached.status.success(), "{}", attached.stderr);
    let (memory, at) = (memory(resident.pid), mapping(resident.pid, flags, file).0 + at);
    let mut byte = [0];
    memory.read_exact_at(&mut byte, at).expect("a byte");
    memory.write_all_at(&[byte[0] + 1], at).expect("another byte");
    let patched = changed_text(resident.pid);
    assert_ne!(patched, [""; 0]);
    let refused = detach();
    assert!(!refused.status.success() && refused.stderr.contains(says), "{}", refused.stderr);
    assert_eq!(changed_text(resident.pid), patched);
    memory.write_all_at(&byte, at).expect("the byte of before");
    let left = detach();
    assert!(left.status.success(), "{}", left.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    resident.tell();
    resident.wait_for("done");
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

#[test]
fn a_session_of_another_version_is_not_taken_for_detached() {
    refused_while("rw-s", "/control", 8, "another version of calltap");
}

#[test]
fn a_process_with_an_agent_of_another_build_is_not_taken_for_detached() {
    // Unused bytes of the ELF identification.
    refused_while("r-xp", "/attached.so", 15, "not this build's");
}
