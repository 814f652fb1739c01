//! Files that are replaced on disk while a process has them mapped, as an upgrade does.

use calltap_e2e::{BARE, GCC, Resident, calltap_run, changed_text, compile, skipped};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Puts another file in the place of one.
fn replace(path: &Path) {
    let new = path.with_extension("new");
    fs::copy("/bin/true", &new).expect("another file");
    fs::rename(new, path).expect("in its place");
}

#[test]
fn functions_of_a_replaced_library_and_program_are_found_by_the_former_names() {
    if fs::read_dir("/proc/self/map_files").is_ok_and(|mut files| files.next().is_none()) {
        return skipped("replaced files: /proc/PID/map_files cannot be read");
    }
    let program = compile(GCC, &["replaced.c"], &[]);
    let library = program.add(GCC, &["replaced.c"], "libshared.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    let resident = Resident::start(&program, &[&library.to_string_lossy()]);
    let (pid, trace) = (resident.pid.to_string(), resident.trace().to_string_lossy().into_owned());
    [&library, &program.path].into_iter().for_each(|path| replace(path));
    let count = |word: &str| {
        let run = calltap_run(&["count", word, "-p", &pid, "--duration", "0.3", "--json"]);
        assert!(run.status.success(), "{word}: {}", run.stderr);
        let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let row = &answer["functions"][0];
        assert!(row["calls"].as_u64() > Some(0), "{word}: {answer}");
        row["module"].as_str().expect("a module").to_owned()
    };
    for word in ["shared_leaf", "libshared:shared_leaf", "shared:shared_leaf", "shared_leaf:mod:libshared.so"]
    {
        assert_eq!(count(word), "libshared.so", "{word}");
    }
    for word in ["own_leaf", "replaced:own_leaf", "own_leaf:mod:replaced"] {
        assert_eq!(count(word), "replaced", "{word}");
    }
    let recorded =
        calltap_run(&["record", "-p", &pid, "-F", "libshared:*", "--duration", "0.3", "-o", &trace]);
    assert!(recorded.stderr.contains(" on, in libshared.so\n"), "{}", recorded.stderr);
    for word in ["libshared:shared_leaf", "shared_leaf:mod:shared"] {
        let report = calltap_run(&["report", &trace, "-F", word]);
        assert!(report.stdout.contains("libshared.so  shared_leaf"), "{}{}", report.stdout, report.stderr);
    }
    // A trace tells that the file at this path is another one.
    let info = calltap_run(&["info", &trace]).stdout;
    assert!(info.contains("libshared.so (deleted)"), "{info}");
    assert!(resident.end().0.success());
}

/// The sites of the former library are gone, although the same file is mapped at the same place.
#[test]
fn a_library_that_was_overwritten_and_opened_again_does_not_keep_calltap() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["replaced.c"], &[]);
        let add = |name: &str, define: &str| {
            let library =
                program.add(build, &["replaced.c"], name, &["-DLIBRARY", "-shared", "-fPIC", "-s", define]);
            let mut bytes = fs::read(&library).expect("a library");
            bytes.resize(bytes.len().next_multiple_of(1 << 16), 0);
            fs::write(&library, bytes).expect("of one length");
            library.to_string_lossy().into_owned()
        };
        let (library, other) = (add("libshared.so", "-DFIRST"), add("libother.so", "-DOTHER"));
        let mut resident = Resident::start(&program, &[&other, &library]);
        let pid = resident.pid.to_string();
        let attached = calltap_run(&["attach", "-p", &pid, "-F", "libshared:*"]);
        assert!(attached.status.success(), "{}: {}", build.name, attached.stderr);
        resident.tell();
        resident.wait_for("done");
        let detached = calltap_run(&["detach", "-p", &pid]);
        let is_whole = detached.status.success() && !detached.stderr.contains("mappings stay");
        assert!(is_whole, "{}: {}", build.name, detached.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{}: {}", build.name, detached.stderr);
        let again = resident.attach(&["-F", "libshared:*", "--duration", "100ms"]);
        assert!(again.status.success(), "{}: {}", build.name, again.stderr);
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}
