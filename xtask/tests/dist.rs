//! Checks of the files that `cargo xtask dist` makes.

use std::path::Path;

#[test]
fn a_dynamic_executable_is_refused() {
    let own = std::env::current_exe().expect("this test");
    let error = xtask::dist::check(&own).expect_err("this test is linked dynamically").to_string();
    assert!(error.contains("needs a dynamic linker"), "{error}");
}

#[test]
#[ignore = "long: run cargo xtask dist first"]
fn distribution_is_small_static_and_complete() {
    let place = xtask::shell::target().join("dist");
    let binary = place.join("calltap");
    assert!(binary.exists(), "nothing in {}: run cargo xtask dist first", place.display());
    xtask::dist::check(&binary).expect("static and small");
    let staged = place.join(format!("calltap-{}-x86_64-linux", env!("CARGO_PKG_VERSION")));
    for file in
        ["man/man1/calltap.1", "completions/calltap.bash", "completions/_calltap", "completions/calltap.fish"]
    {
        assert!(staged.join(file).exists(), "{file}");
    }
    let table = std::fs::read_to_string(staged.join("SBOM.tsv")).expect("the list of crates");
    let crates: Vec<Vec<&str>> =
        table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert!(
        crates.len() > 50
            && crates.iter().all(|row| row.len() == 4 && row.iter().all(|cell| !cell.is_empty()))
    );
    for name in ["calltap-cli", "calltap-abi", "zstd", "clap", "object"] {
        assert!(crates.iter().any(|row| row[0] == name), "{name}");
    }
    // Builds and tests of calltap use these crates; the executable does not contain them.
    assert!(!crates.iter().any(|row| ["proptest", "serde_derive", "tempfile"].contains(&row[0])));
    assert!(Path::new(&staged.join("THIRD-PARTY-LICENCES")).metadata().expect("texts").len() > 10_000);
}
