//! Reasons why breakpoints in a process's code would kill it, each with code, text and advice.
//! `docs/reference/reasons.md` lists them; a test compares it with this table.

calltap_sites::reasons! {
    /// Why a process may have no breakpoints.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NoBreakpoints;

    // The process.
    Debugger = "debugger",
        "a debugger is attached to it, which takes SIGTRAP", "end the debugger";
    SeccompFilter = "handler-filtered",
        "its seccomp filter may forbid the system calls of a SIGTRAP handler", "start it without the filter";
    Ignored = "sigtrap-ignored",
        "it ignores SIGTRAP", "leave out --patch-mode breakpoint";
    Handled = "sigtrap-handled",
        "it handles SIGTRAP itself", "leave out --patch-mode breakpoint";
    HandledOrIgnored = "sigtrap-used",
        "it handles or ignores SIGTRAP itself", "leave out --patch-mode breakpoint";
    Blocked { thread: u32 } = "sigtrap-blocked",
        "its thread {thread} blocks SIGTRAP", "leave out --patch-mode breakpoint";
    HandlerBlocks { signal: u32 } = "handler-blocks-sigtrap",
        "its handler of signal {signal} runs with SIGTRAP blocked", "leave out --patch-mode breakpoint";
    SharedMemory { other: u32 } = "memory-shared-with",
        "process {other} shares its memory", "end the other process";

    // The agent.
    NoAnswer = "agent-no-answer",
        "its agent did not answer", "try again";
    NoTable = "no-breakpoint-table",
        "its agent cannot allocate the table of breakpoints", "raise its limit of address space (RLIMIT_AS)";
    TooMany = "too-many-breakpoints",
        "there are too many", "trace fewer functions";
    NotListed { why: String } = "breakpoints-not-listed",
        "they cannot be listed: {why}", "trace fewer functions";
    NoHandler { why: String } = "no-handler",
        "{why}", "see permissions.md";
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn reasons_are_unique_and_documented() {
        assert_documented(NoBreakpoints::ALL);
    }
}
