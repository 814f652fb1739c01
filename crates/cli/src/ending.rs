//! The end of calltap: an error in one line, and the exit status.

use calltap_process::Error as ProcessError;
use calltap_session::Error;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Returns an error and its causes in one line. A cause that the error's own text ends with is not
/// repeated.
pub fn line(error: &anyhow::Error) -> String {
    let line = error.chain().map(ToString::to_string).fold(String::new(), |line, cause| {
        if line.is_empty() {
            cause
        } else if line.ends_with(&cause) {
            line
        } else {
            format!("{line}: {cause}")
        }
    });
    without_numbers(&line)
}

/// Removes the numbers of errors that the standard library adds to their names: `(os error 2)`.
pub fn without_numbers(line: &str) -> String {
    let mut pieces = line.split(" (os error ");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        match piece[digits..].strip_prefix(')').filter(|_| digits > 0) {
            Some(rest) => text += rest,
            None => text += &format!(" (os error {piece}"),
        }
    }
    text
}

/// Ends as a program ended: with its exit code, or by its signal, without a second core dump.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        calltap_process::launch::no_core_dump();
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return ExitCode::from(128u8.saturating_add(signal as u8));
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

/// Tells why nothing was recorded. Where the program could not be started, the exit status is that
/// of a shell.
pub fn refused(error: &Error) -> ExitCode {
    tell!("calltap: {}", without_numbers(&error.to_string()));
    match error {
        Error::Process(ProcessError::Program { exit_code, .. }) => ExitCode::from(*exit_code),
        _ => ExitCode::FAILURE,
    }
}

/// Whether the reader of the output has closed its end.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let of_json = || cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(of_json)
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn errors_have_names_and_no_numbers() {
        let said = "x: cannot open: No such file or directory (os error 2); write (os error ) once";
        let shown = "x: cannot open: No such file or directory; write (os error ) once";
        assert_eq!(without_numbers(said), shown);
        assert_eq!(without_numbers("a (os error 13), b (os error 1)"), "a, b");
    }
}
