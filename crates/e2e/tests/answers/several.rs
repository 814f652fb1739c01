//! Questions about several processes, and about programs with more than one name.

use calltap_e2e::{BARE, GCC, Resident, Run, calltap_run, changed_text, compile, output_of, rows_of};
use serde_json::Value;

/// Returns the process's name as in `ps`, with its id.
fn title(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("a process");
    format!("{}-{pid}", name.trim())
}

#[test]
fn each_of_several_processes_answers() {
    let program = compile(GCC, &["paced.c"], &[]);
    let residents = [Resident::start(&program, &[]), Resident::start(&program, &[])];
    let mut pids = residents.each_ref().map(|resident| resident.pid);
    pids.sort_unstable();
    let list = format!("{},{}", pids[0], pids[1]);
    let ask = |words: &[&str]| -> Run {
        let run = calltap_run(&[words, &["-p", &list, "--duration", "300ms"]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        // Every message names its process.
        for pid in pids {
            for said in ["1 function on, in ", "stopped for "] {
                let line = format!("calltap: {}: {said}", title(pid));
                assert_eq!(run.stderr.matches(&line).count(), 1, "{line}: {}", run.stderr);
            }
        }
        run
    };
    let objects: Vec<Value> = ask(&["count", "leaf", "--json"])
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object in a line"))
        .collect();
    let mut answered: Vec<u64> = objects.iter().filter_map(|object| object["pid"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, pids.map(u64::from));
    for object in &objects {
        assert!(object["functions"][0]["calls"].as_u64() > Some(0), "{object}");
    }
    // On a busy machine, the limit of overhead disables even the only function asked about.
    let text = ask(&["latency", "leaf", "--max-overhead", "none"]).stdout;
    let lines = ask(&["watch", "nap"]).stdout;
    // The lines of both arrive in turns. Each object says whose it is, the last ones included.
    let objects: Vec<Value> = ask(&["slower", "1ns", "leaf", "--json"])
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object in a line"))
        .collect();
    for pid in pids {
        let of = |object: &&Value| object["pid"].as_u64() == Some(pid.into());
        let own: Vec<&Value> = objects.iter().filter(of).collect();
        let sums = own.iter().filter(|object| object["functions"].is_array());
        assert!(own.len() > 1 && sums.count() == 1, "{pid}: {} of {}", own.len(), objects.len());
    }
    assert!(objects.iter().all(|object| object["pid"].is_u64()));
    let headed = lines.lines().filter(|line| line.starts_with("# ")).count();
    assert!(headed >= 2, "{lines}");
    for pid in pids {
        assert!(text.contains(&format!("# {}\nleaf: ", title(pid))), "{text}");
        assert!(lines.lines().any(|line| line.contains(&title(pid)) && line.contains("nap")), "{lines}");
    }
    assert!(pids.iter().all(|pid| changed_text(*pid).is_empty()));
    for resident in residents {
        assert!(resident.end().0.success());
    }
}

#[test]
fn several_processes_are_attached_to_looked_at_and_left() {
    let program = compile(GCC, &["paced.c"], &[]);
    let residents = [Resident::start(&program, &[]), Resident::start(&program, &[])];
    let pids = residents.each_ref().map(|resident| resident.pid);
    let list = format!("{},{}", pids[0], pids[1]);
    let trace = program.directory().join("last").display().to_string();
    let on_all = |words: &[&str]| -> Run {
        let run = calltap_run(&[words, &["-p", &list]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run
    };
    on_all(&["attach", "-F", "leaf"]);
    let states = on_all(&["status", "--format", "json"]).stdout;
    let states: Vec<Value> =
        states.lines().map(|line| serde_json::from_str(line).expect("an object in a line")).collect();
    let of: Vec<u64> = states.iter().filter_map(|state| state["pid"].as_u64()).collect();
    assert_eq!(of, pids.map(u64::from));
    let text = on_all(&["status"]).stdout;
    assert_eq!(text.matches("function_graph: leaf\n").count(), 2, "{text}");
    let said = on_all(&["snapshot", "-o", &trace]).stderr;
    for pid in pids {
        assert!(said.contains(&format!("calltap: {}: the last ", title(pid))), "{said}");
        let report = calltap_run(&["report", &format!("{trace}.{pid}")]);
        assert!(
            report.status.success() && report.stdout.contains("leaf"),
            "{} {}",
            report.stdout,
            report.stderr
        );
    }
    let said = on_all(&["detach"]).stderr;
    assert!(pids.iter().all(|pid| said.contains(&format!("calltap: {}: detached", title(*pid)))), "{said}");
    let refused = calltap_run(&["status", "-p", &list]);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", refused.stdout);
    assert!(pids.iter().all(|pid| changed_text(*pid).is_empty()));
    for resident in residents {
        assert!(resident.end().0.success());
    }
}

#[test]
fn a_function_without_a_name_has_that_of_its_file_however_the_program_was_called() {
    let program = compile(&BARE[0], &["threads.c"], &["-pthread"]);
    let path = program.path.to_string_lossy().into_owned();
    output_of("strip", &[&path]).expect("strip");
    let link = program.directory().join("another-name");
    std::os::unix::fs::symlink(&program.path, &link).expect("a link");
    let (link, trace) =
        (link.to_string_lossy().into_owned(), program.directory().join("t").to_string_lossy().into_owned());
    let recorded = calltap_run(&["record", "-q", "-o", &trace, "--", &link]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let rows = calltap_run(&["report", &trace, "--json"]).stdout;
    let rows = rows_of(&rows);
    let name = rows[0]["function"].as_str().expect("a name").to_owned();
    let file = program.path.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with(&format!("{file}+0x")), "{name}");
    // A function's name that a view shows selects the function.
    let again = calltap_run(&["record", "-o", &trace, "-F", &name, "--", &link]);
    assert!(again.status.success() && again.stderr.contains("1 function on"), "{}", again.stderr);
}

#[test]
fn program_is_named_after_its_symlink() {
    let mut program = compile(GCC, &["paced.c"], &[]);
    let link = program.directory().join("paced-server");
    std::os::unix::fs::symlink(&program.path, &link).expect("a link");
    program.path.clone_from(&link);
    let trace = program.directory().join("t").to_string_lossy().into_owned();
    let resident = Resident::start(&program, &[]);
    let (link, pid) = (link.to_string_lossy().into_owned(), resident.pid.to_string());
    let check = |words: &[&str]| {
        let run = calltap_run(words);
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        let start = "1 function on, in paced (paced-server is a link to it)";
        assert!(run.stderr.contains(start), "{words:?}: {}", run.stderr);
    };
    for word in ["paced-server:nap", "nap:mod:paced-server", "paced:nap", "paced-*:nap"] {
        check(&["record", "-o", &trace, "-F", word, "--", &link]);
        check(&["record", "-o", &trace, "-F", word, "-p", &pid, "--duration", "0.1"]);
        check(&["count", word, "-p", &pid, "--duration", "0.1"]);
    }
    check(&["record", "-o", &trace, "--slow", "paced-server:nap>1us", "-F", "nap", "--", &link]);
    let has_nap = |words: &[&str]| {
        let run = calltap_run(words);
        assert!(
            run.status.success() && run.stdout.contains("nap"),
            "{words:?}: {}{}",
            run.stdout,
            run.stderr
        );
    };
    has_nap(&["report", &trace]);
    // Views of a trace know the link, too.
    assert!(calltap_run(&["record", "-q", "-o", &trace, "--", &link]).status.success());
    for word in ["paced-server:nap", "nap:mod:paced-server", "paced:nap"] {
        has_nap(&["report", &trace, "-F", word]);
        has_nap(&["graph", &trace, "-F", word]);
        has_nap(&["replay", &trace, "--graph", word]);
        has_nap(&["count", word, &trace]);
        has_nap(&["diff", &trace, &trace, "--all", "-F", word]);
    }
    let none = calltap_run(&["report", &trace, "-F", "paced-client:nap"]);
    assert!(!none.status.success() && none.stderr.contains("'paced-client:nap'"), "{}", none.stderr);
    let other = calltap_run(&["record", "-o", &trace, "-F", "paced-client:nap", "--", &link]);
    assert!(!other.status.success() && other.stderr.contains("'paced-client:nap'"), "{}", other.stderr);
    assert!(resident.end().0.success());
}

#[test]
fn children_that_live_for_milliseconds_count_with_their_time() {
    let program = compile(GCC, &["short_children.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    // Events of some 4 ms of processor time in 100 cost less than a hundredth of them, and less
    // than a thousandth of a processor.
    let top = calltap_run(&["top", "--json", "--count", "3", "--interval", "500ms", "-p", &pid]);
    assert!(top.status.success(), "{}", top.stderr);
    let intervals: Vec<Value> =
        top.stdout.lines().map(|line| serde_json::from_str(line).expect("an object in a line")).collect();
    for interval in &intervals {
        assert!(interval["cost"].as_f64().is_none_or(|cost| cost < 0.05), "{interval}");
        // The program has three functions with room.
        assert!(interval["functions_known"].as_u64().is_some_and(|known| known <= 3), "{interval}");
    }
    let rows = intervals.iter().flat_map(|interval| interval["functions"].as_array().expect("rows"));
    assert!(rows.clone().any(|row| row["function"] == "leaf"), "{}", top.stdout);
    assert!(rows.clone().all(|row| row["state"] == "on"), "{}", top.stdout);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}
