//! The suites: for each program its commands, its upstream tests, and the lines of their output
//! that are compared.

use super::{Suite, Test, everyday, upstream};
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const ALL: [Suite; 11] = [
    Suite {
        name: "bash",
        needs: &[("/bin/bash", "apt-get install bash")],
        commands: || vec![("bash".to_owned(), "/bin/bash".into())],
        flags: "",
        tests: bash,
        compared: |_| true,
    },
    Suite {
        name: "coreutils",
        needs: &[("/usr/bin/perl", "apt-get install perl")],
        commands: coreutils_commands,
        flags: "",
        tests: coreutils,
        // The trace of the shell contains process ids.
        compared: |_| false,
    },
    everyday::SUITE,
    Suite {
        name: "git",
        needs: &[("/usr/bin/git", "apt-get install git")],
        commands: || vec![("git".to_owned(), "/usr/bin/git".into())],
        flags: "",
        tests: |_| Ok(vec![Test { name: "everyday".to_owned(), script: include_str!("git.sh").to_owned() }]),
        compared: |_| true,
    },
    Suite {
        name: "lua",
        needs: &[("/usr/bin/lua5.4", "apt-get install lua5.4")],
        commands: || vec![("lua".to_owned(), "/usr/bin/lua5.4".into())],
        flags: "",
        tests: lua,
        // These lines contain random numbers or durations.
        compared: |line| ["time:", "random", "short-circuit"].iter().all(|word| !line.contains(word)),
    },
    Suite {
        name: "nginx",
        needs: &[
            ("/usr/sbin/nginx", "apt-get install nginx"),
            ("/usr/bin/wrk", "apt-get install wrk"),
            ("/usr/bin/curl", "apt-get install curl"),
        ],
        commands: Vec::new,
        flags: "",
        // Under load, the server's processes are attached to and detached from in turn, and its
        // answers are compared.
        tests: |_| Ok(vec![Test { name: "answers".to_owned(), script: include_str!("nginx.sh").to_owned() }]),
        compared: |_| true,
    },
    Suite {
        name: "postgres",
        needs: &[
            ("/usr/lib/postgresql/15/bin/postgres", "apt-get install postgresql-15"),
            (PG_REGRESS, "apt-get install postgresql-server-dev-15"),
        ],
        commands: Vec::new,
        flags: "",
        tests: postgres,
        compared: |_| true,
    },
    Suite {
        name: "python3.11",
        needs: &[
            ("/usr/bin/python3.11", "apt-get install python3.11"),
            ("/usr/lib/python3.11/test/test_grammar.py", "apt-get install libpython3.11-testsuite"),
        ],
        commands: || vec![("python".to_owned(), "/usr/bin/python3.11".into())],
        flags: "",
        tests: python,
        compared: |line| {
            [" ok", " FAIL", " ERROR", "failure"].iter().any(|end| line.ends_with(end))
                || line.contains(" skipped ")
        },
    },
    Suite {
        name: "redis",
        needs: &[
            ("/usr/bin/redis-server", "apt-get install redis-server"),
            ("/usr/bin/tclsh", "apt-get install tcl"),
        ],
        commands: Vec::new,
        flags: "",
        tests: redis,
        compared: |line| {
            ["[ok]", "[err]", "[exception]", "[ignore]"].iter().any(|mark| line.starts_with(mark))
        },
    },
    Suite {
        name: "ripgrep",
        needs: &[("/usr/bin/rg", "apt-get install ripgrep")],
        commands: || vec![("rg".to_owned(), "/usr/bin/rg".into())],
        flags: "",
        tests: ripgrep,
        compared: |line| line.starts_with("test ") && !line.starts_with("test result"),
    },
    Suite {
        name: "sqlite3",
        needs: &[("/usr/include/sqlite3.h", "apt-get install libsqlite3-dev")],
        commands: || {
            vec![("speedtest1".to_owned(), shell::target().join("suites/sqlite3/source/speedtest1"))]
        },
        // Functions of its library are selected by their module.
        flags: "-F '*' -F '*sqlite3*'",
        tests: sqlite3,
        compared: |line| line.contains("Hash"),
    },
];

/// Returns `tests/run-*` of bash's sources; the tools of the tests are compiled.
fn bash(source: &Path) -> Result<Vec<Test>> {
    let tests = upstream("bash", source)?.join("tests");
    let empty = source.join("empty");
    fs::create_dir_all(&empty)?;
    fs::write(empty.join("config.h"), "")?;
    for tool in ["recho", "zecho", "printenv", "xcase"] {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-w", "-DHAVE_STDLIB_H", "-DHAVE_STRING_H", "-DHAVE_UNISTD_H", "-I."]);
        gcc.args(["-Iinclude", "-I"])
            .arg(&empty)
            .arg(format!("support/{tool}.c"))
            .arg("-o")
            .arg(tests.join(tool));
        shell::output(gcc.current_dir(source.join("upstream")))?;
    }
    let is_test = |name: &String| {
        name.starts_with("run-") && !["run-all", "run-minimal", "run-gprof"].contains(&name.as_str())
    };
    let script = |name: &str| {
        format!(
            "cp -r $SOURCE/upstream/tests . && cd tests && export THIS_SH=$BIN/bash PATH=.:$PATH BUILD_DIR=.. \
             BASH_TSTOUT=$TMPDIR/out && sh {name}; code=$?; cat $BASH_TSTOUT; exit $code"
        )
    };
    let names = files(&tests)?.into_iter().filter(is_test);
    Ok(names.map(|name| Test { script: script(&name), name }).collect())
}

/// Returns the commands of the package except `[`, which the tests' own scripts use.
fn coreutils_commands() -> Vec<(String, PathBuf)> {
    let listed = Command::new("dpkg-query").args(["--listfiles", "coreutils"]).output();
    let listed =
        listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
    let programs =
        listed.lines().map(PathBuf::from).filter(|path| path.parent().is_some_and(|p| p.ends_with("bin")));
    programs
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
        .filter(|(name, _)| name != "[")
        .collect()
}

/// Words of tests that are left out: they need root, a build of the package, other tracers, exact
/// times or limits of memory.
const EXCLUDED: [&str; 15] = [
    "require_root_",
    "expensive_",
    "mount",
    "chroot",
    "require_gcc_shared",
    "require_gdb",
    "require_strace",
    "require_valgrind",
    "ulimit",
    "inotify",
    "returns_ 124",
    "timeout 1 ",
    "require_perl_",
    "mkfs",
    "LD_PRELOAD",
];

fn coreutils(source: &Path) -> Result<Vec<Test>> {
    let top = upstream("coreutils", source)?;
    let mut tests = Vec::new();
    for kind in [
        "misc", "cp", "mv", "ls", "rm", "split", "du", "dd", "pr", "install", "ln", "mkdir", "touch", "chmod",
    ] {
        for file in files(&top.join("tests").join(kind))? {
            let text =
                String::from_utf8_lossy(&fs::read(top.join("tests").join(kind).join(&file))?).into_owned();
            let run = match Path::new(&file).extension().and_then(|end| end.to_str()) {
                Some("sh") => "bash",
                Some("pl") => "perl -w -I$srcdir/tests -MCuSkip -MCoreutils -MCuTmpdir=t",
                _ => continue,
            };
            if EXCLUDED.iter().any(|word| text.contains(word)) {
                continue;
            }
            let script = format!(
                "mkdir -p src && cp $BIN/* src && echo '#define X 1' > config.h && export abs_top_builddir=$PWD \
                 abs_top_srcdir=$SOURCE/upstream srcdir=$SOURCE/upstream abs_srcdir=$SOURCE/upstream \
                 top_srcdir=$SOURCE/upstream CONFIG_HEADER=$PWD/config.h built_programs=\"$(ls src | tr '\\n' ' ')\" \
                 VERSION=9.1 PACKAGE_VERSION=9.1 host_os=linux-gnu host_triplet=x86_64-pc-linux-gnu CC=gcc AWK=awk \
                 EGREP='grep -E' PERL=perl MAKE=make SHELL=/bin/sh LOCALE_FR=none LOCALE_FR_UTF8=none LC_ALL=C \
                 PATH=$PWD/src:$PATH && exec {run} $srcdir/tests/{kind}/{file} 9>&2"
            );
            tests.push(Test { name: format!("{kind}/{file}"), script });
        }
    }
    Ok(tests)
}

fn lua(_: &Path) -> Result<Vec<Test>> {
    let tests = std::env::var_os("CALLTAP_LUA_TESTS").context(
        "CALLTAP_LUA_TESTS names no directory with the tests of this version (lua-5.4.*-tests.tar.gz of lua.org)",
    )?;
    let script = format!("cp -r {}/. . && $BIN/lua -e '_U=true' all.lua", PathBuf::from(tests).display());
    Ok(vec![Test { name: "all.lua".to_owned(), script }])
}

const PG_REGRESS: &str = "/usr/lib/postgresql/15/lib/pgxs/src/test/regress/pg_regress";

/// Returns a test in which a server with all of its children is attached to and detached from while
/// its regression tests run. The tests load functions in C, which are compiled.
fn postgres(source: &Path) -> Result<Vec<Test>> {
    let regress = upstream("postgresql-15", source)?.join("src/test/regress/regress.c");
    let libraries = source.join("lib");
    fs::create_dir_all(&libraries)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w", "-fPIC", "-shared", "-I/usr/include/postgresql/15/server", "-o"]);
    shell::output(gcc.arg(libraries.join("regress.so")).arg(regress))?;
    for library in ["autoinc.so", "refint.so"] {
        fs::copy(Path::new("/usr/lib/postgresql/15/lib").join(library), libraries.join(library))?;
    }
    Ok(vec![Test { name: "regress".to_owned(), script: include_str!("postgres.sh").to_owned() }])
}

/// Modules of Python's suite with features that a tracer may disturb: threads, signals, processes,
/// stacks, generators, exceptions, libraries in C.
const MODULES: &str = "test_grammar test_generators test_coroutines test_gc test_exceptions test_sys test_thread test_signal \
     test_contextlib test_dict test_unicode test_bytes test_long test_math test_decimal test_json test_re test_pickle test_struct \
     test_zlib test_mmap test_select test_selectors test_ctypes test_fork1 test_wait4 test_subprocess test_faulthandler \
     test_traceback test_marshal test_io test_weakref test_itertools test_functools test_collections test_datetime test_codecs \
     test_sys_settrace test_sys_setprofile test_atexit test_descr test_sqlite3 test_hashlib";

fn python(_: &Path) -> Result<Vec<Test>> {
    let test = |name: &str| Test {
        name: name.to_owned(),
        script: format!("$BIN/python -m unittest -v test.{name}"),
    };
    Ok(MODULES.split_whitespace().map(test).collect())
}

/// Units of redis's suite that can run on a server that was started before.
const UNITS: &str = "dump protocol keyspace scan info type/string type/incr type/list type/set type/zset type/hash type/stream \
     sort expire multi quit scripting functions pubsub slowlog bitops bitfield geo hyperloglog tracking";

/// Returns a test in which a server is repeatedly attached to and detached from, with all
/// functions, while its tests run.
fn redis(source: &Path) -> Result<Vec<Test>> {
    upstream("redis", source)?;
    let units: String = UNITS.split_whitespace().map(|unit| format!(" --single unit/{unit}")).collect();
    Ok(vec![Test {
        name: "units".to_owned(),
        script: format!("UNITS='{units}'\n{}", include_str!("redis.sh")),
    }])
}

/// Returns ripgrep's integration tests, which look for `rg` in their own directory.
fn ripgrep(source: &Path) -> Result<Vec<Test>> {
    let upstream = upstream("rust-ripgrep", source)?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--release", "--test", "integration", "--no-run"]).current_dir(upstream);
    shell::output(cargo.env("CARGO_TARGET_DIR", source.join("target")))?;
    let script = "release=$SOURCE/target/release && rm -f $release/rg && cp $BIN/rg $release/rg && \
                  cd $SOURCE/upstream && exec $(ls $release/deps/integration-* | grep -v '[.]d$') --test-threads 1";
    Ok(vec![Test { name: "integration".to_owned(), script: script.to_owned() }])
}

/// Returns sqlite's benchmark, which prints a sum over all that it reads, with the distribution's
/// library.
fn sqlite3(source: &Path) -> Result<Vec<Test>> {
    let program = source.join("speedtest1");
    let test = upstream("sqlite3", source)?.join("test/speedtest1.c");
    shell::output(Command::new("gcc").args(["-O2", "-w", "-o"]).args([&program, &test]).arg("-lsqlite3"))?;
    let script = |set: &str| Test {
        name: set.to_owned(),
        script: format!("$BIN/speedtest1 --verify --size 5 --testset {set} test.db"),
    };
    Ok(["main", "cte", "fp", "orm", "trigger"].map(script).into())
}

/// Returns the names of a directory's files, sorted.
fn files(directory: &Path) -> Result<Vec<String>> {
    let all = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut names: Vec<String> =
        all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
