//! Colours of modules in `report`, `replay` and `graph`.

use calltap_e2e::{GCC, Terminal, calltap_run, compile, end_of};

/// Begins a colour.
const COLOUR: &str = "\x1b[36m";

#[test]
fn names_of_libraries_have_colours_on_a_terminal() {
    let program = compile(GCC, &["paced.c"], &[]);
    let trace = program.directory().join("colours.data").to_string_lossy().into_owned();
    let path = program.path.to_string_lossy().into_owned();
    let functions = "main,lap,nap,leaf,libc:nanosleep";
    let recorded = calltap_run(&["record", "-q", "-F", functions, "-o", &trace, "--", &path]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    for view in ["report", "replay", "graph"] {
        let plain = calltap_run(&[view, &trace]);
        assert!(plain.status.success() && !plain.stdout.contains('\x1b'), "{view}: {}", plain.stdout);
        let painted = calltap_run(&[view, &trace, "--color", "always"]).stdout;
        assert!(painted.contains(COLOUR), "{view}: {painted}");
        // Without the colours, columns and names are the same.
        let bare = painted.replace("\x1b[39m", "");
        let bare = bare.split("\x1b[").enumerate();
        let bare =
            bare.map(|(at, piece)| if at == 0 { piece } else { piece.split_once('m').expect("an end").1 });
        assert_eq!(bare.collect::<String>(), plain.stdout, "{view}");
        assert!(!calltap_run(&[view, &trace, "--color", "always", "--json"]).stdout.contains('\x1b'));
        let words = [view, &trace, "--full-names"];
        let terminal = Terminal::whole(&words, &[("TERM", "xterm")]);
        terminal.wait_for(COLOUR);
        assert!(end_of(terminal.child).success());
        for (words, environment) in [
            (&words[..], &[("TERM", "xterm"), ("NO_COLOR", "1")][..]),
            (&words, &[("TERM", "dumb")]),
            (&[&words[..], &["--color", "never"]].concat(), &[("TERM", "xterm")]),
        ] {
            let terminal = Terminal::whole(words, environment);
            terminal.wait_for("nap");
            assert!(!terminal.shown().contains('\x1b'), "{words:?}: {}", terminal.shown());
            assert!(end_of(terminal.child).success());
        }
    }
}
