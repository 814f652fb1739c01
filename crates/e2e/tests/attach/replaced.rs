//! Files that are replaced on disk while a process has them mapped, as an upgrade does.

use calltap_e2e::{GCC, Resident, calltap_run, compile, skipped};
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
