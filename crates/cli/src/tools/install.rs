//! `calltap install-completions`: the completion script of a shell and the manual page, in the
//! user's own directories.

use crate::command_line::arguments::Arguments;
use crate::command_line::grammar::{self, NAME};
use anyhow::{Context, Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Installs the completions of the shell that `--shell` or `$SHELL` names, and the manual page.
pub fn run(arguments: &Arguments) -> Result<()> {
    let shell = match arguments.text("shell") {
        Some(shell) => shell,
        None => own_shell()?,
    };
    let mut script = Vec::new();
    grammar::completions(&shell, &mut script)?;
    let mut page = Vec::new();
    grammar::manual(&mut page)?;
    let data = base("XDG_DATA_HOME", ".local/share")?;
    put(&script_path(&shell, &data)?, &script)?;
    put(&data.join("man/man1").join(format!("{NAME}.1")), &page)?;
    println!("man finds the page if ~/.local/bin is in PATH, or with 'man -l FILE'");
    match shell.as_str() {
        "zsh" => {
            let directory = data.join("zsh/site-functions");
            println!("zsh reads it if ~/.zshrc has, before compinit: fpath+=({})", directory.display());
        }
        "bash" => println!("bash reads it where the package bash-completion is installed"),
        _ => {}
    }
    Ok(())
}

/// Returns the user's login shell, if completions can be made for it.
fn own_shell() -> Result<String> {
    let path = env::var_os("SHELL").map(PathBuf::from).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.as_str() {
        "bash" | "zsh" | "fish" => Ok(name),
        _ => bail!(
            "SHELL is '{}', for which calltap has no completions: --shell bash, zsh or fish",
            path.display()
        ),
    }
}

/// Returns a base directory of the XDG specification.
fn base(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(given) = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Ok(given);
    }
    let home = env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.with_context(|| {
        format!("neither {variable} nor HOME is set: there is no directory to install into")
    })?;
    Ok(Path::new(&home).join(below_home))
}

/// Returns the path where a shell looks for the completions of a command.
fn script_path(shell: &str, data: &Path) -> Result<PathBuf> {
    Ok(match shell {
        "bash" => data.join("bash-completion/completions").join(NAME),
        "zsh" => data.join("zsh/site-functions").join(format!("_{NAME}")),
        "fish" => base("XDG_CONFIG_HOME", ".config")?.join("fish/completions").join(format!("{NAME}.fish")),
        other => bail!("calltap does not know where {other} looks for completions"),
    })
}

/// Writes a file as a whole, unless it has these contents already, and prints which.
fn put(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == contents) {
        println!("unchanged  {}", path.display());
        return Ok(());
    }
    let said = if path.exists() { "replaced " } else { "installed" };
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let part = directory.join(format!(".{NAME}.{}.part", std::process::id()));
    let done = fs::write(&part, contents).and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done.with_context(|| path.display().to_string())?;
    println!("{said}  {}", path.display());
    Ok(())
}
