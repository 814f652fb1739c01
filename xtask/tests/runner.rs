//! Tests of running programs through cargo's runner.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use xtask::watched;

#[test]
fn a_checkout_below_a_path_with_blanks_runs_its_tests() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("a place, \"quoted\"");
    fs::create_dir_all(place.join("src")).expect("a directory");
    fs::write(place.join("Cargo.toml"), "[package]\nname = \"small\"\nedition = \"2024\"\n[workspace]\n")
        .expect("a file");
    fs::write(place.join("src/main.rs"), "fn main() {}").expect("a file");
    let runner = place.join("runner");
    fs::write(&runner, "#!/bin/sh\necho \"$1 ${2##*/}\"\n").expect("a file");
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).expect("it may be executed");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--config", &watched::through(&runner.to_string_lossy())])
        .current_dir(&place)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo");
    let said = [run.stdout, run.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said), "watched small\n");
}
