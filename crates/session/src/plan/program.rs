//! The program to start.

use crate::error::Error;
use crate::plan::cache;
use crate::plan::contents::{Contents, Failure, Version};
use crate::plan::modules::Identity;
use crate::plan::script::interpreted;
use crate::plan::search::{ChosenBy, Decode, Few, Search};
use crate::python;
use calltap_names::printable;
use calltap_selection::debug_files::{chosen_in, has_debugging_file, may_choose_in, name_functions};
use calltap_selection::{Named, Selection, Selector};
use calltap_sites::{Binary, Discovery, debug_link};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

/// Maximum nesting of scripts as interpreters, as in the kernel.
const SCRIPTS: u32 = 4;

/// The program to start: its command and its file.
pub(crate) struct Program {
    /// Command to run; for a script that names its interpreter by env, that of the interpreter.
    pub command: Vec<OsString>,
    /// Whether the kernel finds the same file for the user's command.
    is_kernels: bool,
    /// Name as given by the user, without directories.
    pub name: String,
    /// The name, if it is that of a symbolic link.
    pub link: Option<String>,
    /// Name of the script that the program interprets, if the command names a script.
    pub script: Option<String>,
    /// Path without symbolic links.
    pub path: PathBuf,
    /// Identity of the file.
    pub file: Identity,
    /// Whether it has no dynamic linker.
    pub is_static: bool,
    /// Whether it has no dynamic linker that can load the agent.
    pub is_alone: bool,
    /// Contents of the file.
    pub data: Arc<Vec<u8>>,
    /// Version of the file.
    version: Version,
}

impl Program {
    /// Finds the program as execvp would, and refuses one that cannot be traced before it is run.
    /// For a script, finds the interpreter.
    pub(crate) fn find(command: &[OsString]) -> Result<Program, Error> {
        Program::find_in(command, SCRIPTS)
    }

    /// Finds the program; `scripts` limits how often an interpreter may be a script itself.
    fn find_in(command: &[OsString], scripts: u32) -> Result<Program, Error> {
        let word = command.first().cloned().unwrap_or_default();
        let name = word.to_string_lossy().into_owned();
        let refuse = |reason: &str, exit_code: u8| {
            let (program, reason) = (name.clone(), reason.into());
            Error::from(calltap_process::Error::Program { program, reason, exit_code })
        };
        let path = in_path(&word, &refuse)?;
        let meta = fs::metadata(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => refuse(&format!("no such file{}", apart(&name)), 127),
            _ => refuse(&error.to_string(), 126),
        })?;
        if meta.is_dir() {
            return Err(refuse("is a directory", 126));
        }
        if !is_executable(&path) {
            return Err(refuse("not executable (permission denied)", 126));
        }
        let read = |file: fs::File| {
            let version = Version::of(&file.metadata()?);
            Ok((calltap_sites::load(&file)?, version))
        };
        let (data, version) =
            fs::File::open(&path).and_then(read).map_err(|error| refuse(&error.to_string(), 126))?;
        if data.starts_with(b"#!") {
            return Program::of_script((&path, &data), command, scripts).unwrap_or_else(|| {
                Err(refuse(
                    "a script without a known interpreter: record the interpreter, with the script as its argument",
                    126,
                ))
            });
        }
        let short = printable(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()).into_owned();
        let interpreter =
            calltap_sites::interpreter_of(&data).map_err(|error| refuse(&error.to_string(), 126))?;
        let is_static = interpreter.is_none();
        let is_alone = is_static || calltap_sites::is_go_alone(&data);
        if meta.permissions().mode() & 0o6000 != 0 && !rustix::process::geteuid().is_root() {
            return Err(refuse(
                "set-user-ID or set-group-ID: the dynamic linker loads no agent into it",
                126,
            ));
        }
        let device = meta.dev();
        let file = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
        let file = Identity::of(&(file, meta.ino()), &meta);
        let path = fs::canonicalize(&path).unwrap_or(path);
        let data = Arc::new(data);
        let link = path.file_name().filter(|own| *own != short.as_str()).map(|_| short.clone());
        let command = command.to_vec();
        let is_kernels = true;
        let (name, script) = (short, None);
        Ok(Program {
            command,
            is_kernels,
            name,
            link,
            script,
            path,
            file,
            is_static,
            is_alone,
            data,
            version,
        })
    }

    /// Finds the interpreter of a script. None if its first line names none.
    fn of_script(
        (path, data): (&Path, &[u8]),
        command: &[OsString],
        scripts: u32,
    ) -> Option<Result<Program, Error>> {
        let made = interpreted(path, data, command.get(1..)?)?;
        let interpreter = Program::find_in(&made.command, scripts.checked_sub(1)?);
        Some(interpreter.map(|interpreter| {
            // The process has the script's name, as without calltap.
            let is_kernels = !made.by_env && interpreter.is_kernels;
            let command = if is_kernels { command.to_vec() } else { interpreter.command };
            let script = path.file_name().map(|name| printable(&name.to_string_lossy()).into_owned());
            Program { command, is_kernels, script, ..interpreter }
        }))
    }

    /// Returns the name of its file as in mappings: the module of functions without names.
    pub(crate) fn file_name(&self) -> String {
        printable(&self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy()).into_owned()
    }

    /// Finds the traceable functions that the selection may name, while the program is being
    /// loaded.
    ///
    /// Code that was not built for tracing is decoded only as far as it decides about such
    /// functions. Returns also whether the whole file was decoded.
    pub(crate) fn read(
        &self,
        discovery: Discovery,
        words: &Selection,
        selector: &Selector,
    ) -> Result<(Binary, bool), Error> {
        let Selection { int3, libcalls, .. } = *words;
        let futures = words.polls();
        let read = || {
            let is_bare = discovery == Discovery::AtLoad;
            let (root, file) = (Path::new("/"), fs::File::open(&self.path));
            let link = self.link.as_deref();
            let may_choose = |named: Named<'_>| selector.may_choose(named, link, false);
            let is_of_use = !is_bare
                || futures
                || file.as_ref().map_or(true, |file| may_choose_in(file, &self.path, root, &may_choose));
            let decode = if is_bare && is_of_use { Decode::BareProgram } else { Decode::Nothing };
            let search = Search { first_call: discovery == Discovery::FirstCall, decode, int3 };
            let contents = Contents::read(Arc::clone(&self.data), Some(self.version.clone()));
            // This search is not interrupted: what interrupts calltap also ends the program.
            let choose =
                |binary: &Binary| chosen_in(binary, file.as_ref().ok()?, (&self.path, root), &may_choose);
            let chosen_by = || ChosenBy {
                words: selector.choosing_words(link, false),
                has_debugging_file: file
                    .as_ref()
                    .map_or(true, |file| has_debugging_file(file, &self.path, root)),
            };
            let few = (!futures).then(|| Few { chosen_by: chosen_by(), choose: &choose });
            let (mut binary, is_whole) =
                cache::analyse(&contents, &self.file_name(), search, few, &Arc::default())?;
            if search.has_decoded(&binary) {
                name_functions(&mut binary, || debug_link(&self.data), &self.path, Path::new("/"));
            }
            if libcalls {
                calltap_sites::add_library_calls(&self.data, &mut binary)?;
            }
            if futures {
                calltap_sites::find_polls(&self.data, &mut binary)?;
            }
            Ok((binary, is_of_use && is_whole))
        };
        read().map_err(|error: Failure| {
            let (program, reason) = (self.name.clone(), error.to_string());
            calltap_process::Error::Program { program, reason, exit_code: 126 }.into()
        })
    }
}

/// Whether a command runs a Python interpreter, or a program that embeds one.
pub fn runs_python(command: &[OsString]) -> bool {
    Program::find(command).is_ok_and(|program| python::runs_python(&program.data))
}

/// Returns the path of a program's file, which execvp would look up in PATH.
fn in_path(word: &OsStr, refuse: &dyn Fn(&str, u8) -> Error) -> Result<PathBuf, Error> {
    if word.as_encoded_bytes().contains(&b'/') {
        return Ok(PathBuf::from(word));
    }
    let name = word.to_string_lossy();
    let all = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&all).map(|directory| directory.join(word)).find(|path| is_executable(path));
    found.ok_or_else(|| match name.split_once('=') {
        Some(_) => {
            refuse(&format!("no such program in PATH; a variable is set by 'env {name} PROGRAM'"), 127)
        }
        None => refuse(&format!("no such program in PATH{}", apart(&name)), 127),
    })
}

/// Returns a hint for a name that has a program and its arguments in one word.
fn apart(name: &str) -> String {
    let is_several = name.split_once(' ').is_some_and(|(program, _)| {
        let all = env::var_os("PATH").unwrap_or_default();
        let mut places = env::split_paths(&all).map(|directory| directory.join(program));
        Path::new(program).is_file() || places.any(|path| is_executable(&path))
    });
    match is_several {
        true => format!("; a program and its arguments are separate words: {name}"),
        false => String::new(),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
