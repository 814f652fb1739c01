//! Reasons why calltap does not attach to, change or detach from a process, each with code, text
//! and advice. `docs/reference/reasons.md` lists them; a test compares it with this table.

use crate::no_breakpoints::NoBreakpoints;
use nix::errno::Errno;
use std::{fmt, io};

calltap_sites::reasons! {
    /// Why an operation on a process was not done.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Reason;

    // Kind and state of the process.
    NoProcess = "no-process",
        "no such process", "look for its id again";
    Itself = "calltap-itself",
        "it is calltap itself", "name another process";
    Zombie = "zombie",
        "it has ended (a zombie)", "none";
    Ended = "ended",
        "it has ended", "none";
    Ending = "ending",
        "it is ending", "none";
    KernelThread = "kernel-thread",
        "a kernel thread", "use the kernel's own ftrace";
    Bits32 = "32-bit",
        "a 32-bit program", "none: x86-64 programs only";
    Stopped = "stopped",
        "it is stopped by a signal: resume it first (kill -CONT)", "kill -CONT PID";
    Frozen = "frozen",
        "its control group is frozen: resume it first (cgroup.freeze, freezer.state)", "thaw the group, and try again";
    Traced { by: String, pid: u32 } = "traced",
        "it is being traced by {by} ({pid}) already", "end that debugger first";
    Shared { other: u32 } = "memory-shared",
        "process {other} shares its memory (CLONE_VM), and would be changed with it: end {other} first", "end the other process";
    ShadowStack = "processor-shadow-stack",
        "it has shadow stacks of the processor (x86_Thread_features: shstk): start it with GLIBC_TUNABLES=glibc.cpu.hwcaps=-SHSTK", "start it so";
    HighMemory { at: u64 } = "high-memory",
        "it has memory above 128 TiB (at {at:#x}; five levels of page tables), where there is no room for shadow stacks", "start it without addresses above 2^47 in its calls of mmap";
    OtherProgram = "other-program",
        "it has executed another program", "none";
    Executed = "executed",
        "it executed another program while calltap attached", "attach again";

    // Permissions.
    OwnChildrenOnly = "ptrace-scope-1",
        "permission denied: kernel.yama.ptrace_scope is 1, which allows tracing of one's own children only; as root, or set it to 0", "run calltap as root, or sysctl kernel.yama.ptrace_scope=0";
    RootOnly = "ptrace-scope-2",
        "permission denied: kernel.yama.ptrace_scope is 2, which allows tracing with CAP_SYS_PTRACE only", "run calltap as root";
    Forbidden = "ptrace-scope-3",
        "permission denied: kernel.yama.ptrace_scope is 3, which forbids tracing until the next boot", "none";
    NoPermission = "permission",
        "permission denied: it is another user's, or has changed its privileges", "run calltap as root";
    StrictSeccomp = "strict-seccomp",
        "it runs under strict seccomp: it could not load the agent", "none";
    Seccomp { call: &'static str } = "seccomp",
        "its seccomp filter does not allow {call}, which the agent needs", "start it without the filter, or allow the call";
    UnreadSeccomp { errno: Errno } = "seccomp-unread",
        "it runs under a seccomp filter that may forbid what the agent does, and that cannot be read ({errno}): root can read it", "run calltap as root";
    Dispatched = "system-calls-dispatched",
        "one of its threads dispatches system calls to SIGSYS (PR_SET_SYSCALL_USER_DISPATCH), which includes those of the agent", "start it without";
    System { why: String } = "system",
        "{why}", "see permissions.md";

    // Threads of the process.
    NoThread = "no-thread",
        "it has no thread that calltap can use", "try again";
    NoStack = "no-stack",
        "at each attempt, no stack of its threads had room", "try again";
    CompatibilityMode = "compatibility-mode",
        "at each attempt, its threads ran 32-bit code", "try again";
    Inside { code: Inside } = "inside",
        "at each attempt, its threads were in {code}", "try again";
    ThreadGone = "thread-gone",
        "the thread that was chosen has ended", "try again";
    Stuck = "stuck",
        "its threads wait in the kernel and do not return", "see what they wait for: /proc/PID/stack";
    StoppedMeanwhile = "stopped-meanwhile",
        "it was stopped by a signal", "kill -CONT PID, and try again";
    NotStoppable { errno: Errno } = "not-stoppable",
        "its threads cannot be stopped: {errno}", "see permissions.md";
    Busy = "busy",
        "calltap could not stop its threads in time: this machine is too busy", "try again";
    UnknownThreads = "unknown-threads",
        "its threads are not of a known thread library (glibc, musl, Go's runtime)", "start it with calltap record -- PROGRAM";
    WordInUse = "word-in-use",
        "the word in its threads' control blocks that the agent needs is in use", "start it with calltap record -- PROGRAM";

    NoControlBlock = "no-control-block",
        "a thread of it has no control block (its register FS is 0), by which hooks find a thread", "start that thread with CLONE_SETTLS";

    // Loading the agent.
    StillRuns = "still-runs",
        "a thread still runs code of a calltap that was killed", "try again";
    NoPlace = "no-place",
        "none of its objects has room behind its text for the code that loads the agent", "start it with calltap record -- PROGRAM";
    NoRange = "no-range",
        "there is no free address range near it for the agent", "start it with calltap record -- PROGRAM";
    AgentGone = "agent-gone",
        "its agent is gone: it has executed another program", "attach again";
    Unwritable = "unwritable",
        "its memory could not be written", "see permissions.md";
    NoMemory = "no-memory",
        "it may map no more memory: raise its limit of address space (RLIMIT_AS, ulimit -v)", "raise the limit";
    NoData = "no-data",
        "it may map no more memory of its own: raise its limit of data (RLIMIT_DATA, ulimit -d)", "raise the limit";
    NoMappings { count: usize } = "no-mappings",
        "it has {count} memory mappings, and may have too few more for calltap: raise the kernel's limit (sysctl vm.max_map_count)", "raise the limit";
    NoFreeMemory { megabytes: u64 } = "no-free-memory",
        "only {megabytes} MB of memory are available to it: raise the limit of its control group", "raise the limit";
    NoFiles = "no-files",
        "it may open no more files: raise its limit (RLIMIT_NOFILE, prlimit --nofile)", "raise the limit";
    NoLockedMemory = "no-locked-memory",
        "it locks all memory that it maps, and may lock no more: raise its limit (RLIMIT_MEMLOCK, prlimit --memlock)", "raise the limit";
    Fault { signal: i32 } = "fault",
        "the injected call that loads the agent ended by signal {signal}", "try again";
    Late = "late",
        "an injected call did not return in time", "try again";
    Linker { why: String } = "linker",
        "its dynamic linker did not load the agent: {why}", "see what the linker says";
    AgentNotMapped = "agent-not-mapped",
        "the agent could not be mapped", "raise its limit of address space";
    AgentNotOpened { errno: Errno } = "agent-not-opened",
        "it may not open the file of the agent ({errno}): a sandbox such as Landlock forbids it", "start it without the sandbox";
    AgentNoMemory = "agent-no-memory",
        "the agent could not map its memory: raise its limit of address space (RLIMIT_AS, ulimit -v)", "raise the limit";
    UnwinderCannotRegister = "unwinder-untold",
        "calltap cannot register the agent's frames with its unwinder", "start it with calltap record -- PROGRAM";
    UnwinderIgnoresFrames = "unwinder",
        "its unwinder ignores the agent's frames (LLVM's does)", "start it with calltap record -- PROGRAM";
    Unreadable = "unreadable",
        "its program cannot be read", "see permissions.md";
    UnwinderSymbolsMissing = "unwinder-unknown",
        "its unwinder is linked in, without a symbol of the function that registers frames", "link it dynamically, or keep its symbols";
    StaticStart = "static-start",
        "statically linked, and it does not begin as programs of glibc, musl or Go do", "link it dynamically";
    FollowsJumps = "follows-jumps",
        "the compiler of PyPy, which it has loaded, follows calltap's jumps, and might call calltap's code when that is gone", "start it with calltap record -- PROGRAM, or without PyPy";
    Breakpoints { why: NoBreakpoints } = "breakpoints",
        "breakpoints would kill it: {why}", "leave out --patch-mode breakpoint";

    // Other instances of calltap.
    Attached = "attached",
        "it is attached to already: see 'calltap status', 'calltap detach'", "calltap detach";
    Child { of: u32 } = "forked-child",
        "it was forked by process {of}, which calltap is attached to: 'calltap detach -p {of}' detaches from both", "detach from that process";
    Orphan = "forked-orphan",
        "it was forked by a process that calltap attached to and that has ended: 'calltap detach' detaches from it", "calltap detach";
    Attaching { by: String } = "attaching",
        "{by} is attaching to it", "wait for that one";
    Recorded { by: String } = "recorded",
        "{by} traces it, and a process has one calltap at a time: end that one, or change what it traces with 'calltap set'", "end that calltap, or use calltap set";
    Started { by: String } = "started",
        "{by} started it, and records it", "end that calltap";
    Records = "records",
        "calltap has started it, and records it until it ends", "wait for its end";
    Leaving = "leaving",
        "a calltap is detaching from it, and has not finished", "wait";
    Silent = "silent",
        "its controller (another calltap) does not answer", "wait, or end that calltap";
    OtherSilent = "other-silent",
        "its controller does not answer another calltap command either", "wait, or end that calltap";
    NotAttached = "not-attached",
        "calltap is not attached to it: 'calltap status' lists the attached processes, 'calltap attach -p PID' attaches", "calltap attach, or calltap record";
    AnothersSession { user: u32 } = "anothers-session",
        "a calltap of user {user} is attached to it", "run calltap as that user, or as root";
    Killed = "killed",
        "the calltap that traced it has ended without detaching: 'calltap detach' removes its code", "calltap detach";
    Remains { why: String } = "remains",
        "code that another calltap left in it cannot be removed yet: {why}", "try again";
    OtherVersion = "other-version",
        "another version of calltap is attached to it: use that one's 'calltap detach'", "use that version";
    OtherBuild = "other-build",
        "the agent in it is not this build's, or its code was changed: use the 'calltap detach' of the build that attached", "use that build";
    NoControl { why: String } = "no-control",
        "its session's control file cannot be mapped: {why}", "see permissions.md";
    TracersStay = "tracers-stay",
        "its tracers stay while it is recorded; filters and notrace sets can be changed", "end the recording";
    Selection { why: String } = "selection",
        "{why}", "change the filters";
    Mounted = "mounted",
        "its control directory is mounted: change the selection there", "write to the directory";
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Reason {
        Reason::System { why: error.to_string() }
    }
}

/// The code in which a thread may hold a lock that loading the agent needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// The dynamic linker, in this thread or another.
    Linker,
    /// The C library, in a function that may hold a lock.
    Libc,
    /// The allocator, or a function that holds its locks.
    Allocator,
    /// Code that does not run with a control block of the C library: the program has made the
    /// thread, or switches between blocks, by itself.
    OwnThread,
    /// The unwinder, or LeakSanitizer.
    Unwinder,
    /// The start of the program, before it has given its only thread a control block.
    Start,
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Inside::Linker => "the dynamic linker",
            Inside::Libc => "the C library",
            Inside::Allocator => "the allocator",
            Inside::OwnThread => "code without a control block of the C library",
            Inside::Unwinder => "the unwinder or LeakSanitizer",
            Inside::Start => "the start of the program",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn codes_are_unique_and_documented() {
        assert_documented(Reason::ALL);
    }
}
