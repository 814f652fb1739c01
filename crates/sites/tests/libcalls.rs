//! Tests of the stubs by which the linker lets a program call libraries.

use crate::support::build;
use calltap_sites::{Returns, SiteForm, SiteKind, add_library_calls, find_prologues};

/// Adds the linker's stubs to a program. Returns the names of those that return by a stub, and of
/// those whose entry alone is traced.
fn library_calls(command: &str) -> (Vec<String>, Vec<String>) {
    let source = "#include <stdio.h>\n#include <setjmp.h>\nstatic jmp_buf place;\n\
                  int main(int argc, char **argv) { if (setjmp(place)) return puts(argv[0]); return remove(argv[1]); }";
    let built = build(command, "c", source);
    let mut binary = built.read();
    find_prologues(&built.data(), &mut binary, false).expect("a program");
    let before = binary.functions.len();
    let number = add_library_calls(&built.data(), &mut binary).expect("a program");
    assert_eq!(binary.functions.len(), before + number);
    assert!(binary.functions.is_sorted_by_key(|function| function.address), "{command}");
    let (mut whole, mut entries) = (Vec::new(), Vec::new());
    for function in binary.functions.iter().filter(|function| function.kind() == SiteKind::Plt) {
        let Some(SiteForm::Prologue { at, old }) = function.form() else { panic!("{function:?}") };
        let segment = binary.segments.iter().rev().find(|segment| segment.address <= *at).expect("a segment");
        let offset = (at.0 - segment.address.0 + segment.file_offset) as usize;
        assert_eq!(&built.data()[offset..offset + old.len()], &old[..], "{command}: {}", function.name);
        match function.returns {
            Returns::Stub(_) => whole.push(function.name.clone()),
            Returns::Exits { .. } => entries.push(function.name.clone()),
        }
    }
    whole.sort();
    entries.sort();
    (whole, entries)
}

#[test]
fn stubs_of_the_linker_are_functions_that_end_with_a_tail_call() {
    let flags = ["", "-Wl,-z,lazy", "-Wl,-z,now", "-no-pie", "-fcf-protection -Wl,-z,ibtplt", "-s"];
    for flags in flags {
        let (whole, entries) = library_calls(&format!("gcc -O2 {flags}"));
        for name in ["remove@plt", "puts@plt"] {
            assert!(whole.iter().any(|found| found == name), "{flags}: {whole:?}");
        }
        assert_eq!(entries, ["_setjmp@plt"], "{flags}");
        assert!(whole.iter().all(|name| !name.starts_with("__libc_start_main")), "{whole:?}");
    }
    let (whole, entries) = library_calls("gcc -O2 -static");
    assert_eq!((whole.len(), entries.len()), (0, 0), "{whole:?} {entries:?}");
}

#[test]
fn functions_called_without_a_stub_are_named() {
    let source =
        "#include <stdio.h>\nint main(int argc, char **argv) { return puts(argv[0]) + remove(argv[1]); }";
    for (flags, alone) in [("-fno-plt", &["puts", "remove"][..]), ("", &[]), ("-static", &[])] {
        let built = build(&format!("gcc -O2 {flags}"), "c", source);
        let mut binary = built.read();
        add_library_calls(&built.data(), &mut binary).expect("a program");
        let calls = &binary.calls_without_stub;
        assert!(calls.alone.iter().eq(alone), "{flags}: {calls:?}");
        assert!(calls.beside_stub.is_empty(), "{flags}: {calls:?}");
    }
}
