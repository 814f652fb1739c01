//! The stack tracer of the control directory, compared with stacks that programs measure
//! themselves.

use calltap_e2e::*;

/// Parses the lines of `stack_trace`: depth, size, function.
fn stack(mounted: &Mounted) -> Vec<(u64, u64, String)> {
    let text = mounted.cat("stack_trace");
    let number = |word: &str| word.parse::<u64>().expect(word);
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (number(words[1]), number(words[2]), words[3].split('+').next().unwrap_or_default().to_owned())
    };
    text.lines().skip(2).filter(|line| !line.starts_with('#')).map(line).collect()
}

/// Returns the expected lines of these functions, from the program's line: the end of its stack,
/// and the slots of the return addresses. A function that is entered has eight bytes for its call.
fn said(line: &str, functions: &[&str]) -> Vec<(u64, u64, String)> {
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect(word)).collect();
    let (end, slots) = numbers.split_first().expect("it says something");
    let ends: Vec<u64> = [slots[0] - 8].iter().chain(slots).map(|slot| end - slot).collect();
    let size = |n: usize| ends[n] - ends.get(n + 1).copied().unwrap_or(0);
    functions.iter().enumerate().map(|(n, name)| (ends[n], size(n), (*name).to_owned())).collect()
}

#[test]
fn the_deepest_stack_is_as_deep_as_the_program_says() {
    if !have_fuse() {
        return;
    }
    let program = compile(GCC, &["deep.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let mut mounted = Mounted::of(program, resident);
    let deep = |mounted: &mut Mounted| {
        mounted.resident.tell();
        mounted.resident.wait_for("deep")
    };
    mounted.echo("1", "stack_tracer_enabled");
    assert!(mounted.cat("enabled_functions").lines().all(|line| line.ends_with(" (1)")));
    // The stack of a signal handler on a stack of its own does not count as the thread's.
    deep(&mut mounted);
    assert_eq!(stack(&mounted), []);
    let line = deep(&mut mounted);
    let expected = said(&line, &["innermost", "inner", "outer", "main"]);
    assert_eq!(stack(&mounted), expected);
    assert_eq!(mounted.cat("stack_max_size"), format!("{}\n", expected[0].0));
    // A thread has a deeper stack, down to the C library's function that started it. It is measured
    // when another function is called.
    mounted.echo("inner", "stack_trace_filter");
    assert_eq!(mounted.cat("enabled_functions"), "inner (1)\n");
    let line = deep(&mut mounted);
    let (end, slots) = line.split_once(" ").expect("numbers");
    let slots = slots.split_once(' ').expect("numbers").1;
    let mut found = stack(&mounted);
    // No function of the C library is traced here, so that its level may be an address.
    found.last_mut().expect("who began it").2 = "libc".to_owned();
    assert_eq!(found, said(&format!("{end} {slots}"), &["inner", "outer", "thread", "libc"]));
    // After the tracer is off, no function is enabled, and the deepest stack is kept.
    mounted.echo("0", "stack_tracer_enabled");
    assert_eq!(mounted.cat("enabled_functions"), "");
    assert_eq!(stack(&mounted).len(), 4);
    mounted.end();
}

#[test]
fn functions_at_which_the_stack_is_not_measured_are_in_the_log_of_errors() {
    if !have_fuse() {
        return;
    }
    // Functions of the compiler's own start code end with tail calls.
    let program = compile(&BARE[0], &["deep.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let mounted = Mounted::of(program, resident);
    assert_eq!(mounted.cat("error_log"), "");
    mounted.echo("1", "stack_tracer_enabled");
    let log = mounted.cat("error_log");
    assert!(log.contains(" calltap: error: no values of ") && log.contains("tail call"), "{log}");
    mounted.end();
}
