//! Programs whose control group has little memory left, with calltap in the same group, as in a
//! container with calltap started inside, or in another one; and a small `/dev/shm`.

use calltap_e2e::*;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Megabytes that the processes of a group may use.
const LIMIT: u64 = 96;

/// A control group with a limit of memory. Its files have other names in each version.
struct Group(PathBuf);

impl Group {
    /// Creates a group for a program that uses so many megabytes.
    fn create(megabytes: u64) -> Option<Group> {
        let name = format!("calltap-test-{}-memory-{megabytes}", std::process::id());
        // The second version limits the memory of groups if it is told to.
        let switch = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
        if switch.exists() {
            let _ = fs::write(switch, "+memory");
        }
        let files = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        files.into_iter().find_map(|(at, limit)| {
            let group = Path::new(at).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Group(group);
            // In a file system of another kind, the directory is empty.
            let file = Some(group.0.join(limit)).filter(|file| file.exists())?;
            fs::write(file, (LIMIT << 20).to_string()).ok()?;
            Some(group)
        })
    }

    fn members(&self) -> String {
        self.0.join("cgroup.procs").to_string_lossy().into_owned()
    }

    /// Runs calltap, in the group if `inside`.
    fn calltap(&self, inside: bool, arguments: &[&str]) -> Run {
        if !inside {
            return calltap_run(arguments);
        }
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh", &self.members()]);
        command.arg(calltap()).args(arguments);
        run(command, b"")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Attaches to a program that uses so many megabytes, in its group if `inside`. Returns how calltap
/// ended.
fn attach(inside: bool, megabytes: u64) -> Option<Run> {
    let Some(group) = Group::create(megabytes) else {
        skipped("a group with little memory: no control group can be created");
        return None;
    };
    let program = compile(&BARE[0], &["crowded.c"], &["-pthread"]);
    let resident = Resident::start(&program, &[&group.members(), &megabytes.to_string()]);
    let (pid, trace) = (resident.pid.to_string(), resident.trace());
    let record = ["record", "-p", &pid, "--duration", "1s", "-o", &trace.to_string_lossy()];
    let run = group.calltap(inside, &record);
    if run.status.signal() == Some(libc::SIGKILL) {
        // The session that the kernel has ended.
        let left = calltap_run(&["detach", "-p", &pid]);
        assert!(left.status.success(), "{}", left.stderr);
    }
    assert_eq!(changed_text(resident.pid), [""; 0], "{}", run.stderr);
    resident.ends_well(&run.stderr);
    Some(run)
}

#[test]
fn a_program_in_a_group_with_enough_memory_is_traced() {
    if let Some(run) = attach(true, LIMIT / 4) {
        assert!(run.status.success() && run.stderr.contains(" events from "), "{}", run.stderr);
    }
}

#[test]
fn a_program_in_a_full_group_is_refused_in_a_line() {
    if let Some(run) = attach(true, LIMIT - 8) {
        one_line(&run, &["MB of memory are available to calltap"]);
    }
}

#[test]
fn a_program_that_has_almost_no_memory_left_is_refused_from_outside() {
    if let Some(run) = attach(false, LIMIT - 4) {
        one_line(&run, &["MB of memory are available to it"]);
    }
}

/// If memory runs out all the same, calltap ends, and not the program.
#[test]
fn a_program_in_a_group_with_little_memory_lives_on() {
    for megabytes in (LIMIT / 2..LIMIT - 16).step_by(8) {
        attach(true, megabytes);
    }
}

/// Runs the program and calltap with a small file system for shared memory, as containers have it.
/// Arguments: the program, calltap. Ends with the status of writing a file of half its size.
const SMALL_SHARED_MEMORY: &str = r#"
mount -t tmpfs -o size=48m tmpfs /dev/shm || exit
mkfifo input
"$1" /dev/null 1 <input & program=$!
exec 3>input
"$2" record -q -p $program --max-overhead none --duration 2s -o trace & calltap=$!
sleep 1
head -c 24M /dev/zero >/dev/shm/file
written=$?
wait $calltap
exec 3>&-
wait $program
exit $written
"#;

#[test]
fn a_program_can_use_most_of_a_small_file_system_for_shared_memory() {
    let program = compile(&BARE[0], &["crowded.c"], &["-pthread"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SMALL_SHARED_MEMORY, "sh"]).arg(&program.path).arg(calltap());
    command.current_dir(program.directory());
    let run = run(command, b"");
    if run.stderr.contains("unshare") || run.stderr.contains("mount:") {
        return skipped("a small /dev/shm: no private mounts here");
    }
    assert!(run.status.success(), "{} {}", run.status, run.stderr);
}
