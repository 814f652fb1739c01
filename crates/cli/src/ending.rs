//! The end of calltap: an error in one line, and the exit status.

use calltap_session::{Error, ProcessError};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Returns an error and its causes in one line. A cause that the error's own text ends with is not
/// repeated.
pub fn line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| {
        if line.is_empty() {
            cause
        } else if line.ends_with(&cause) {
            line
        } else {
            format!("{line}: {cause}")
        }
    })
}

/// Ends as a program ended: with its exit code, or by its signal, without a second core dump.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        calltap_session::no_core_dump();
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return ExitCode::from(128u8.saturating_add(signal as u8));
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

/// Tells why nothing was recorded. Where the program could not be started, the exit status is that
/// of a shell.
pub fn refused(error: &Error) -> ExitCode {
    tell!("calltap: {error}");
    match error {
        Error::Process(ProcessError::Program { exit_code, .. }) => ExitCode::from(*exit_code),
        _ => ExitCode::FAILURE,
    }
}
