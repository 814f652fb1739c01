//! The control files, compared with sessions of ftrace.

use calltap_selection::{Ftraced, Listed, Profiled, Selection};
use calltap_trace::Profile;
use calltap_tracefs::control::{File, Model, Open};
use rustix::io::Errno;

fn functions() -> Vec<Listed> {
    let function = |(name, module): (&str, &str)| Listed {
        function: name.into(),
        aliases: Vec::new(),
        address: 0,
        size: 0,
        module: module.into(),
        library: module != "server",
        known: false,
        on: true,
        failed: name == "sys_open",
    };
    let names = [("main", "server"), ("sys_read", "server"), ("sys_write", "server"), ("sys_open", "server")];
    let libraries = [("_ZN3net4sendEi", "libnet.so")];
    names.into_iter().chain(libraries).map(function).collect()
}

/// Plays a session as a user types it: lines that begin with `#` are commands (`cat FILE`, `echo
/// WORDS > FILE`, `>>`), the others their output.
fn check(session: &str) {
    let functions = functions();
    let mut model = Model { words: nothing_traced(), functions: &functions, profile: &[] };
    let mut shown = String::new();
    for line in session.trim_start().lines().map(str::trim_start) {
        let Some(command) = line.strip_prefix("# ") else { continue };
        shown += &format!("# {command}\n");
        let file = |name: &str| File::named(name).unwrap_or_else(|refusal| panic!("{name}: {}", refusal.why));
        if let Some(name) = command.strip_prefix("cat ") {
            shown += &model.read(file(name));
            continue;
        }
        let (words, rest) =
            command.strip_prefix("echo ").and_then(|rest| rest.split_once('>')).expect(command);
        let (open, name) = match rest.strip_prefix('>') {
            Some(name) => (Open::Append, name),
            None => (Open::Truncate, rest),
        };
        if let Err(refusal) = model.write(file(name.trim()), &format!("{}\n", words.trim()), open) {
            let name = if refusal.errno == Errno::RANGE { "ERANGE" } else { "EINVAL" };
            assert!(name == "ERANGE" || refusal.errno == Errno::INVAL, "{:?}", refusal.errno);
            shown += &format!("{name}\n");
        }
    }
    let expected: String =
        session.trim_start().lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    assert_eq!(shown.trim_end(), expected.trim_end());
}

/// The selection after `attach --tracer nop`.
fn nothing_traced() -> Selection {
    let nop = calltap_selection::TracerSelection {
        name: "trace".into(),
        kind: None,
        filter: vec![],
        notrace: vec![],
    };
    Selection { tracers: vec![nop], ..Selection::default() }
}

#[test]
fn two_tracers_with_filters_of_their_own() {
    check(
        "
        # echo function > current_tracer
        # cat function_tracers
        *trace
        # echo 1 > function_profile_enabled
        # cat function_tracers
        trace
        *trace_profile
        # cat set_ftrace_filter
        [ trace] #### all functions enabled ####
        [ trace_profile] #### all functions enabled ####
        # echo sys_read > set_ftrace_filter
        # cat set_ftrace_filter
        [ trace] #### all functions enabled ####
        [ trace_profile] sys_read
        # echo trace > function_tracers
        # cat function_tracers
        *trace
        trace_profile
        # echo sys_write > set_ftrace_filter
        # cat set_ftrace_filter
        [ trace] sys_write
        [ trace_profile] sys_read
        # cat enabled_functions
        main (0)
        sys_read (1)
        sys_write (1)
        sys_open (0)
        _ZN3net4sendEi [libnet.so] (0)
        # echo 0 > function_profile_enabled
        # cat set_ftrace_filter
        sys_write
        # echo 1 > function_profile_enabled
        # cat set_ftrace_filter
        [ trace] sys_write
        [ trace_profile] sys_read
        # echo absent > function_tracers
        EINVAL
        ",
    );
}

#[test]
fn files_of_one_tracer_equal_the_kernels() {
    check(
        "
        # cat current_tracer
        nop
        # cat function_tracers
        # cat set_ftrace_filter
        #### all functions enabled ####
        # cat set_ftrace_notrace
        #### no functions disabled ####
        # echo function_graph > current_tracer
        # cat current_tracer
        function_graph
        # echo sys_* main > set_ftrace_filter
        # echo !sys_open >> set_ftrace_filter
        # cat set_ftrace_filter
        main
        sys_read
        sys_write
        # echo 5 > set_ftrace_filter
        # cat set_ftrace_filter
        _ZN3net4sendEi [libnet.so]
        # echo !5 >> set_ftrace_filter
        # cat set_ftrace_filter
        #### all functions enabled ####
        # echo !main >> set_ftrace_filter
        # cat set_ftrace_filter
        #### all functions enabled ####
        # echo 0x2 > set_ftrace_notrace
        # cat set_ftrace_notrace
        sys_read
        ",
    );
}

#[test]
fn refused_write_changes_nothing() {
    check(
        "
        # echo sys_read > set_ftrace_filter
        # echo sys_write nonsense > set_ftrace_filter
        EINVAL
        # echo 0 > set_ftrace_filter
        EINVAL
        # echo 6 > set_ftrace_filter
        EINVAL
        # echo main:traceoff > set_ftrace_filter
        EINVAL
        # cat set_ftrace_filter
        sys_read
        # echo irqsoff > current_tracer
        EINVAL
        # cat current_tracer
        nop
        # echo -1 > function_profile_enabled
        EINVAL
        # echo 99999999999999999999 > tracing_on
        ERANGE
        # echo x > available_filter_functions
        EINVAL
        # cat tracing_on
        1
        # echo 0 > tracing_on
        # cat tracing_on
        0
        ",
    );
}

#[test]
fn a_filter_of_the_command_line_that_only_takes_away_takes_from_all() {
    let functions = functions();
    let words = Selection { filter: vec!["!sys_*".into()], ..Selection::default() };
    let model = Model { words, functions: &functions, profile: &[] };
    let shown = model.read(File::named("set_ftrace_filter").unwrap());
    assert_eq!(shown, "main\n_ZN3net4sendEi [libnet.so]\n");
}

#[test]
fn lists_and_names() {
    check(
        "
        # cat available_tracers
        function_graph function nop
        # cat available_filter_functions
        main
        sys_read
        sys_write
        sys_open
        _ZN3net4sendEi [libnet.so]
        # cat failures
        sys_open
        # cat dyn_ftrace_total_info
        5 pages:1 groups: 2
        # echo net::send(int) > set_ftrace_filter
        # cat set_ftrace_filter
        _ZN3net4sendEi [libnet.so]
        # echo *send* > set_ftrace_filter
        # cat set_ftrace_filter
        _ZN3net4sendEi [libnet.so]
        ",
    );
    assert_eq!(File::named("set_ftrace_fliter").unwrap_err().errno, Errno::NOENT);
    assert!(File::named("set_ftrace_fliter").unwrap_err().why.contains("set_ftrace_filter"));
}

/// The selection of a session with `--discovery first-call`.
fn first_calls() -> Selection {
    let failures = vec!["0x7f0000001005: the code is gone".to_owned()];
    Selection {
        ftraced: Some(Ftraced { converted: 5, first_ns: 890, later_ns: 12, failures, ..Ftraced::default() }),
        ..nothing_traced()
    }
}

#[test]
fn ftraced_enabled_has_the_words_of_2008() {
    let mut model = Model { words: first_calls(), functions: &[], profile: &[] };
    let file = File::named("ftraced_enabled").unwrap();
    assert_eq!(model.read(file), "enabled\n");
    let long = format!("{:0>63}\n", 1);
    let words = [
        ("0\n", Ok("disabled\n")),
        ("1\n", Ok("enabled\n")),
        ("disable\n", Ok("disabled\n")),
        ("enable\n", Ok("enabled\n")),
        ("disabled\n", Ok("disabled\n")),
        ("enabled, please", Ok("enabled\n")),
        ("00\n", Ok("disabled\n")),
        ("+17", Ok("enabled\n")),
        ("-1\n", Err(Errno::INVAL)),
        ("0x0\n", Err(Errno::INVAL)),
        ("\n", Err(Errno::INVAL)),
        ("", Err(Errno::INVAL)),
        ("Disable\n", Err(Errno::INVAL)),
        (" 0\n", Err(Errno::INVAL)),
        ("99999999999999999999\n", Err(Errno::RANGE)),
        (&long, Err(Errno::INVAL)),
    ];
    for (word, expected) in words {
        let before = model.words.ftraced.clone().unwrap();
        let found = model.write(file, word, Open::Truncate).map_err(|refusal| refusal.errno);
        let after = model.words.ftraced.clone().unwrap();
        // Every accepted write converts recorded calls, whatever its value; a refused write does
        // nothing.
        assert_eq!(after.writes, before.writes + u64::from(expected.is_ok()), "{word:?}");
        match expected {
            Ok(reads) => assert_eq!((found.is_ok(), &*model.read(file)), (true, reads), "{word:?}"),
            Err(errno) => {
                assert_eq!((found.unwrap_err(), after), (errno, before), "{word:?}");
            }
        }
    }
}

#[test]
fn update_times_and_failed_conversions_are_shown() {
    let functions = functions();
    let model = Model { words: first_calls(), functions: &functions, profile: &[] };
    let read = |name: &str| model.read(File::named(name).unwrap());
    assert_eq!(
        read("dyn_ftrace_total_info"),
        "5 pages:1 groups: 2\nftrace boot update time = 890 (ns)\nftrace module total update time = 12 (ns)\n"
    );
    assert_eq!(read("failures"), "sys_open\n0x7f0000001005: the code is gone\n");
}

#[test]
fn where_sites_are_known_at_load_there_is_no_daemon() {
    let mut model = Model { words: nothing_traced(), functions: &[], profile: &[] };
    let file = File::named("ftraced_enabled").unwrap();
    assert_eq!(model.read(file), "disabled\n");
    assert!(model.write(file, "disable\n", Open::Truncate).is_ok());
    assert_eq!(model.write(file, "1\n", Open::Truncate).unwrap_err().errno, Errno::NODEV);
    assert_eq!(model.read(file), "disabled\n");
    let info = model.read(File::named("dyn_ftrace_total_info").unwrap());
    assert_eq!(info, "0 pages:0 groups: 0\n");
}

// The expected numbers were printed by a kernel.
#[test]
fn the_profile_has_the_kernels_form() {
    let row = |function: &str, hits, total_ns| Profiled {
        function: function.into(),
        module: String::new(),
        link: None,
        profile: Profile { hits, timed: hits, total_ns, squares_ns2: 0.0, ..Profile::default() },
    };
    let rows = [row("__do_sys_getppid", 8, 29_228), row("schedule", 37, 1_339_680_500)];
    let model = Model { words: Selection::default(), functions: &[], profile: &rows };
    let expected = "  Function                               Hit    Time            Avg             s^2\n  \
                    --------                               ---    ----            ---             ---\n  \
                    schedule                                37    1339680 us      36207.58 us     0.000 us    \n  \
                    __do_sys_getppid                         8    29.228 us       3.653 us        0.000 us    \n";
    assert_eq!(model.read(File::named("trace_stat/function0").unwrap()), expected);
}
