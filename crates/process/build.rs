//! Builds the three forms of the agent and writes them to `OUT_DIR`, compressed, from where
//! `agent.rs` embeds them: calltap is installed as one file.
//!
//! The agent is a workspace of its own (no_std, panic=abort), so a second cargo builds it; `cc`
//! links it with the layout of `link.ld`. The directory `agent` has links to the agent's sources:
//! `cargo package` copies the linked files into the crate, so that it also builds from a registry.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let sources = manifest.join("agent");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for watched in ["src", "abi", "agent.toml", "abi.toml", "link.ld", "exports.map"] {
        let path = sources
            .join(watched)
            .canonicalize()
            .expect("the agent's sources, in the crate's directory `agent`");
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let package = lay_out(&sources, &out);
    let loaded = ["-Wl,-u,calltap_init", "-Wl,-init=calltap_init"];
    build(&sources, &package, &out, "agent", &[], &loaded);
    build(&sources, &package, &out, "attached", &["--features", "attached"], &loaded);
    let placed = ["--features", "placed"];
    build(&sources, &package, &out, "placed", &placed, &["-Wl,-u,calltap_frame_object"]);
}

/// Writes the manifests of the agent and of the crate that it shares with the recorder, with paths
/// to the sources in `agent`. Returns the path of the agent's manifest.
///
/// A published crate contains no other crate's `Cargo.toml`, and `../../agent` is not part of it.
fn lay_out(sources: &Path, out: &Path) -> PathBuf {
    const SHARED: &str = "path = \"../crates/abi\"";
    let read = |name: &str| fs::read_to_string(sources.join(name)).expect("a manifest");
    let library = |text: &str, name: &str| {
        let path = sources.join(name).join("lib.rs").canonicalize().expect("the root of a crate");
        let path = format!("path = {:?}", path.display().to_string());
        match text.contains("[lib]\n") {
            true => text.replace("[lib]\n", &format!("[lib]\n{path}\n")),
            false => format!("{text}\n[lib]\n{path}\n"),
        }
    };
    let (agent, shared) = (read("agent.toml"), read("abi.toml"));
    assert!(agent.contains(SHARED), "the agent's manifest does not refer to the shared crate by {SHARED}");
    let package = out.join("package");
    write(&package.join("abi/Cargo.toml"), &library(&shared, "abi"));
    write(&package.join("Cargo.toml"), &library(&agent.replace(SHARED, "path = \"abi\""), "src"));
    package.join("Cargo.toml")
}

/// Writes a file unless it has this text already: cargo would compile again for a newer manifest.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap_or(path)).expect("a directory in OUT_DIR");
    fs::write(path, text).expect("a manifest in OUT_DIR");
}

/// Builds one form of the agent, as `name.so`.
fn build(sources: &Path, manifest: &Path, out: &Path, name: &str, features: &[&str], flags: &[&str]) {
    let target = out.join(name);
    run(Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args([
            "build",
            "--release",
            "--quiet",
            "--offline",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--manifest-path",
        ])
        .arg(manifest)
        .args(features)
        .arg("--target-dir")
        .arg(&target)
        // The outer cargo, clippy or a coverage tool set these for the outer build.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-unwind-tables=yes"));
    let archive = target.join("x86_64-unknown-linux-gnu/release/libcalltap_agent.a");
    let image = out.join(name).with_extension("so");
    link(sources, &archive, &image, flags);
    check(&image);
    pack(&image);
}

fn link(agent: &Path, archive: &Path, image: &Path, flags: &[&str]) {
    let script = |name: &str| agent.join(name).display().to_string();
    run(Command::new(env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-nostdlib", "-fuse-ld=bfd"])
        .arg(format!("-Wl,-T,{}", script("link.ld")))
        .arg(format!("-Wl,--version-script={}", script("exports.map")))
        .args(["-Wl,--gc-sections", "-Wl,-u,calltap_remote"])
        .args(flags)
        // The first of all initialisers, so that the constructors of other libraries are traced.
        .args(["-Wl,-z,initfirst", "-Wl,-z,now", "-Wl,-Bsymbolic", "-Wl,--no-undefined"])
        // Without a soname, the dynamic linker does not take the agent of another build for this
        // one.
        .args(["-Wl,--eh-frame-hdr", "-Wl,--build-id"])
        .args(["-Wl,-z,max-page-size=4096", "-Wl,-z,noexecstack", "-Wl,--strip-debug", "-o"])
        .arg(image)
        .arg(archive));
}

/// Checks that the linked agent contains no panic.
fn check(image: &Path) {
    let text = String::from_utf8_lossy(&fs::read(image).expect("the linked agent")).into_owned();
    assert!(
        !text.contains("panic_fmt") && !text.contains("panicking"),
        "the agent contains a panic: {}",
        image.display()
    );
}

/// Writes the compressed form of the linked agent beside it.
fn pack(image: &Path) {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&fs::read(image).expect("the linked agent")).expect("a write to memory");
    fs::write(image.with_extension("so.z"), packed.finish().expect("a write to memory"))
        .expect("an image in OUT_DIR");
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
