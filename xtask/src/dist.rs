//! `cargo xtask dist`: calltap for distribution. Makes a static executable, a tarball and a Debian
//! package, in target/dist.

mod licences;

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target. For `-gnu`, most distributions have a static C library in the compiler's packages,
/// and no other toolchain is needed.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Maximum size of the executable in bytes: a larger one contains something unwanted.
pub const MAX_SIZE: u64 = 12_400_000;

/// Flags with which the linker makes one function of identical ones.
const FOLDING: &str = " -C link-arg=-Wl,--icf=all";

/// Parts of zstd for other levels than the first, which calltap uses.
const UNUSED_BY_ZSTD: [&str; 7] = ["DFAST", "GREEDY", "LAZY", "LAZY2", "BTLAZY2", "BTOPT", "BTULTRA"];

/// The files that were made.
pub struct Made {
    /// The static executable.
    pub binary: PathBuf,
    /// The tarball of executable, manual page, completions, documents and licences.
    pub tarball: PathBuf,
    /// The Debian package, if cargo-deb is installed.
    pub package: Option<PathBuf>,
}

/// Makes all files, and prints their names and sizes.
pub fn run() -> Result<()> {
    let made = build()?;
    for path in [Some(&made.binary), Some(&made.tarball), made.package.as_ref()].into_iter().flatten() {
        let size = fs::metadata(path)?.len() as f64 / 1e6;
        println!("{size:6.1} MB  {}", path.strip_prefix(shell::root()).unwrap_or(path).display());
    }
    if made.package.is_none() {
        println!("SKIPPED: the Debian package, which cargo-deb makes: cargo install cargo-deb");
    }
    Ok(())
}

/// Makes all files.
pub fn build() -> Result<Made> {
    check_tools()?;
    let place = shell::target().join("dist");
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let built = compile()?;
    check(&built)?;
    let binary = place.join("calltap");
    fs::copy(&built, &binary).with_context(|| binary.display().to_string())?;
    let name = format!("calltap-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let staged = place.join(&name);
    let _ = fs::remove_dir_all(&staged);
    stage(&binary, &staged)?;
    let tarball = place.join(format!("{name}.tar.gz"));
    // An archive depends on nothing but the sources, not on time or user.
    let archive = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-czf"];
    shell::status(Command::new("tar").args(archive).arg(&tarball).arg("-C").arg(&place).arg(&name))?;
    let package = package(&staged, &place)?;
    Ok(Made { binary, tarball, package })
}

/// Reports a missing tool at once, and the package that has it.
fn check_tools() -> Result<()> {
    if !shell::have("cc") {
        bail!("no cc here: it links calltap (Debian: gcc)");
    }
    let found = shell::output(Command::new("cc").arg("-print-file-name=libc.a"))?;
    let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    // A compiler without this file answers with its bare name.
    if !Path::new(&found).is_absolute() || !Path::new(&found).exists() {
        bail!(
            "no static C library (libc.a) here, which calltap is linked with: libc6-dev on Debian and Ubuntu, glibc-static on Fedora, \
             glibc-devel-static on openSUSE"
        );
    }
    Ok(())
}

/// Compiles the static executable.
fn compile() -> Result<PathBuf> {
    let mut build = shell::cargo();
    build.args(["build", "--profile", "dist", "-p", "calltap-cli", "--target", TARGET]);
    // Panics unwind, as in the tests: calltap then detaches, and a view survives a bad request.
    let mut flags = "-C target-feature=+crt-static".to_owned();
    if applies_packed_relocations() {
        flags += " -C link-arg=-Wl,-z,pack-relative-relocs";
    }
    if folds_identical_functions()? {
        flags += FOLDING;
    }
    build.env(
        "CFLAGS",
        UNUSED_BY_ZSTD.map(|part| format!("-DZSTD_EXCLUDE_{part}_BLOCK_COMPRESSOR")).join(" "),
    );
    // The environment variable replaces flags of the developer's cargo configuration; a
    // configuration would be added to them.
    build.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    shell::status(&mut build)?;
    Ok(shell::target().join(TARGET).join("dist/calltap"))
}

/// Whether the C library applies relative relocations in their packed form (DT_RELR), which makes
/// the executable half a megabyte smaller.
fn applies_packed_relocations() -> bool {
    let said = Command::new("ldd").arg("--version").output().map(|output| output.stdout);
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    let version = said.lines().next().and_then(|line| line.split_whitespace().next_back());
    let version = version.and_then(|version| version.split_once('.'));
    let number = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    number >= Some((2u32, 36u32))
}

/// Whether the linker makes one function of identical ones: lld, which is rustc's own from 1.90 on,
/// does, and GNU ld does not.
fn folds_identical_functions() -> Result<bool> {
    let place = tempfile::tempdir()?;
    let source = place.path().join("probe.rs");
    fs::write(&source, "fn main() {}")?;
    let mut probe = Command::new("rustc");
    probe.args(FOLDING.split_whitespace()).arg(&source).arg("--out-dir").arg(place.path());
    Ok(probe.output().is_ok_and(|output| output.status.success()))
}

/// Returns an error unless a file is a static executable, small enough, and able to run.
pub fn check(binary: &Path) -> Result<()> {
    let data = fs::read(binary).with_context(|| binary.display().to_string())?;
    if is_dynamic(&data)? {
        bail!("{} needs a dynamic linker: it is not static", binary.display());
    }
    if data.len() as u64 > MAX_SIZE {
        bail!("{} has {} bytes: more than {MAX_SIZE}", binary.display(), data.len());
    }
    // The executable needs neither libraries nor environment variables.
    shell::output(Command::new(binary).arg("--version").env_clear())?;
    Ok(())
}

/// Whether an executable names a dynamic linker.
fn is_dynamic(data: &[u8]) -> Result<bool> {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    let header = object::elf::FileHeader64::<object::LittleEndian>::parse(data)?;
    let segments = header.program_headers(object::LittleEndian, data)?;
    Ok(segments.iter().any(|segment| segment.p_type(object::LittleEndian) == object::elf::PT_INTERP))
}

/// Collects the files of the archive in a directory.
fn stage(binary: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.join("completions"))?;
    fs::create_dir_all(to.join("man/man1"))?;
    fs::copy(binary, to.join("calltap"))?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        fs::copy(shell::root().join(file), to.join(file)).with_context(|| file.to_owned())?;
    }
    // The README's links lead there.
    shell::status(Command::new("cp").arg("-r").arg(shell::root().join("docs")).arg(to))?;
    let write = |words: &[&str], file: &str| -> Result<()> {
        let output = shell::output(Command::new(binary).args(words))?;
        fs::write(to.join(file), output.stdout).with_context(|| file.to_owned())
    };
    write(&["man"], "man/man1/calltap.1")?;
    write(&["completions", "--shell", "bash"], "completions/calltap.bash")?;
    write(&["completions", "--shell", "zsh"], "completions/_calltap")?;
    write(&["completions", "--shell", "fish"], "completions/calltap.fish")?;
    licences::write(to)
}

/// Returns the cargo-deb that .ci/run has installed, or the machine's.
fn cargo_deb() -> Option<PathBuf> {
    let tools = shell::target().join("tools/bin/cargo-deb");
    if tools.exists() { Some(tools) } else { shell::have("cargo-deb").then(|| "cargo-deb".into()) }
}

/// Makes the Debian package from the collected files.
fn package(staged: &Path, place: &Path) -> Result<Option<PathBuf>> {
    let Some(tool) = cargo_deb() else { return Ok(None) };
    // crates/cli/Cargo.toml names the package's files by paths without version and target
    // directory.
    let assets = shell::root().join("target/dist/deb");
    let _ = fs::remove_dir_all(&assets);
    assets.parent().map_or(Ok(()), fs::create_dir_all)?;
    shell::status(Command::new("cp").arg("-r").arg(staged).arg(&assets))?;
    let path = place.join(format!("calltap_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    let mut make = Command::new(tool);
    make.current_dir(shell::root()).args(["--no-build", "--no-strip", "-p", "calltap-cli", "--output"]);
    shell::output(make.arg(&path))?;
    Ok(Some(path))
}
