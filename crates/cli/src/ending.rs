//! How calltap ends: an error in a line, and the exit status.

use calltap_session::{Error, ProcessError};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// An error and its causes in one line. Some errors say their cause themselves: it is not said twice.
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

/// Ends as a program ended: with its exit code, or by its signal (without a second core dump).
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        calltap_session::no_core_dump();
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return ExitCode::from(128u8.saturating_add(signal as u8));
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

/// Says why nothing was recorded. Ends as a shell does that cannot start a program, if that is why.
pub fn refused(error: &Error) -> ExitCode {
    tell!("calltap: {error}");
    match error {
        Error::Process(ProcessError::Program { exit_code, .. }) => ExitCode::from(*exit_code),
        _ => ExitCode::FAILURE,
    }
}
