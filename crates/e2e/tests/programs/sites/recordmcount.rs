//! Object files to which the list of their calls to mcount is added: the program linked from them,
//! and the changes of the files.

use calltap_e2e::{
    Build, Expect, Program, calltap, calltap_run, check, compile, diagonal, installed, plain, run, skipped,
    write_program,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const GNU: [&str; 2] = ["gcc", "g++"];
const LLVM: [&str; 2] = ["clang-16", "clang++-16"];

/// Builds with calls to mcount.
const BUILDS: &[Build] = &[
    Build { name: "gcc mcount", compilers: GNU, flags: &["-O2", "-pg"] },
    Build { name: "gcc fentry", compilers: GNU, flags: &["-O2", "-pg", "-mfentry"] },
    Build { name: "gcc no-pie", compilers: GNU, flags: &["-O2", "-fno-pie", "-no-pie", "-pg", "-mfentry"] },
    Build { name: "clang mcount", compilers: LLVM, flags: &["-O2", "-pg"] },
    Build { name: "clang fentry", compilers: LLVM, flags: &["-O2", "-pg", "-mfentry"] },
];

/// Returns the kinds and addresses of the functions that can be traced.
fn sites(program: &Path) -> Vec<(String, String)> {
    let run = calltap_run(&["sites", "--format", "json", &program.display().to_string()]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).expect("a list");
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let traceable = rows.iter().filter(|row| row["traceable"] == true && row["on_demand"] == false);
    traceable.map(|row| (text(row, "function"), text(row, "kind"))).collect()
}

/// Compiles and links in two steps, with an operation on the object in between.
fn in_two_steps(build: &Build, source: &str, between: impl Fn(&Path)) -> Program {
    let program = compile(build, &[source], &[]);
    let object = program.add(build, &[source], "object.o", &["-c"]);
    between(&object);
    let name = program.path.file_name().expect("a name").to_string_lossy().into_owned();
    let library = if source.ends_with("cpp") { "-lstdc++" } else { "-lc" };
    program.add(build, &[&object.display().to_string()], &name, &[library]);
    program
}

fn recordmcount(objects: &[&Path]) -> calltap_e2e::Run {
    let mut command = Command::new(calltap());
    run(
        {
            command.arg("recordmcount").args(objects);
            command
        },
        b"",
    )
}

fn done(object: &Path) {
    let run = recordmcount(&[object]);
    assert!(run.status.success() && run.stderr.is_empty() && run.stdout.is_empty(), "{}", run.stderr);
}

#[test]
fn programs_of_such_objects_are_recorded_by_their_lists() {
    for (turn, build) in installed(BUILDS).enumerate() {
        for source in ["tail.c", "jumps.c", "throws.cpp"] {
            let program = in_two_steps(build, source, done);
            let sites = sites(&program.path);
            assert!(sites.len() > 5, "{}: {sites:?}", program.name);
            assert!(sites.iter().all(|(_, kind)| kind == "mcount_loc"), "{}: {sites:?}", program.name);
            check(&program, &diagonal(turn), &Expect::default());
        }
    }
}

#[test]
fn the_functions_are_those_of_the_compilers_own_list() {
    const OWN: &[Build] = &[
        Build { name: "own", compilers: GNU, flags: &["-O2", "-pg", "-mrecord-mcount"] },
        Build { name: "own fentry", compilers: GNU, flags: &["-O2", "-pg", "-mfentry", "-mrecord-mcount"] },
        Build {
            name: "own no-pie",
            compilers: GNU,
            flags: &["-O2", "-fno-pie", "-no-pie", "-pg", "-mfentry", "-mrecord-mcount"],
        },
    ];
    for (own, build) in OWN.iter().zip(BUILDS) {
        for source in ["tail.c", "threads.c", "throws.cpp"] {
            let ours = in_two_steps(build, source, done);
            assert_eq!(sites(&compile(own, &[source], &[]).path), sites(&ours.path), "{}", ours.name);
        }
    }
}

/// Returns a build whose compiler is run by `calltap cc`.
fn wrapped(build: &Build) -> Build {
    let words = |compiler| -> &'static [&'static str] { [&["cc", compiler], build.flags].concat().leak() };
    let calltap: &'static str = calltap().display().to_string().leak();
    Build { name: build.name, compilers: [calltap; 2], flags: words(build.compilers[0]) }
}

#[test]
fn wrapped_compiler_records_calls() {
    for build in installed(BUILDS) {
        let program = in_two_steps(&wrapped(build), "tail.c", |_| ());
        let sites = sites(&program.path);
        assert!(sites.iter().all(|(_, kind)| kind == "mcount_loc"), "{}: {sites:?}", program.name);
        check(&program, &plain(), &Expect::default());
    }
}

/// Returns a directory with a source and its object.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("unit.o");
    fs::write(directory.path().join("unit.c"), "int work(int a) { return a + 1; }\n").expect("a source");
    assert!(shell(directory.path(), "gcc -O2 -pg -c unit.c").status.success());
    (directory, object)
}

fn shell(directory: &Path, script: &str) -> calltap_e2e::Run {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(directory).env("calltap", calltap());
    run(command, b"")
}

fn listed(object: &Path) -> bool {
    fs::read(object).expect("an object").windows(12).any(|name| name == b"__mcount_loc")
}

#[test]
fn files_are_replaced_only_if_there_is_something_to_add() {
    let (directory, object) = directory();
    let [link, hard] = ["link.o", "hard.o"].map(|name| directory.path().join(name));
    symlink("unit.o", &link).expect("a link");
    fs::hard_link(&object, &hard).expect("a link");
    fs::set_permissions(&object, fs::Permissions::from_mode(0o640)).expect("a mode");
    let before = fs::read(&object).expect("an object");
    done(&link);
    assert!(listed(&object) && fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert_eq!(fs::read(&hard).expect("an object"), before, "another name of the old file");
    let first = fs::metadata(&object).expect("an object");
    assert_eq!(first.mode() & 0o7777, 0o640);
    done(&object);
    let second = fs::metadata(&object).expect("an object");
    let identity = |file: &fs::Metadata| (file.ino(), file.mtime_nsec(), file.ctime_nsec(), file.len());
    assert_eq!(identity(&first), identity(&second), "a second time");
    let none = directory.path().join("none.o");
    assert!(shell(directory.path(), "gcc -c unit.c -o none.o").status.success());
    let first = fs::metadata(&none).expect("an object");
    done(&none);
    assert_eq!(identity(&first), identity(&fs::metadata(&none).expect("an object")), "without calls");
    let left: Vec<_> = fs::read_dir(directory.path()).expect("a directory").collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn invalid_objects_are_reported_and_others_processed() {
    let (directory, object) = directory();
    let path = |name: &str| directory.path().join(name);
    let whole = fs::read(&object).expect("an object");
    fs::write(path("cut.o"), &whole[..whole.len() / 2]).expect("written");
    let other = [&whole[..18], &[183], &whole[19..]].concat();
    fs::write(path("arm.o"), other).expect("written");
    fs::write(path("text.o"), "no object").expect("written");
    fs::write(path("empty.o"), "").expect("written");
    let wrong = ["cut.o", "arm.o", "text.o", "empty.o", "missing.o", "."].map(path);
    let kept: Vec<_> = wrong[..4].iter().map(|file| fs::read(file).expect("a file")).collect();
    let mut all: Vec<&Path> = wrong.iter().map(PathBuf::as_path).collect();
    all.push(&object);
    let run = recordmcount(&all);
    assert_eq!(run.status.code(), Some(1));
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), wrong.len(), "{}", run.stderr);
    for ((line, file), says) in lines.iter().zip(&wrong).zip([
        "truncated",
        "machine 183",
        "not an ELF",
        "not an ELF",
        "No such file",
        "regular",
    ]) {
        assert!(line.starts_with(&format!("calltap: {}: ", file.display())) && line.contains(says), "{line}");
    }
    assert!(listed(&object), "the last one");
    assert_eq!(wrong[..4].iter().map(|file| fs::read(file).expect("a file")).collect::<Vec<_>>(), kept);
}

#[test]
fn full_disk_leaves_object_unchanged() {
    let (directory, object) = directory();
    let place = directory.path().join("small");
    fs::create_dir(&place).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8k", "tmpfs"]).arg(&place).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skipped("no small file system can be mounted here");
    }
    let copy = place.join("unit.o");
    fs::copy(&object, &copy).expect("room for one");
    fs::write(place.join("rest"), vec![1; 4096]).expect("room for that");
    let run = recordmcount(&[&copy]);
    let (left, files) = (fs::read(&copy), fs::read_dir(&place).map(Iterator::count));
    let _ = Command::new("umount").arg(&place).status();
    assert_eq!(run.status.code(), Some(1));
    assert!(run.stderr.lines().count() == 1 && run.stderr.contains("space"), "{}", run.stderr);
    assert_eq!(left.expect("the object"), fs::read(&object).expect("an object"));
    assert_eq!(files.expect("a directory"), 2, "something is left");
}

#[test]
fn wrapped_compiler_sees_expected_environment() {
    let (directory, object) = directory();
    let at = |name: &str| directory.path().join(name);
    let same = |script: &str| {
        let ours = shell(directory.path(), &script.replace("CC", "$calltap cc gcc"));
        let own = shell(directory.path(), &script.replace("CC", "gcc"));
        assert_eq!(
            (ours.status, &ours.stdout, &ours.stderr),
            (own.status, &own.stdout, &own.stderr),
            "{script}"
        );
        ours
    };
    same("CC -pg -E unit.c");
    same("CC -pg -S unit.c -o -");
    same("CC -M unit.c");
    same("CC --version");
    same("CC");
    same("CC -c -o /dev/null -pg unit.c");
    assert_eq!(same("echo 'int x(' | CC -pg -x c -c - -o wrong.o").status.code(), Some(1));
    assert!(!at("wrong.o").exists());
    same("CC -c missing.c");
    // Several sources, a response file, an output elsewhere, bitcode.
    fs::write(at("two.c"), "int two(int a) { return a * 2; }\n").expect("written");
    fs::write(at("words"), "-pg '-c' unit.c\n two.c").expect("written");
    fs::create_dir(at("out")).expect("a directory");
    let made = shell(
        directory.path(),
        "rm unit.o; $calltap cc gcc @words && $calltap cc gcc -pg -c two.c -oout/x.o",
    );
    assert!(made.status.success(), "{}", made.stderr);
    assert!([&object, &at("two.o"), &at("out/x.o")].iter().all(|object| listed(object)));
    // Objects that the compiler has as input are not changed.
    let script = "gcc -pg -c two.c; echo 'int main(){}' >main.c; $calltap cc gcc -pg main.c two.o -o program && ./program";
    assert!(shell(directory.path(), script).status.success());
    assert!(!listed(&at("two.o")));
    assert_eq!(shell(directory.path(), "$calltap cc no-such-compiler -c x.c").status.code(), Some(127));
}

#[test]
fn a_compiler_that_is_interrupted() {
    let (directory, _) = directory();
    let script =
        "#!/bin/sh\nsleep 20 & trap 'kill $!; trap - TERM; kill -TERM $$' TERM\necho ready >ready\nwait\n";
    let compiler = directory.path().join("compiler");
    write_program(&compiler, script.as_bytes(), 0o755);
    let run = shell(
        directory.path(),
        "$calltap cc ./compiler -c & while ! [ -e ready ]; do sleep 0.01; done; kill -TERM $!; wait $!",
    );
    assert_eq!(run.status.code(), Some(128 + 15), "{}", run.stderr);
    let run = shell(directory.path(), "exec $calltap cc sh -c 'kill -SEGV $$'");
    assert_eq!(run.status.signal(), Some(11), "as the compiler ended");
}

#[test]
fn make_works_with_calltap_cc() {
    let (directory, _) = directory();
    if !calltap_e2e::have("make") {
        return;
    }
    let rules = "program: main.o unit.o\n\t$(CC) -pg -o $@ $^\n";
    fs::write(directory.path().join("Makefile"), rules).expect("written");
    fs::write(directory.path().join("main.c"), "int work(int);\nint main(void) { return work(1); }\n")
        .expect("written");
    let made = shell(directory.path(), "rm unit.o; make -s CC=\"$calltap cc gcc\" CFLAGS='-O2 -pg'");
    assert!(made.status.success(), "{}", made.stderr);
    let kinds = sites(&directory.path().join("program"));
    let expected = ["main", "work"].map(|name| (name.to_owned(), "mcount_loc".to_owned()));
    assert_eq!(kinds.len(), 2);
    assert!(expected.iter().all(|site| kinds.contains(site)), "{kinds:?}");
}
