//! Processes in containers: namespaces, a root directory, a user and a C library of their own,
//! attached to from the host.

use calltap_e2e::{
    BARE_PLACED, Program, Server, calltap_run, compile, have, installed, is_root, one_line, skipped,
    wait_until,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Dynamic linker and C library of musl.
const MUSL_LINKER: &str = "/lib/ld-musl-x86_64.so.1";

/// Whether this user may make containers.
fn may_contain() -> bool {
    if !is_root() || !have("unshare") || !have("chroot") {
        skipped("containers: not root, or no unshare");
        return false;
    }
    true
}

/// A program that is linked with musl, or static, and the root directory of its container.
struct Container {
    program: Program,
    root: PathBuf,
}

impl Container {
    fn new(build: &'static calltap_e2e::Build) -> Container {
        let program = compile(build, &["paced.c"], &[]);
        let root = program.directory().join("root");
        let make = |name: &str, mode: u32| {
            let path = root.join(name);
            fs::create_dir_all(&path).expect("a directory");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        };
        fs::set_permissions(program.directory(), Permissions::from_mode(0o755)).expect("a mode");
        [("", 0o755), ("lib", 0o755), ("tmp", 0o1777)].into_iter().for_each(|(name, mode)| make(name, mode));
        fs::copy(&program.path, root.join("paced")).expect("the program");
        if Path::new(MUSL_LINKER).exists() {
            fs::copy(MUSL_LINKER, root.join(&MUSL_LINKER[1..])).expect("the C library");
        }
        Container { program, root }
    }

    /// Runs the program within, by a shell's command that ends with an `exec`. Returns the
    /// container, and the program's id on the host.
    fn run(&self, flags: &[&str], command: &str) -> (Server, u32) {
        let mut unshare = Command::new("unshare");
        unshare.args(flags).args(["--fork", "sh", "-c", command]).env("ROOT", &self.root);
        unshare.stdin(Stdio::piped()).stdout(Stdio::null());
        let server = Server(unshare.spawn().expect("unshare"));
        let own = server.0.id();
        let child = || -> Option<u32> {
            let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
            let pid = children.split_whitespace().next()?.parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == "paced").then_some(pid)
        };
        wait_until("the program", || child().is_some());
        let pid = child().expect("a process");
        (server, pid)
    }

    /// Checks that calls of the program are counted, and that nothing is left in the container.
    fn check(&self, flags: &[&str], command: &str) {
        let (server, pid) = self.run(flags, command);
        let counted = calltap_run(&["count", "leaf", "-p", &pid.to_string(), "--duration", "0.5", "--json"]);
        let what = format!("{} {flags:?} {command}", self.program.name);
        assert!(counted.status.success(), "{what}: {}", counted.stderr);
        let answer: serde_json::Value = serde_json::from_str(&counted.stdout).expect("JSON");
        assert!(answer["functions"][0]["calls"].as_u64() > Some(0), "{what}: {answer}");
        assert!(counted.stderr.contains("1 function on, in paced"), "{what}: {}", counted.stderr);
        let left: Vec<_> = fs::read_dir(self.root.join("tmp")).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        assert!(fs::metadata(format!("/proc/{pid}/exe")).is_ok(), "{what}: the program goes on");
        end(server, pid);
    }
}

/// Ends a container. The first process of a namespace of processes ignores other signals.
fn end(server: Server, pid: u32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    drop(server);
}

#[test]
fn programs_in_containers_are_attached_to_from_the_host() {
    if !may_contain() {
        return;
    }
    let all = ["--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"];
    let own_user = ["--user", "--map-root-user", "--mount", "--pid"];
    for build in installed(BARE_PLACED).filter(|build| build.name.contains("musl")) {
        let container = Container::new(build);
        container.check(&all, "exec chroot \"$ROOT\" /paced");
        container.check(&all, "exec chroot --userspec=1234:1234 \"$ROOT\" /paced");
        container.check(&own_user, "exec chroot \"$ROOT\" /paced");
    }
}

#[test]
fn a_container_without_a_writable_directory_is_refused() {
    if !may_contain() {
        return;
    }
    let Some(build) = installed(BARE_PLACED).find(|build| build.name == "bare static") else { return };
    let container = Container::new(build);
    let command = "mount --bind \"$ROOT\" \"$ROOT\" && mount -o remount,ro,bind \"$ROOT\" && exec chroot \"$ROOT\" /paced";
    let (server, pid) = container.run(&["--mount"], command);
    let refused = calltap_run(&["count", "leaf", "-p", &pid.to_string(), "--duration", "0.1"]);
    one_line(&refused, &["/dev/shm", "/tmp", "/var/tmp", "writable"]);
    end(server, pid);
}
