//! Builds the two forms of the agent and leaves them where `agent.rs` embeds them: one file to install.
//!
//! The agent is its own workspace (no_std, panic=abort), so a second cargo builds it; `cc` links it with the layout of `link.ld`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let agent = manifest.join("../../agent").canonicalize().expect("the agent's sources lie beside crates/");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for watched in ["src", "Cargo.toml", "link.ld", "exports.map", "../crates/abi/src"] {
        println!("cargo::rerun-if-changed={}", agent.join(watched).display());
    }
    build(&agent, &out, "agent", &[], &["-Wl,-u,calltap_init", "-Wl,-init=calltap_init"]);
    build(&agent, &out, "placed", &["--features", "placed"], &["-Wl,-u,calltap_frame_object"]);
}

/// Builds one form of the agent, as `name.so`.
fn build(agent: &Path, out: &Path, name: &str, features: &[&str], flags: &[&str]) {
    let target = out.join(name);
    run(Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--quiet", "--target", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(agent.join("Cargo.toml"))
        .args(features)
        .arg("--target-dir")
        .arg(&target)
        // What the outer cargo, clippy or a coverage tool set is for the outer build.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-unwind-tables=yes"));
    let archive = target.join("x86_64-unknown-linux-gnu/release/libcalltap_agent.a");
    let image = out.join(name).with_extension("so");
    link(agent, &archive, &image, flags);
    check(&image);
}

fn link(agent: &Path, archive: &Path, image: &Path, flags: &[&str]) {
    let script = |name: &str| agent.join(name).display().to_string();
    run(Command::new(env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-nostdlib", "-fuse-ld=bfd"])
        .arg(format!("-Wl,-T,{}", script("link.ld")))
        .arg(format!("-Wl,--version-script={}", script("exports.map")))
        .args(["-Wl,--gc-sections", "-Wl,-u,calltap_remote"])
        .args(flags)
        // First of all initialisers, so that the constructors of other libraries are traced.
        .args(["-Wl,-z,initfirst", "-Wl,-z,now", "-Wl,-Bsymbolic", "-Wl,--no-undefined"])
        // No soname: the agent of another build may be in the program, and is another one.
        .args(["-Wl,--eh-frame-hdr", "-Wl,--build-id"])
        .args(["-Wl,-z,max-page-size=4096", "-Wl,-z,noexecstack", "-Wl,--strip-debug", "-o"])
        .arg(image)
        .arg(archive));
}

/// The promises of the agent that its bytes can show: it needs no library, imports nothing but the weak `environ`, cannot panic.
fn check(image: &Path) {
    let text = String::from_utf8_lossy(&fs::read(image).expect("the linked agent")).into_owned();
    assert!(
        !text.contains("panic_fmt") && !text.contains("panicking"),
        "the agent contains a panic: {}",
        image.display()
    );
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
