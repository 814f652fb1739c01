//! The control directory of a running process, used as ftrace's is, by `cat` and `echo`.

use calltap_e2e::*;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn directory_records_exactly_and_restores_program() {
    if !have_fuse() {
        return;
    }
    let mut mounted = Mounted::new("counted");
    mounted.echo("20000", "buffer_size_kb");
    let count = |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count();
    for (tracer, outer, work) in
        [("function", ": outer <-", ": work <-outer"), ("function_graph", "  outer() {", "   work();")]
    {
        mounted.echo(tracer, "current_tracer");
        mounted.resident.tell();
        mounted.resident.wait_for("done");
        let trace = mounted.cat("trace");
        assert_eq!((count(&trace, outer), count(&trace, work)), (12_345, 123_450), "{tracer}");
        mounted.echo("nop", "current_tracer");
    }
    mounted.echo("work", "set_ftrace_filter");
    mounted.echo("function", "current_tracer");
    assert_eq!(mounted.cat("enabled_functions"), "work (1)\n");
    mounted.echo("1", "function_profile_enabled");
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    let (stat, trace) = (mounted.cat("trace_stat/function0"), mounted.cat("trace"));
    assert_eq!((count(&trace, ": work <-"), count(&trace, ": outer <-")), (123_450, 0));
    assert!(stat.contains("  work                                123450    "), "{stat}");
    mounted.end();
}

#[test]
fn a_wrong_name_is_refused_and_changes_nothing() {
    if !have_fuse() {
        return;
    }
    let mounted = Mounted::new("counted");
    mounted.echo("outer", "set_ftrace_filter");
    for (text, name) in
        [("no_such", "set_ftrace_filter"), ("no_such", "current_tracer"), ("2", "options/overwrite")]
    {
        let error = mounted.try_echo(text, name).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{text} > {name}");
    }
    assert_eq!(mounted.cat("set_ftrace_filter"), "outer\n");
    assert_eq!(fs::create_dir(mounted.path("mine")).expect_err("refused").raw_os_error(), Some(libc::EPERM));
    assert_eq!(File::create(mounted.path("mine")).expect_err("refused").raw_os_error(), Some(libc::EACCES));
    assert_eq!(
        fs::remove_file(mounted.path("trace")).expect_err("refused").raw_os_error(),
        Some(libc::EPERM)
    );
    mounted.end();
}

#[test]
fn blocked_readers_end_on_signals_and_receive_events() {
    if !have_fuse() {
        return;
    }
    let mut mounted = Mounted::new("counted");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let mut cat = reader(&mounted.path("trace_pipe"));
        kill(cat.id(), signal);
        let status = ends_within(&mut cat, HANGS).expect("it dies");
        assert_eq!(status.signal(), Some(signal));
    }
    mounted.echo("outer", "set_ftrace_filter");
    mounted.echo("function", "current_tracer");
    let mut cat = reader(&mounted.path("trace_pipe"));
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    mounted.echo("0", "tracing_on");
    let mut text = String::new();
    cat.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(text.lines().filter(|line| line.contains(": outer <-")).count(), 12_345);
    assert!(cat.wait().expect("cat").success());
    let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(mounted.path("trace_pipe"));
    let error = pipe.expect("opens").read(&mut [0; 10]).expect_err("nothing there");
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    mounted.end();
}

#[test]
fn nothing_stays_mounted_whichever_process_ends() {
    if !have_fuse() {
        return;
    }
    // The server is killed.
    let mut mounted = Mounted::new("busy");
    let mut cat = reader(&mounted.path("trace_pipe"));
    kill(mounted.server(), libc::SIGKILL);
    mounted.await_unmounted();
    ends_within(&mut cat, HANGS).expect("the reader ends");
    assert!(mounted.resident.runs());
    // The server is told to end while files are open.
    let run = mounted.mount();
    assert!(run.status.success(), "{}", run.stderr);
    let open = File::open(mounted.path("trace")).expect("opens");
    kill(mounted.server(), libc::SIGTERM);
    mounted.await_unmounted();
    drop(open);
    await_that("it is left", || changed_text(mounted.resident.pid).is_empty());
    // The directory can be mounted again; then the program ends.
    let run = mounted.mount();
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(mounted.cat("current_tracer"), "nop\n");
    let mut cat = reader(&mounted.path("trace_pipe"));
    kill(mounted.resident.pid, libc::SIGKILL);
    mounted.await_unmounted();
    assert!(ends_within(&mut cat, HANGS).expect("the end of the file").success());
}

#[test]
fn a_program_that_becomes_another_or_ends_keeps_no_reader_waiting() {
    if !have_fuse() {
        return;
    }
    let mut mounted = Mounted::new("exec");
    mounted.echo("function", "current_tracer");
    let mut cat = reader(&mounted.path("trace_pipe"));
    let open = File::open(mounted.path("trace")).expect("opens");
    mounted.resident.tell();
    mounted.resident.wait_for("replaced");
    // After exec, the old program's trace can still be read. The new program has no sites that
    // could be switched, so writes have no effect.
    assert!(mounted.cat("trace").starts_with("# tracer: function\n"));
    let _ = mounted.try_echo("nop", "current_tracer");
    assert_eq!(changed_text(mounted.resident.pid), [""; 0]);
    let Mounted { resident, place, .. } = mounted;
    let (status, output, errors) = resident.end();
    assert_eq!(status.code(), Some(9), "{status} {output}{errors}");
    place.await_unmounted();
    drop(open);
    assert!(ends_within(&mut cat, HANGS).expect("the end of the file").success());
}

#[test]
fn a_reader_that_never_reads_trace_pipe_holds_no_other_up() {
    if !have_fuse() {
        return;
    }
    let mut mounted = Mounted::new("counted");
    mounted.echo("8", "buffer_size_kb");
    mounted.echo("function", "current_tracer");
    let pipe = File::open(mounted.path("trace_pipe")).expect("opens");
    for _ in 0..3 {
        mounted.resident.tell();
        mounted.resident.wait_for("done");
        assert!(mounted.cat("trace").contains(": work <-outer"));
    }
    assert!(!mounted.cat("per_cpu/cpu0/stats").contains("\noverrun: 0\n"), "the oldest made room");
    mounted.echo("outer", "set_ftrace_filter");
    assert_eq!(
        mounted.try_echo("nop", "current_tracer").expect_err("busy").raw_os_error(),
        Some(libc::EBUSY)
    );
    // The reader now reads: it gets the number of lost events, then the newest events.
    mounted.echo("0", "tracing_on");
    let mut text = String::new();
    (&pipe).read_to_string(&mut text).expect("text");
    assert!(text.starts_with("CPU:0 [LOST ") && text.ends_with('\n'), "{}", &text[..text.len().min(200)]);
    drop(pipe);
    mounted.end();
}

#[test]
fn stacks_are_those_that_the_program_has() {
    if !have_fuse() {
        return;
    }
    let mut mounted = Mounted::new("counted");
    mounted.echo("20000", "buffer_size_kb");
    mounted.echo("outer", "set_ftrace_filter");
    mounted.echo("1", "options/func_stack_trace");
    mounted.echo("function", "current_tracer");
    assert_eq!(mounted.cat("enabled_functions"), "outer (1)\n");
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    let trace = mounted.cat("trace");
    let stacks: Vec<Vec<&str>> = (trace.split("<stack trace>\n").skip(1))
        .map(|rest| rest.lines().map_while(|line| line.strip_prefix(" => ")).collect())
        .collect();
    assert_eq!(stacks.len(), 12_345);
    // `check` returns to main, which the program entered before it was traced.
    let strange = stacks.iter().find(|stack| stack[..] != ["outer", "check", "main"]);
    assert_eq!(strange, None);
    // Stacks of work, which outer calls, without an untraced function between both.
    mounted.echo("work", "set_ftrace_filter");
    mounted.echo("x", "trace");
    mounted.echo("200000", "buffer_size_kb");
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    let trace = mounted.cat("trace");
    assert_eq!(trace.matches("<stack trace>\n => work\n => outer\n => check\n => main\n").count(), 123_450);
    mounted.echo("0", "options/func_stack_trace");
    assert_eq!(mounted.cat("enabled_functions"), "work (1)\n");
    mounted.end();
}

#[test]
fn unprivileged_user_mounts_own_processes() {
    if !have_fuse() || !have("fusermount3") || !have("setpriv") {
        return;
    }
    if !is_root() {
        return skipped("only root can become another user");
    }
    let program = compile(GCC, &["resident.c"], &[]);
    let place = MountPoint(tempfile::tempdir().expect("a directory"));
    for directory in [program.directory(), place.root()] {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("its mode");
    }
    let own = place.path("tracing");
    fs::create_dir(&own).expect("a directory");
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).expect("its owner");
    // The other user may not reach the executable's directory, so it runs a copy.
    let copy = place.path("calltap");
    copy_program(&calltap(), &copy);
    let unprivileged = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words).current_dir("/");
        command
    };
    let command = unprivileged(&[&program.path.to_string_lossy(), "counted"]);
    let mut resident = Resident::spawn(command, program.directory().to_owned());
    resident.wait_for("ready");
    let (pid, own) = (resident.pid.to_string(), own.to_string_lossy().into_owned());
    let copy = copy.to_string_lossy().into_owned();
    let mounted = run(unprivileged(&[&copy, "mount", "-p", &pid, &own]), b"");
    assert!(mounted.status.success() && mounted.stderr.is_empty(), "{}", mounted.stderr);
    let shell = |script: &str| run(unprivileged(&["sh", "-c", &format!("cd {own} && {script}")]), b"");
    let set = shell("echo outer > set_ftrace_filter && echo function > current_tracer");
    assert!(set.status.success(), "{}", set.stderr);
    resident.tell();
    resident.wait_for("done");
    assert_eq!(shell("grep -c ': outer <-check' trace").stdout, "12345\n");
    let client = run(
        unprivileged(&[&copy, "exec", "-p", &pid, "--", "cat", "/sys/kernel/tracing/enabled_functions"]),
        b"",
    );
    assert_eq!(client.stdout, "outer (1)\n", "{}", client.stderr);
    let left = run(unprivileged(&["fusermount3", "-u", &own]), b"");
    assert!(left.status.success(), "{}", left.stderr);
    await_that("it is left", || changed_text(resident.pid).is_empty());
    assert!(resident.end().0.success());
}

#[test]
fn children_of_listed_tasks_are_traced_if_that_is_wanted() {
    if !have_fuse() {
        return;
    }
    let mounted = Mounted::new("forks");
    let pid = mounted.resident.pid.to_string();
    mounted.echo("outer", "set_ftrace_filter");
    mounted.echo(&pid, "set_ftrace_pid");
    mounted.echo("1", "options/function-fork");
    mounted.echo("function", "current_tracer");
    // The thread that forks existed before, and is not traced. Its children are.
    let others = |trace: &str| {
        let task =
            |line: &str| Some(line.split_once(" [000]")?.0.trim().rsplit_once('-')?.1.trim().to_owned());
        let mut ids: Vec<String> =
            trace.lines().filter(|line| line.contains(": outer <-")).filter_map(task).collect();
        ids.dedup();
        ids
    };
    await_that("children", || others(&mounted.cat("trace")).len() >= 3);
    let found = others(&mounted.cat("trace"));
    let tasks: Vec<String> = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("its threads")
        .map(|entry| entry.expect("a thread").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!found.iter().any(|id| tasks.contains(id) && *id != pid), "{found:?} {tasks:?}");
    // A process that has ended is no longer listed.
    await_that("they end", || {
        let listed = mounted.cat("set_ftrace_pid");
        listed.lines().any(|line| line == pid) && !listed.lines().any(|line| line == found[0])
    });
    mounted.echo("0", "options/function-fork");
    mounted.end();
}

#[test]
fn a_filter_waits_for_its_library_whichever_process_looks() {
    if !have_fuse() {
        return;
    }
    let program = compile(GCC, &["kernel_names.c"], &[]);
    let module = program.add(GCC, &["trace_printk.c"], "trace_printk.so", &["-shared", "-fPIC"]);
    let resident = Resident::start(&program, &[&module.to_string_lossy()]);
    let mounted = Mounted::of(program, resident);
    mounted.echo("*:mod:trace_printk", "set_ftrace_filter");
    mounted.echo("function", "current_tracer");
    // The reader opens the file now: opening any file makes the server look at the libraries.
    let mut head = Command::new("head");
    let mut head =
        head.arg("-n1").arg(mounted.path("trace_pipe")).stdout(Stdio::piped()).spawn().expect("head");
    await_open(&mut head, &mounted.path("trace_pipe"));
    kill(mounted.resident.pid, libc::SIGUSR1);
    let ended = ends_within(&mut head, HANGS);
    if ended.is_none() {
        let _ = head.kill();
    }
    let mut line = String::new();
    head.stdout.take().expect("piped").read_to_string(&mut line).expect("text");
    assert!(ended.is_some() && line.contains(": trace_printk_irq_work <-work"), "{line}");
    let sets = ["set_ftrace_filter", "enabled_functions"].map(|name| mounted.cat(name));
    assert_eq!(
        sets,
        ["trace_printk_irq_work [trace_printk.so]\n", "trace_printk_irq_work [trace_printk.so] (1)\n"]
    );
    // After the library is closed the set has no functions left, which differs from an empty filter
    // for all functions.
    kill(mounted.resident.pid, libc::SIGUSR2);
    await_that("it is closed", || mounted.cat("set_ftrace_filter").is_empty());
    assert_eq!(mounted.cat("enabled_functions"), "");
    mounted.end();
}

#[test]
fn a_process_has_one_directory() {
    if !have_fuse() {
        return;
    }
    let mounted = Mounted::new("counted");
    let other = tempfile::tempdir().expect("a directory");
    let pid = mounted.resident.pid.to_string();
    let run = calltap_run(&["mount", "-p", &pid, &other.path().to_string_lossy()]);
    one_line(&run, &["mounted already", &mounted.root().to_string_lossy()]);
    let run = calltap_run(&["put", "-p", &pid, "current_tracer", "function"]);
    one_line(&run, &["control directory is mounted"]);
    assert_eq!(calltap_run(&["get", "-p", &pid, "current_tracer"]).stdout, "nop\n");
    mounted.end();
    let run = calltap_run(&["mount", "-p", "1999999999", &other.path().to_string_lossy()]);
    assert!(!run.status.success() && run.stderr.lines().count() == 1, "{}", run.stderr);
}

#[test]
fn a_thousand_readers_and_writers_at_once_do_not_hang() {
    if !have_fuse() {
        return;
    }
    let mounted = Mounted::new("counted");
    let files = [
        "trace",
        "set_ftrace_filter",
        "available_filter_functions",
        "enabled_functions",
        "per_cpu/cpu0/stats",
    ];
    let start = Instant::now();
    thread::scope(|scope| {
        for n in 0..1000 {
            let mounted = &mounted.place;
            scope.spawn(move || match n % 4 {
                0 => mounted.echo(["function", "function_graph", "nop"][n / 4 % 3], "current_tracer"),
                1 => mounted.echo(["outer", "work", "*"][n / 4 % 3], "set_ftrace_filter"),
                2 => mounted.echo("mark", "trace_marker"),
                _ => drop(mounted.cat(files[n / 4 % files.len()])),
            });
        }
    });
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    mounted.end();
}

#[test]
fn a_program_is_run_with_its_directory() {
    if !have_fuse() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let program = compile(GCC, &["resident.c"], &[]);
    let mut command = Command::new(calltap());
    command.args(["run", "--mount"]).arg(place.path()).arg("--").arg(&program.path).arg("counted");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("calltap");
    let start = Instant::now();
    while !is_mounted(place.path()) && start.elapsed() < HANGS {
        thread::sleep(Duration::from_millis(5));
    }
    fs::write(place.path().join("current_tracer"), "function\n").expect("current_tracer");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    let status = ends_within(&mut child, HANGS).expect("it ends");
    assert!(status.success(), "{status}");
    assert!(!is_mounted(place.path()));
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_of_directories_has_one_for_every_process_that_is_attached_to() {
    if !have_fuse() {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    let [mut first, mut second, third, fourth] = [(); 4].map(|()| Resident::start(&program, &["counted"]));
    let pids = [&first, &second, &third, &fourth].map(|resident| resident.pid.to_string());
    let attach = |pid: &str| {
        let run = calltap_run(&["attach", "-p", pid, "--tracer", "function", "-F", "outer"]);
        assert!(run.status.success(), "{}", run.stderr);
    };
    attach(&pids[0]);
    let place = MountPoint(tempfile::tempdir().expect("a directory"));
    let run = calltap_run(&["mount", &place.root().to_string_lossy()]);
    assert!(run.status.success() && run.stderr.is_empty(), "{}", run.stderr);
    // A process that was attached to keeps its tracers and filters.
    await_that("the first", || place.path(&pids[0]).is_dir());
    let own = |n: usize, name: &str| format!("{}/{name}", pids[n]);
    assert_eq!(place.cat(&own(0, "current_tracer")), "function\n");
    assert_eq!(place.cat(&own(0, "set_ftrace_filter")), "outer\n");
    // Making a directory attaches to another process.
    let refused = |name: &str| {
        fs::create_dir(place.path(name)).expect_err(name).raw_os_error().expect("an error of the system's")
    };
    fs::create_dir(place.path(&pids[1])).expect("the second");
    assert_eq!(["abc", "1999999999", &pids[1]].map(refused), [libc::EINVAL, libc::ESRCH, libc::EEXIST]);
    let other = MountPoint(tempfile::tempdir().expect("a directory"));
    let run = calltap_run(&["mount", "-p", &pids[2], &other.root().to_string_lossy()]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(refused(&pids[2]), libc::EBUSY);
    assert!(place.cat("error_log").contains(&format!("{}: its directory is mounted already: ", pids[2])));
    place.echo("work", &own(1, "set_ftrace_filter"));
    place.echo("20000", &own(1, "buffer_size_kb"));
    place.echo("function", &own(1, "current_tracer"));
    for resident in [&mut first, &mut second] {
        resident.tell();
        resident.wait_for("done");
    }
    let count =
        |n: usize, what: &str| place.cat(&own(n, "trace")).lines().filter(|line| line.contains(what)).count();
    assert_eq!((count(0, ": outer <-"), count(0, ": work <-")), (12_345, 0));
    assert_eq!((count(1, ": outer <-"), count(1, ": work <-")), (0, 123_450));
    // A function that is appended joins the filter that the process had.
    let mut filter =
        OpenOptions::new().append(true).open(place.path(&own(0, "set_ftrace_filter"))).expect("opens");
    filter.write_all(b"work\n").expect("added");
    drop(filter);
    assert_eq!(place.cat(&own(0, "enabled_functions")), "work (1)\nouter (1)\n");
    // Clients find the directory, too.
    let run = calltap_run(&["exec", "-p", &pids[1], "--", "cat", "/sys/kernel/tracing/set_ftrace_filter"]);
    assert_eq!(run.stdout, "work\n", "{}", run.stderr);
    // Processes may be attached to and end at any time.
    attach(&pids[3]);
    await_that("the fourth", || place.path(&pids[3]).is_dir());
    let mut cat = reader(&place.path(&own(3, "trace_pipe")));
    kill(fourth.pid, libc::SIGKILL);
    await_that("the fourth is gone", || !place.path(&pids[3]).exists());
    ends_within(&mut cat, HANGS).expect("the end of the file");
    fs::remove_dir(place.path(&pids[1])).expect("the second");
    assert_eq!(changed_text(second.pid), [""; 0]);
    assert_eq!(names(place.root()), [&pids[0], "error_log"]);
    place.unmount();
    other.unmount();
    for mut resident in [first, second, third] {
        await_that("it is left", || changed_text(resident.pid).is_empty());
        assert!(resident.runs());
        assert!(resident.end().0.success());
    }
}
