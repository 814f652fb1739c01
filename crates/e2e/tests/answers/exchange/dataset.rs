//! `calltap export --to parquet`, read by DuckDB: its sums are those of `calltap report`, and the
//! queries of `docs/guides/fleet.md` run. Also `--to otlp`, whose spans are the calls.
//!
//! `CALLTAP_PYTHON` names a directory with Python's packages `duckdb`, `opentelemetry-proto` and
//! `pyspark`; .ci/run provides them.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Adds a recording to a dataset.
fn export(recording: &Recording, dataset: &Path) {
    let (from, into) = (recording.trace.to_string_lossy(), dataset.to_string_lossy());
    let run = calltap_run(&["export", "--to", "parquet", "-i", &from, "-o", &into]);
    assert!(run.status.success(), "{}: {}", recording.what, run.stderr);
}

/// Returns a test script that needs a package of Python; `None` if the package is not installed.
fn script(name: &str, package: &str) -> Option<Command> {
    let python = || {
        let mut command = Command::new("python3");
        if let Some(packages) = std::env::var_os("CALLTAP_PYTHON") {
            command.env("PYTHONPATH", packages);
        }
        command
    };
    let (mut probe, mut command) = (python(), python());
    if !probe.args(["-c", &format!("import {package}")]).output().is_ok_and(|output| output.status.success())
    {
        skipped(&format!("no {package} for python3 here (CALLTAP_PYTHON)"));
        return None;
    }
    command.arg(source(name));
    Some(command)
}

/// Returns the lines of JSON that a script prints.
fn lines(command: Command, input: &str) -> Vec<Vec<Value>> {
    let run = run_timeout(command, input.as_bytes(), Duration::from_secs(300));
    assert!(run.status.success(), "{input}: {}", run.stderr);
    run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs statements by DuckDB, and returns the rows of each; `None` without DuckDB.
fn query(statements: &[String]) -> Option<Vec<Vec<Value>>> {
    Some(lines(script("dataset.py", "duckdb")?, &statements.join("\0")))
}

fn view_of(dataset: &Path) -> String {
    let files = dataset.join("*/*/*/*.parquet");
    format!(
        "CREATE VIEW calls AS SELECT * FROM read_parquet('{}', hive_partitioning = true)",
        files.display()
    )
}

fn recorded(flags: &[&str], defines: &[&str]) -> (Program, Recording) {
    let program = compile(GCC, &["dataset.c"], defines);
    let recording = record(&program, flags, &Expect::default());
    assert!(recording.run.status.success(), "{}", recording.run.stderr);
    (program, recording)
}

/// Returns all files below a directory.
fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { BTreeSet::from([path]) }).collect()
}

#[test]
fn dataset_sums_equal_report() {
    for flags in [&["--clock", "tsc"][..], &["--clock", "sparse"], &["--tracer", "function"]] {
        let (program, recording) = recorded(flags, &[]);
        let dataset = program.directory().join("table");
        export(&recording, &dataset);
        let sums = "SELECT function, sum(calls)::BIGINT AS calls, sum(duration_ns)::BIGINT AS total_ns, \
                    sum(self_ns)::BIGINT AS self_ns, count(DISTINCT tid) AS threads, min(build_id) AS build_id, \
                    bool_and(start = make_timestamptz(start_ns // 1000)) AS agree, \
                    bool_and(day = start::DATE) AS on_its_day FROM calls GROUP BY function";
        let parents = "SELECT DISTINCT function, parent FROM calls WHERE ending = 'returned' ORDER BY ALL";
        let Some(answers) = query(&[view_of(&dataset), sums.into(), parents.into()]) else { return };
        let reported = recording.rows();
        assert_eq!(answers[1].len(), reported.len(), "{}: {:?}", recording.what, answers[1]);
        for row in &reported {
            let own = answers[1].iter().find(|own| own["function"] == row["function"]).expect("a function");
            assert_eq!(own["calls"], row["calls"], "{}: {own}", recording.what);
            assert!(own["agree"] == true && own["on_its_day"] == true, "{}: {own}", recording.what);
            assert!(own["build_id"].is_string(), "{own}");
            for key in ["total_ns", "self_ns"] {
                // Durations are rounded once per call here, and once per function in the report.
                let (ours, theirs) = (own[key].as_u64().unwrap_or(0), row[key].as_u64().unwrap_or(0));
                let slack = row["calls"].as_u64().unwrap_or(0) + 2;
                assert!(ours.abs_diff(theirs) <= slack, "{}: {key}: {own}, not {row}", recording.what);
            }
        }
        let states = "SELECT function, sum(cpu_ns)::BIGINT AS cpu_ns, sum(runnable_ns)::BIGINT AS runnable_ns, \
                      sum(blocked_ns)::BIGINT AS blocked_ns, sum(tracing_ns)::BIGINT AS tracing_ns, sum(duration_ns)::BIGINT AS all_ns, \
                      count(cpu_ns) = count(*) AS known FROM calls GROUP BY function";
        for row in query(&[view_of(&dataset), states.into()]).expect("DuckDB is there")[1].iter() {
            if row["known"] == true {
                let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"]
                    .map(|key| row[key].as_u64().unwrap_or(0));
                let all = row["all_ns"].as_u64().unwrap_or(0);
                assert!(parts.iter().sum::<u64>().abs_diff(all) <= 10_000, "{}: {row}", recording.what);
            }
        }
        if !flags.contains(&"function") {
            let called = |function: &str, parent: &str| {
                answers[2].iter().any(|row| row["function"] == function && row["parent"] == parent)
            };
            assert!(called("leaf", "middle") && called("middle", "outer"), "{:?}", answers[2]);
        }
    }
}

#[test]
fn a_second_export_replaces_its_own_files_only() {
    let (program, first) = recorded(&[], &[]);
    let second = record(&program, &[], &Expect::default());
    let dataset = program.directory().join("table");
    export(&first, &dataset);
    let of_first = files(&dataset);
    export(&second, &dataset);
    let of_both = files(&dataset);
    assert!(of_first.len() == 1 && of_both.len() == 2 && of_first.is_subset(&of_both), "{of_both:?}");
    // A file that an earlier export with more files has left, and another program's file.
    let own = of_first.first().expect("a file");
    let name = own.file_name().and_then(|name| name.to_str()).expect("a name");
    let stale = own.with_file_name(name.replace("-0.parquet", "-7.parquet"));
    let other = own.with_file_name("other.parquet");
    fs::copy(own, &stale).expect("a copy");
    fs::copy(own, &other).expect("a copy");
    export(&first, &dataset);
    let now = files(&dataset);
    assert!(!now.contains(&stale) && now.contains(&other) && now.is_superset(&of_both), "{now:?}");
    // An export that fails leaves nothing behind.
    let file = program.directory().join("file");
    fs::write(&file, "").expect("a file");
    let run = calltap_run(&[
        "export",
        "--to",
        "parquet",
        "-i",
        &first.trace.to_string_lossy(),
        "-o",
        &file.to_string_lossy(),
    ]);
    assert!(!run.status.success() && run.stderr.lines().count() == 1, "{}", run.stderr);
}

#[test]
fn the_queries_of_the_documentation_run() {
    let (program, old) = recorded(&["-A", "leaf@n", "-R", "leaf", "-R", "outer"], &[]);
    // The difference is larger than the time that a thread may be kept waiting in the other run's
    // calls.
    let (_slower, new) = recorded(&[], &["-DSLOW=1000"]);
    let dataset = program.directory().join("table");
    export(&old, &dataset);
    export(&new, &dataset);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/fleet.md");
    let text = fs::read_to_string(docs).expect("docs/guides/fleet.md");
    let blocks = text.split("```sql\n").skip(1).filter_map(|block| block.split("```").next());
    let statements: Vec<String> = blocks
        .map(|block| block.trim().trim_end_matches(';').replace("DATASET", &dataset.to_string_lossy()))
        .collect();
    assert!(statements.len() >= 6, "{statements:?}");
    let Some(answers) = query(&statements) else { return };
    for (statement, rows) in statements.iter().zip(&answers).skip(1) {
        assert_eq!(rows.is_empty(), statement.contains("'lost' GROUP BY"), "{statement}: {rows:?}");
    }
    let regressions = answers.iter().find(|rows| rows.iter().any(|row| row.get("slower").is_some()));
    // On a busy machine another function may have waited longer than that.
    let rows = regressions.expect("the query");
    let is_leaf = |row: &&Value| row["function"] == "leaf";
    let leaf = rows.iter().find(is_leaf).unwrap_or_else(|| panic!("{rows:?}"));
    assert!(leaf["slower"].as_f64().unwrap_or(0.0) > 2.0, "{leaf}");
}

#[test]
fn values_are_columns() {
    let flags = ["-A", "leaf@n", "-A", "outer@n", "-R", "leaf"];
    let (program, recording) = recorded(&flags, &[]);
    let dataset = program.directory().join("table");
    export(&recording, &dataset);
    let with = "SELECT function, count(arguments) AS with_arguments, count(results) AS with_results, count(*) AS calls, \
                bool_and((results ->> '$.retval')::BIGINT = (arguments ->> '$.n')::BIGINT + 1) AS one_more, \
                min((arguments ->> '$.n')::BIGINT) AS least FROM calls GROUP BY function ORDER BY function";
    let Some(answers) = query(&[view_of(&dataset), with.into()]) else { return };
    let row = |name: &str| {
        answers[1].iter().find(|row| row["function"] == name).unwrap_or_else(|| panic!("{name}: {answers:?}"))
    };
    let counts = |name: &str| ["with_arguments", "with_results", "calls"].map(|key| row(name)[key].as_u64());
    assert_eq!(counts("leaf"), [Some(4000); 3]);
    assert_eq!(counts("middle"), [Some(0), Some(0), Some(2000)]);
    assert_eq!(counts("outer"), [Some(40), Some(0), Some(40)]);
    assert_eq!(row("leaf")["one_more"], true, "leaf returns its argument and one");
    assert_eq!(row("outer")["least"], 0, "outer is called with 0 to 19");
}

/// Exports a recording to OTLP, and returns the text and its spans.
fn spans(recording: &Recording, flags: &[&str]) -> (String, Vec<Value>) {
    let (from, file) = (recording.trace.to_string_lossy(), recording.trace.with_extension("otlp"));
    let into = file.to_string_lossy();
    let run = calltap_run(&[&["export", "--to", "otlp", "-i", &from, "-o", &into], flags].concat());
    assert!(run.status.success(), "{}", run.stderr);
    let text = fs::read_to_string(&file).expect("spans");
    let requests = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of = |request: Value| request["resourceSpans"].as_array().cloned().unwrap_or_default();
    let resources: Vec<Value> = requests.flat_map(of).collect();
    let spans = resources.iter().flat_map(|resource| resource["scopeSpans"][0]["spans"].as_array());
    let spans = spans.flatten().cloned().collect();
    (text, spans)
}

#[test]
fn an_argument_joins_the_spans_of_several_threads() {
    let program = compile(GCC, &["request_ids.c"], &["-g", "-pthread"]);
    let recording = record(&program, &["-A", "handle", "-A", "work", "-R", "work"], &Expect::default());
    let (_, spans) = spans(&recording, &["-F", "handle", "-F", "work", "--trace-id", "id"]);
    let named = |name: &str, id: &str| -> Vec<&Value> {
        let has = |span: &&Value| {
            let values = span["attributes"].as_array().into_iter().flatten();
            let mut ids = values.filter(|value| value["key"] == "calltap.value.id");
            span["name"] == name && ids.any(|value| value["value"]["stringValue"] == id)
        };
        spans.iter().filter(has).collect()
    };
    for id in ["4bf92f3577b34da6a3ce929d0e0e4736", "second"] {
        let (handles, works) = (named("handle", id), named("work", id));
        assert_eq!((handles.len(), works.len()), (1, 2), "{spans:?}");
        for work in &works {
            assert_eq!(work["traceId"], handles[0]["traceId"], "{work}");
            assert_eq!(work["parentSpanId"], handles[0]["spanId"], "{work}");
        }
        assert_eq!(handles[0].get("parentSpanId"), None);
        assert_eq!(handles[0]["traceId"] == id, id.len() == 32, "{}", handles[0]);
    }
    assert_eq!(spans.len(), 6);
}

#[test]
fn spans_are_the_calls_of_the_functions_chosen() {
    let (_program, recording) = recorded(&[], &[]);
    let chosen = ["-F", "outer", "-F", "lea?"];
    let (text, all) = spans(&recording, &chosen);
    assert_eq!(text, spans(&recording, &chosen).0, "the same ids");
    let word = |span: &Value, key: &str| span[key].as_str().unwrap_or_default().to_owned();
    let by_id: BTreeMap<String, &Value> = all.iter().map(|span| (word(span, "spanId"), span)).collect();
    assert_eq!(by_id.len(), all.len(), "ids are different");
    let mut counts = BTreeMap::<String, u32>::new();
    for span in &all {
        *counts.entry(word(span, "name")).or_default() += 1;
        let times = |span: &Value| {
            ["startTimeUnixNano", "endTimeUnixNano"]
                .map(|key| word(span, key).parse::<u64>().expect("a number"))
        };
        let [start, end] = times(span);
        assert!(start <= end && word(span, "traceId").len() == 32, "{span}");
        match by_id.get(&word(span, "parentSpanId")) {
            None => assert_eq!(span["name"], "outer", "{span}"),
            Some(parent) => {
                let [from, to] = times(parent);
                assert!(from <= start && end <= to, "{span} in {parent}");
                assert_eq!((&parent["name"], &parent["traceId"]), (&"outer".into(), &span["traceId"]));
            }
        }
    }
    assert_eq!(counts, BTreeMap::from([("leaf".to_owned(), 4000), ("outer".to_owned(), 40)]));
    let nothing = calltap_run(&["export", "--to", "otlp", "-i", &recording.trace.to_string_lossy()]);
    assert!(!nothing.status.success() && nothing.stderr.contains("-F"), "{}", nothing.stderr);
}

#[test]
fn spans_conform_to_opentelemetry() {
    let Some(mut command) = script("otlp.py", "opentelemetry.proto") else { return };
    let (_program, recording) = recorded(&["-A", "leaf@n", "-R", "leaf"], &[]);
    let file = recording.trace.with_extension("otlp");
    spans(&recording, &["-F", "outer", "-F", "lea?"]);
    let requests = lines(
        {
            command.arg(file);
            command
        },
        "",
    );
    let all: Vec<&Value> = requests.iter().flatten().collect();
    let of = |name: &str| all.iter().filter(|span| span[1] == name).count();
    assert_eq!((all.len(), of("leaf"), of("outer")), (4040, 4000, 40));
    assert!(all.iter().all(|span| span[0] == "dataset" && span[2].as_u64().is_some()), "{:?}", all[0]);
}

/// Spark runs as a cluster: its worker is another process.
#[test]
fn spark_and_duckdb_agree() {
    let Some(mut command) = script("spark.py", "pyspark").filter(|_| have("java")) else { return };
    let (program, recording) = recorded(&["-A", "leaf@n", "-R", "leaf"], &[]);
    let dataset = program.directory().join("table");
    export(&recording, &dataset);
    command.arg(&dataset).env("SPARK_LOCAL_IP", "127.0.0.1").current_dir(program.directory());
    let sums = "SELECT function, host, process, CAST(day AS STRING) AS day, CAST(sum(calls) AS BIGINT) AS calls, \
                CAST(sum(duration_ns) AS BIGINT) AS total_ns, CAST(sum(self_ns) AS BIGINT) AS self_ns, \
                count(DISTINCT tid) AS threads, min(build_id) AS build_id, count(arguments) AS valued, \
                CAST(max(start_ns) AS BIGINT) AS newest FROM calls GROUP BY function, host, process, day ORDER BY function, day";
    let spark = lines(command, sums);
    let leaf = spark[0].iter().find(|row| row["function"] == "leaf");
    assert!(leaf.is_some_and(|row| row["calls"] == 4000 && row["valued"] == 4000), "{spark:?}");
    let Some(duckdb) = query(&[view_of(&dataset), sums.replace("STRING", "VARCHAR")]) else { return };
    assert_eq!(spark[0], duckdb[1]);
}
