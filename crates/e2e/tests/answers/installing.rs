//! `calltap install-completions`.

use calltap_e2e::{Run, calltap, run};
use std::path::Path;
use std::process::Command;

/// Installs with a home directory and an otherwise empty environment.
fn install(home: &Path, shell: &str, arguments: &[&str]) -> Run {
    let mut command = Command::new(calltap());
    command.arg("install-completions").args(arguments).env_clear().env("HOME", home).env("SHELL", shell);
    run(command, b"")
}

#[test]
fn completions_are_installed_once_for_the_shell_that_is_used() {
    let home = tempfile::tempdir().expect("a directory");
    let places = [
        ("bash", ".local/share/bash-completion/completions/calltap"),
        ("zsh", ".local/share/zsh/site-functions/_calltap"),
        ("fish", ".config/fish/completions/calltap.fish"),
    ];
    for (shell, place) in places {
        let first = install(home.path(), &format!("/usr/bin/{shell}"), &[]);
        assert!(first.status.success(), "{shell}: {}", first.stderr);
        let path = home.path().join(place);
        assert!(first.stdout.contains(&format!("installed  {}", path.display())), "{}", first.stdout);
        let script = std::fs::read_to_string(&path).expect("a script");
        assert!(script.contains("latency") && script.contains("calltap"), "{shell}");
        let second = install(home.path(), "/bin/sh", &["--shell", shell]);
        assert!(second.stdout.contains(&format!("unchanged  {}", path.display())), "{}", second.stdout);
        assert!(!second.stdout.contains("installed  "), "{}", second.stdout);
    }
    let page = home.path().join(".local/share/man/man1/calltap.1");
    assert!(std::fs::read_to_string(page).expect("a page").contains(".SH RECORD"));
}

#[test]
fn unsupported_shell_is_reported_in_one_line() {
    let home = tempfile::tempdir().expect("a directory");
    let run = install(home.path(), "/bin/dash", &[]);
    assert_eq!(
        run.stderr,
        "calltap: SHELL is '/bin/dash', for which calltap has no completions: --shell bash, zsh or fish\n"
    );
    assert!(!run.status.success() && std::fs::read_dir(home.path()).expect("a directory").next().is_none());
}
