//! Reasons why a session leaves a process or a program out, each with code, text and advice.
//! `docs/reference/reasons.md` lists them; a test compares it with these tables.

use calltap_process::Reason;
use nix::errno::Errno;
use std::{fmt, io};

calltap_sites::reasons! {
    /// Why a process does not see the session's files.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NotSeen;

    NoDirectory { path: String } = "no-session-directory",
        "in its root directory or mount namespace there is no {path}", "see how-to/containers.md";
    NoProc = "no-proc",
        "in its root directory there is no /proc", "mount /proc there";
    OtherUser { owner: u32 } = "other-user",
        "it runs as another user; the session directory is that of user {owner}", "run calltap as the program's user";
    Unknown { why: String } = "session-directory",
        "its session directory: {why}", "see permissions.md";
}

calltap_sites::reasons! {
    /// Why a program that a process executes is not followed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NotFollowed;

    Process { why: Reason } = "followed-process",
        "{why}", "see the table of processes";
    NotSeen { why: NotSeen } = "followed-directory",
        "{why}", "see the table of directories";
    SetId = "set-id",
        "set-user-ID, set-group-ID or with capabilities: the dynamic linker loads no agent", "attach to it when it runs, as root";
    Static = "static",
        "statically linked: no dynamic linker loads the agent", "start it with calltap record -- PROGRAM";
    GoAlone = "go-without-c",
        "a Go program without C: it does not use the threads of the dynamic linker", "start it with calltap record -- PROGRAM";
    NoArguments = "arguments-unread",
        "its arguments could not be read", "none";
    NoStackRoom = "no-stack-room",
        "its stack has no room", "raise its limit of the stack (RLIMIT_STACK)";
    StackUnwritable { why: String } = "stack-unwritable",
        "its stack could not be written: {why}", "see permissions.md";
}

calltap_sites::reasons! {
    /// Why the code of a process is not changed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NotWritable;

    OtherSession { pid: u32 } = "other-session",
        "process {pid} does not belong to this session: it was not changed", "none";
    Denied { pid: u32, why: String } = "code-denied",
        "the code of process {pid} may not be changed, so its new functions are not traced: {why}", "see permissions.md";
}

calltap_sites::reasons! {
    /// Why a function of a process is not traced, though that of its file could be.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NotAsInFile;

    Changed = "changed-code",
        "its code is not as in its file: the program or another tool has changed it", "detach the other tool";
}

calltap_sites::reasons! {
    /// Why an address that the agent recorded is no call of the profiling function.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NotACall;

    Gone = "code-gone",
        "the code is gone", "none: it was unmapped";
    Unreadable = "code-unreadable",
        "it cannot be read", "see permissions.md";
    Shared = "code-shared",
        "a change of it would reach other processes: it is mapped shared and writable", "none";
    OtherCode { code: CodeBytes } = "other-code",
        "no call of the profiling function, but {code}", "report it: no compiler is known to call so";
}

/// Bytes of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodeBytes(pub Vec<u8>);

impl fmt::Display for CodeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.0)
    }
}

calltap_sites::reasons! {
    /// Why a batch of functions gets no stubs.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NoStubs;

    NoRange { length: u64 } = "no-stub-range",
        "no free address range of {length} bytes within reach of it", "trace fewer functions of it";
    System { why: String } = "stubs-unwritten",
        "{why}", "see permissions.md";
}

impl From<io::Error> for NoStubs {
    fn from(error: io::Error) -> NoStubs {
        NoStubs::System { why: error.to_string() }
    }
}

impl From<NotSeen> for NotFollowed {
    fn from(why: NotSeen) -> NotFollowed {
        NotFollowed::NotSeen { why }
    }
}

impl From<Reason> for NotFollowed {
    fn from(why: Reason) -> NotFollowed {
        NotFollowed::Process { why }
    }
}

impl From<io::Error> for NotFollowed {
    fn from(error: io::Error) -> NotFollowed {
        Reason::from(error).into()
    }
}

impl From<Errno> for NotFollowed {
    fn from(errno: Errno) -> NotFollowed {
        Reason::System { why: errno.desc().to_lowercase() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn codes_are_unique_and_documented() {
        assert_documented(NotSeen::ALL);
        assert_documented(NotFollowed::ALL);
        assert_documented(NotWritable::ALL);
        assert_documented(NotAsInFile::ALL);
        assert_documented(NotACall::ALL);
        assert_documented(NoStubs::ALL);
    }
}
