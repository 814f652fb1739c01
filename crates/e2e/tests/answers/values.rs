//! Arguments, results and conditions: the values shown of a call are those that the program prints.

use calltap_e2e::{
    BARE, Expect, GCC, PLACED, Program, Resident, Run, calltap_run, changed_text, compile,
    compile_rust_as_it_is, have, installed, matrix, one_line, output_of, record, skipped,
};
use serde_json::Value;

/// Compiles the program with debugging information.
fn program(build: &'static calltap_e2e::Build) -> Program {
    compile(build, &["values.cpp"], &["-g", "-fno-inline"])
}

/// Returns the program's lines with a first word, without that word.
fn said(run: &Run, word: &str) -> Vec<String> {
    run.stdout
        .lines()
        .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
        .map(str::to_owned)
        .collect()
}

/// Runs `calltap watch FUNCTION ... -- program`. Returns the program's run, and the shown calls
/// without their times and callers.
fn watch(program: &Program, flags: &[&str]) -> (Run, Vec<String>) {
    let answer = program.directory().join("answer");
    let (place, path) = (answer.to_string_lossy().into_owned(), program.path.to_string_lossy().into_owned());
    let run = calltap_run(&[&["watch", "--no-sched"], flags, &["-o", &place, "--", &path]].concat());
    assert!(run.status.success(), "{flags:?}: {}", run.stderr);
    let text = std::fs::read_to_string(&answer).expect("an answer");
    (run, text.lines().filter_map(call).collect())
}

/// Returns the part of a line between the duration and the caller.
fn call(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    let end = words.iter().position(|word| word.starts_with("<- ")).unwrap_or(words.len());
    Some(words.get(3..end)?.join("  "))
}

fn check_all(program: &Program) {
    let functions = ["integers", "on_the_stack", "floats", "texts", "strings", "views", "joined", "rest"];
    let (run, shown) = watch(program, &[&functions[..], &["-A", "all", "-R"]].concat());
    assert_eq!(shown, said(&run, "call"), "{}", program.name);
}

#[test]
fn debugging_information_tells_arguments_and_results() {
    for (_, build) in matrix() {
        check_all(&program(build));
    }
}

#[test]
fn values_of_unmodified_programs() {
    for build in installed(BARE).filter(|build| !build.name.contains("stripped")) {
        check_all(&program(build));
    }
    for build in installed(PLACED).filter(|build| build.compilers[0] != "musl-gcc") {
        check_all(&program(build));
    }
}

#[test]
fn pointers_to_structures_are_followed() {
    let program = program(GCC);
    let items = "r->id,r->port,r->host,r->body.bytes,r->next->host,c";
    let (run, shown) = watch(&program, &["structures", "-A", items, "-R"]);
    let plain: Vec<String> = shown
        .iter()
        .map(|line| line.replace("r->next->host", "next").replace("r->body.", "").replace("r->", ""))
        .collect();
    let expected: Vec<String> =
        said(&run, "items").into_iter().filter(|line| line.starts_with("structures")).collect();
    assert_eq!(plain, expected);
    // Without debugging information, offsets read the same values.
    let stripped = compile(GCC, &["values.cpp"], &["-fno-inline"]);
    let items = "+0(arg1)/d32,+4(arg1)/u16,+0(+8(arg1))/s,+16(arg1)/u64,+0(+8(+32(arg1)))/s,arg2/d32";
    let (_, shown) = watch(&stripped, &["structures", "-A", items]);
    for (n, line) in shown.iter().enumerate() {
        let values: Vec<&str> =
            line.split(['=', ',', ')']).filter(|part| !part.contains("arg") && !part.is_empty()).collect();
        let bytes = (4096 + n).to_string();
        assert_eq!(values, ["1", "443", "\"first\"", &bytes, "\"second\"", "7"], "{line}");
    }
    assert_eq!(shown.len(), 3);
}

#[test]
fn structures_shift_following_arguments() {
    let program = program(GCC);
    let (run, shown) = watch(&program, &["mixed", "-A", "after,last", "-R"]);
    let expected: Vec<String> =
        said(&run, "items").into_iter().filter(|line| line.starts_with("mixed")).collect();
    assert_eq!(shown, expected);
    let (run, shown) = watch(&program, &["returns_large", "-A", "n"]);
    let expected: Vec<String> =
        said(&run, "items").into_iter().filter(|line| line.starts_with("returns_large")).collect();
    assert_eq!(shown, expected);
}

#[test]
fn every_view_shows_values() {
    let program = program(GCC);
    let flags =
        ["-A", "integers", "-A", "texts@a,c/s3", "-R", "integers", "-R", "recursive", "-A", "recursive@arg1"];
    let recording = record(&program, &flags, &Expect::default());
    let trace = recording.trace.to_string_lossy().into_owned();
    let replay = calltap_run(&["replay", "--no-sched", "-i", &trace]).stdout;
    for line in [
        "integers(a=-1, b=65535, c=-70000, d=1099511627776, e=true, f='x'); /* ret=",
        "texts(a=\"hello\", c=\"lin\"...);",
        "recursive(arg1=20) {",
        "recursive(arg1=0); /* ret=0 */",
        "} /* ret=210 */",
        "floats();",
    ] {
        assert!(replay.contains(line), "{line}: {replay}");
    }
    let lines = calltap_run(&["watch", "recursive", "--json", "-i", &trace]).stdout;
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    // From a file, calls come in the order of their beginnings: the outermost is first.
    assert_eq!(
        (&first["arguments"]["arg1"], &first["results"]["retval"]),
        (&20.into(), &210.into()),
        "{first}"
    );
    let chrome = calltap_run(&["export", "--to", "chrome", "-i", &trace]).stdout;
    let chrome: Value = serde_json::from_str(&chrome).expect("JSON");
    let with = |event: &&Value| event["args"]["arg1"] == 20;
    assert!(chrome["traceEvents"].as_array().into_iter().flatten().any(|event| with(&event)), "{chrome}");
}

#[test]
fn only_calls_for_which_a_condition_holds_are_recorded() {
    let program = program(GCC);
    for (condition, calls) in [
        ("filtered@n > 40", 3 * 9),
        ("filtered@n < -45 && flags & 1", 3 * 2),
        ("filtered@flags & 0x40 == 64", 3 * 36),
        ("filtered@arg2/u8 == 7", 3),
        ("structures@r->next->port == 8080", 3),
        ("structures@r->next->next->port == 1", 0),
    ] {
        let function = condition.split('@').next().unwrap_or_default();
        let recording = record(&program, &["--if", condition], &Expect::default());
        let rows = recording.rows();
        let count = |name: &str| {
            rows.iter()
                .filter(|row| row["function"] == name)
                .map(|row| row["calls"].as_u64().unwrap_or(0))
                .sum::<u64>()
        };
        assert_eq!((count(function), count("floats")), (calls, 3), "{condition}");
        let left_out = format!("for which the condition of their function did not hold: {condition} (--if)");
        for view in ["report", "latency", "info"] {
            let trace = recording.trace.to_string_lossy();
            let words: &[&str] = if view == "latency" { &[view, "floats", &trace] } else { &[view, &trace] };
            let shown = calltap_run(words);
            assert!(shown.stdout.contains(&left_out), "{view}: {}{}", shown.stdout, shown.stderr);
        }
        let path = program.path.to_string_lossy().into_owned();
        let answer = program.directory().join("count").to_string_lossy().into_owned();
        calltap_run(&["count", function, "--if", condition, "--json", "-o", &answer, "--", &path]);
        let counted = std::fs::read(&answer).expect("an answer");
        let counted: Value = serde_json::from_slice(&counted).expect("JSON");
        let hits: u64 = counted["functions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|row| row["calls"].as_u64())
            .sum();
        assert_eq!(hits, calls, "{condition}: {counted}");
    }
}

#[test]
fn value_query_detaches_from_process() {
    let resident = Resident::start(&compile(GCC, &["requests.c"], &["-g"]), &["forever"]);
    let pid = resident.pid.to_string();
    let answer = calltap_run(&["watch", "handle", "-A", "all", "-R", "-n", "50", "--json", "-p", &pid]);
    assert!(answer.status.success(), "{}", answer.stderr);
    let lines: Vec<Value> =
        answer.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.iter().filter(|line| line["arguments"].is_object()).count() == 50, "{}", answer.stdout);
    assert_eq!(changed_text(resident.pid), [""; 0]);
}

#[test]
fn set_changes_recorded_values_of_running_process() {
    let program = compile(GCC, &["requests.c"], &["-g"]);
    let resident = Resident::start(&program, &["forever"]);
    let pid = resident.pid.to_string();
    let on = |words: &[&str]| {
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run.stderr
    };
    let trace = program.directory().join("snapshot").to_string_lossy().into_owned();
    // Waits for a snapshot with enough lines of the function that have values.
    let valued = |word: &str| {
        for _ in 0..600 {
            on(&["snapshot", "-o", &trace]);
            let replay = calltap_run(&["replay", "-i", &trace]).stdout;
            let lines: Vec<String> =
                replay.lines().filter(|line| line.contains(word)).map(str::to_owned).collect();
            if lines.len() > 5 {
                return lines;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("no {word}");
    };
    on(&["attach", "-F", "handle", "-F", "disk"]);
    valued("handle()");
    on(&["set", "-A", "handle@n", "-R", "handle"]);
    valued("handle(n=");
    on(&["set", "-A", "handle@n/x16", "-R", "", "--if", "handle@n & 1"]);
    assert!(valued("handle(n=0x").iter().all(|line| {
        let number = line.split("n=0x").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default();
        u64::from_str_radix(number, 16).is_ok_and(|n| n % 2 == 1)
    }));
    // A set that can read no value changes nothing: the former values are recorded on.
    let refused = calltap_run(&["set", "-A", "handle@nothing", "-p", &pid]);
    assert!(refused.stderr.contains("no parameter is called 'nothing' (there are: n)"), "{}", refused.stderr);
    assert!(!refused.status.success());
    assert_eq!(on(&["set", "--on"]).matches("nothing").count(), 0);
    valued("handle(n=0x");
    on(&["detach"]);
    assert_eq!(changed_text(resident.pid), [""; 0]);
}

#[test]
fn unreadable_values_are_refused_in_one_line() {
    let program = program(GCC);
    let path = program.path.to_string_lossy().into_owned();
    for (flags, why) in [
        (
            &["-A", "integers@nothing_like"][..],
            "no parameter is called 'nothing_like' (there are: a, b, c, d, e, f)",
        ),
        (&["-A", "structures@r->nothing"], "there is no 'nothing' (there are: id, port, host, body, next)"),
        (&["-A", "no_such_function@arg1"], "no traceable function matches 'no_such_function'"),
        (&["-A", "integers@retval"], "belongs to -R"),
        (&["-R", "integers@a"], "belongs to -A"),
        (&["-R", "nothing@retval"], "returns nothing"),
        (&["--if", "integers@a >"], "condition 'a >': a side is missing"),
        (&["--if", "floats@a > 1"], "only whole ones can be compared"),
        (&["-A", "integers@a/q"], "is no form"),
        (&["-A", "integers@a", "--clock", "sparse"], "no room for values"),
    ] {
        let trace = program.directory().join("yesterday");
        std::fs::write(&trace, "kept").expect("room for a file");
        let output = ["record", "-o", &trace.to_string_lossy()];
        one_line(&calltap_run(&[&output, flags, &["--", &path]].concat()), &[why]);
        assert_eq!(std::fs::read_to_string(&trace).expect("the file"), "kept", "{flags:?}");
    }
    one_line(
        &calltap_run(&["watch", "integers", "-A", "integers@a", "--", &path]),
        &["'integers@a'", "named without them"],
    );
}

// If no requested value can be read, the process is not attached to: an empty answer would look
// like a result.
#[test]
fn unreadable_values_of_running_process_are_refused_in_one_line() {
    let bare = &BARE.iter().find(|build| build.name.contains("stripped")).expect("a stripped build");
    for (build, why) in
        [(GCC, "no parameter is called 'nothing'"), (*bare, "no debugging information tells which argument")]
    {
        let program = compile(build, &["requests.c"], if build.name == GCC.name { &["-g"] } else { &[] });
        let resident = Resident::start(&program, &["forever"]);
        let (pid, trace) = (resident.pid.to_string(), program.directory().join("yesterday"));
        std::fs::write(&trace, "kept").expect("room for a file");
        let place = trace.to_string_lossy();
        for words in [
            &["record", "-o", &place, "--if", "nothing > 1"][..],
            &["record", "-o", &place, "-A", "poll@nothing_of_it"],
            &["attach", "--if", "nothing > 1"],
            &["count", "poll", "--if", "nothing > 1"],
        ] {
            let run = calltap_run(&[words, &["-p", &pid]].concat());
            let why =
                if words.contains(&"poll") || words.contains(&"poll@nothing_of_it") { "poll" } else { why };
            one_line(&run, &[why]);
            assert_eq!(changed_text(resident.pid), [""; 0], "{words:?}");
        }
        assert_eq!(std::fs::read_to_string(&trace).expect("the file"), "kept");
        assert!(resident.end().0.success());
    }
}

// Only the entry of `frame_dummy`, which the compiler adds, can be recorded: the hook for that
// evaluates no condition.
#[test]
fn a_function_whose_condition_cannot_be_evaluated_is_not_traced() {
    let program = compile(&BARE[0], &["requests.c"], &[]);
    let all = record(&program, &[], &Expect::default()).rows();
    let has = |rows: &[Value], name: &str| rows.iter().any(|row| row["function"] == name);
    assert!(has(&all, "frame_dummy") && has(&all, "main"), "{all:?}");
    let rows = record(&program, &["--if", "arg1 > 0"], &Expect::default()).rows();
    assert!(!has(&rows, "frame_dummy") && has(&rows, "main"), "{rows:?}");
    let [path, trace] = [program.path.clone(), program.directory().join("some.data")]
        .map(|path| path.to_string_lossy().into_owned());
    let said = calltap_run(&["record", "--if", "arg1 > 0", "-o", &trace, "--", &path]).stderr;
    assert!(said.contains("is not traced, as --if cannot be evaluated for its calls: its returns"), "{said}");
}

#[test]
fn a_function_with_a_cold_part_has_its_arguments_whichever_part_runs() {
    if !have("gcc") {
        return skipped("gcc");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let [source, program] =
        ["split.c", "split"].map(|name| directory.path().join(name).display().to_string());
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
                __attribute__((noinline, cold)) void bad(const char *name, int n) { fprintf(stderr, \"%s %d\\n\", name, n); }\n\
                __attribute__((noinline)) int split(int n, const char *name) {\n\
                  if (__builtin_expect(n < 0, 0)) { bad(name, n); if (n < -5) abort(); bad(name, n + 1); return -7; }\n\
                  int sum = 0; for (int i = 0; i < n; i++) { sum += i * name[0]; asm volatile(\"\" : \"+r\"(sum)); } return sum; }\n\
                int main(int n, char **) { return split(n + 1, \"hot\") - 104 + split(-n, \"cold\") + 7; }\n";
    std::fs::write(&source, text).expect("a file");
    output_of("gcc", &["-O2", "-g", "-std=gnu2x", "-o", &program, &source]).expect("gcc");
    // gcc has split the function into two parts, which debugging information lists.
    let symbols = output_of("nm", &[&program]).expect("nm");
    assert!(symbols.contains(" split.cold"), "{symbols}");
    let run = calltap_run(&["watch", "split", "-A", "all", "-R", "--", &program]);
    assert!(run.status.success(), "{}", run.stderr);
    for call in ["split(n=2, name=\"hot\")  ret=104", "split(n=-1, name=\"cold\")  ret=-7"] {
        assert!(run.stdout.contains(call), "{call}: {}", run.stdout);
    }
}

#[test]
fn arguments_behind_a_transparent_union_are_read() {
    let program = compile(GCC, &["transparent.c"], &["-g"]);
    let (run, shown) = watch(&program, &["take", "-A", "fd,flags", "-R"]);
    let printed = said(&run, "take");
    let of_call = |line: &String| {
        let line = line.replacen("take(", "", 1).replace([',', ')'], " ");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown.iter().map(of_call).collect::<Vec<_>>(), printed, "{shown:?}");
    assert_eq!(printed.len(), 3, "{}", run.stdout);
}

#[test]
fn members_of_structures_in_registers_are_read() {
    let items =
        [("use", "h.place"), ("identify", "i.kind,i.number,i.flag,o.inner.number"), ("measure", "p.x,p.y")];
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["in_registers.cpp"], &["-g"]);
        for (function, items) in items {
            let (run, shown) = watch(&program, &[function, "-A", items]);
            let printed: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with(function)).collect();
            assert_eq!(shown, printed, "{}", build.name);
        }
        let trace = program.directory().join("results.data").display().to_string();
        let path = program.path.display().to_string();
        let run = calltap_run(&["record", "-q", "-R", "use@retval.place", "-o", &trace, "--", &path]);
        let shown = calltap_run(&["replay", "-i", &trace]).stdout;
        let results: Vec<&str> = run.stdout.lines().filter_map(|line| line.strip_prefix("result ")).collect();
        assert_eq!(results.len(), 2, "{}", run.stdout);
        assert!(results.iter().all(|result| shown.contains(result)), "{}: {shown}", build.name);
        let (_, shown) = watch(&program, &["identify", "-A", "i.kind", "--if", "i.kind == -4"]);
        assert_eq!(shown, ["identify(i.kind=-4)"], "{}", build.name);
        let run = calltap_run(&["watch", "take_bits", "-A", "b.high", "--", &path]);
        one_line(&run, &["'high' is a bit field"]);
    }
}

/// LLVM passes the value behind a reference where it optimises.
#[test]
fn references_of_rust_are_addresses_or_left_out() {
    if !have("rustc") {
        return skipped("rustc");
    }
    for (flags, promoted) in
        [(&["-C", "opt-level=0"][..], "promoted(point=0x7ff"), (&["-O"], "promoted(k=6)")]
    {
        let program = compile_rust_as_it_is("promoted.rs", flags);
        let (run, shown) = watch(&program, &["kept", "-A", "all"]);
        let shown: Vec<&str> = shown.iter().map(|call| call.trim_start_matches("promoted::")).collect();
        assert_eq!(shown, said(&run, "call"), "{flags:?}");
        let (_, shown) = watch(&program, &["promoted", "-A", "all"]);
        assert_eq!(shown.len(), 2, "{flags:?}: {shown:?}");
        assert!(shown.iter().all(|call| call.contains(promoted)), "{flags:?}: {shown:?}");
    }
}
