//! Reasons why a function is not traced, why only its entry is recorded, or why a return stub sees
//! its return; each with code, text and advice.
//!
//! `docs/reference/reasons.md` lists them. A test compares it with this table, and writes the rows
//! anew if `CALLTAP_WRITE_REASONS` is set. `decide.rs` has the rules that give reasons.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::{env, fs};

/// Defines an enum of reasons. Each variant has a code, a text, which may name the variant's
/// fields, and advice for the user.
#[macro_export]
macro_rules! reasons {
    ($(#[$head:meta])* pub enum $reason:ident; $($(#[$about:meta])* $name:ident $({ $($field:ident: $kind:ty),* })? = $code:literal, $text:literal, $advice:literal;)*) => {
        $(#[$head])*
        pub enum $reason {
            $($(#[$about])* #[allow(missing_docs)] $name $({ $($field: $kind),* })?,)*
        }

        impl $reason {
            /// Code, text and advice of every reason; the text names its fields.
            pub const ALL: &[(&str, &str, &str)] = &[$(($code, $text, $advice)),*];

            /// Returns the stable name for programs that read JSON.
            pub fn code(&self) -> &'static str {
                match self {
                    $($reason::$name $({ $($field: _),* })? => $code,)*
                }
            }
        }

        /// Writes one clause without a full stop.
        impl ::std::fmt::Display for $reason {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($reason::$name $({ $($field),* })? => write!(f, $text),)*
                }
            }
        }
    };
}

/// For tests: panics unless all codes differ, and a table of `docs/reference/reasons.md` has the
/// rows of `all`. With `CALLTAP_WRITE_REASONS`, writes the rows into the table that has most of the
/// codes.
pub fn assert_documented(all: &[(&str, &str, &str)]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/reasons.md");
    let codes: HashSet<&str> = all.iter().map(|(code, ..)| *code).collect();
    assert_eq!(codes.len(), all.len());
    let row = |(code, text, advice): &(&str, &str, &str)| {
        format!("| `{code}` | {} | {advice} |\n", text.replace(":#x", ""))
    };
    let rows: String = all.iter().map(row).collect();
    let document = fs::read_to_string(path).expect("the list of reasons");
    if env::var_os("CALLTAP_WRITE_REASONS").is_some() {
        fs::write(path, with_rows(&document, &codes, &rows)).expect("the list of reasons");
    } else {
        assert!(document.contains(&rows), "run this test with CALLTAP_WRITE_REASONS=1: {path} lacks\n{rows}");
    }
}

/// Returns a document with other rows in the table that has most of these codes: two tables may
/// have one in common.
fn with_rows(document: &str, codes: &HashSet<&str>, rows: &str) -> String {
    let is_row = |line: &str| line.starts_with("| `");
    let is_known = |line: &&&str| line.split('`').nth(1).is_some_and(|code| codes.contains(code));
    let lines: Vec<&str> = document.split_inclusive('\n').collect();
    let tables = lines.chunk_by(|one, next| is_row(one) == is_row(next)).filter(|lines| is_row(lines[0]));
    let count = |table: &&[&str]| table.iter().filter(is_known).count();
    let table = tables.max_by_key(count).filter(|table| count(table) > 0);
    document.replacen(&table.expect("a table with a row of one of these reasons").concat(), rows, 1)
}

reasons! {
    /// A reason for the state of a function. `at` is a link-time address.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub enum Reason;

    // Entries that are not functions.
    ColdPart = "cold-part", "cold part of a function, not a function", "trace the function that it is a part of";
    ColdPartOf { function: String } = "cold-part-of", "cold part of {function}, not a function", "trace that function";
    SharedPart = "maybe-shared-part",
        "only jumps of other functions lead to it: it may be a part that they share", "trace the functions that jump there";
    Label = "maybe-label",
        "only a function that may jump to it through a pointer has its address: it may be a label",
        "trace the function that has its address";
    Unreached = "maybe-part",
        "no call, jump or pointer of the file leads to it: it may be a part of a function", "trace its neighbours";
    Profiler = "profiling-function", "the profiling function itself", "trace other functions";
    EntryPoint = "entry-point", "the program's entry point: not called", "trace main";

    // The compiler's room is missing or not as expected.
    NoRoom = "no-room",
        "no room left by the compiler: build with -fpatchable-function-entry=5 (or -pg)",
        "build with that flag, or name the function in a filter: it is then traced as unmodified";
    NopsInFront { room: u64 } = "nops-in-front-only",
        "{room} NOP bytes before the function but none at its entry: compile with -fpatchable-function-entry=5",
        "compile with that flag";
    NoNops { at: u64, found: String } = "no-nops", "expected NOPs at {at:#x}, found {found}", "rebuild the file: its list of NOPs is not that of its code";
    NopsMisplaced { total: usize } = "nops-misplaced",
        "its {total} NOP bytes at the entry do not begin with 2 of their own for a short jump: compile with -fpatchable-function-entry=5",
        "compile with that flag";
    FewNopsInFront { room: u64, total: usize } = "few-nops-in-front",
        "only {room} NOP bytes before the function and {total} at its entry, a jump needs 5: compile with -fpatchable-function-entry=5",
        "compile with that flag";
    FewNops { total: usize } = "few-nops",
        "only {total} NOP bytes at its entry, a jump needs 5: compile with -fpatchable-function-entry=5", "compile with that flag";
    NoCall { at: u64, found: String } = "no-call",
        "expected a 5- or 6-byte call or NOP at {at:#x}, found {found}", "rebuild the file: its list of calls is not that of its code";
    FentryElsewhere { entry: u64, at: u64 } = "fentry-elsewhere",
        "expected its call to __fentry__ at {entry:#x}, found at {at:#x}", "compile with -fpatchable-function-entry=5";
    NoFrame = "no-frame",
        "the prologue before its call to mcount sets up no frame pointer that leads to the return address: compile with -fpatchable-function-entry=5 or -pg -mfentry",
        "compile with one of these";
    NoSled = "no-sled", "XRay has no sled at its entry", "compile with -fxray-instruction-threshold=1";
    SledElsewhere { at: u64 } = "sled-elsewhere", "XRay's sled at {at:#x} is not at its entry", "compile with -fpatchable-function-entry=5";
    BrokenSled { at: u64, found: String } = "broken-sled",
        "expected XRay's sled at {at:#x}, found {found}", "rebuild the file: its list of sleds is not that of its code";
    BrokenExitSled { at: u64, found: String } = "broken-exit-sled",
        "expected a return and a NOP at {at:#x}, found {found}", "rebuild the file: its list of sleds is not that of its code";
    NoCode { at: u64 } = "no-code-at", "no code at {at:#x}", "rebuild the file: its list of sleds is not that of its code";

    // A jump at the entry does not fit or is not safe.
    Short { bytes: u64 } = "short", "a jump needs 5 bytes, and it has {bytes}", "trace its callers";
    ShortAndRunsOn { bytes: u64 } = "short-and-runs-on",
        "a jump needs 5 bytes; it has {bytes}, and runs on into what follows", "trace its callers";
    Empty = "no-code", "it has no code in the file", "none";
    CutOff = "cut-off", "part of it is not in the file", "none";
    TwoPages = "two-pages", "its first five bytes lie in two pages", "trace its callers";
    JumpedInto = "jumped-into", "a jump targets bytes that calltap would overwrite", "trace its callers";
    JumpedIntoByte { byte: u64 } = "jumped-into-byte", "a jump targets its byte {byte}, which calltap would overwrite", "trace its callers";
    LoopsToEntry = "loops-to-entry", "it jumps back to its own beginning, which would count as a call", "trace its callers";
    IndirectJumpInside { at: u64 } = "indirect-jump-inside",
        "its indirect jump at {at:#x} may lead behind its first instruction", "trace its callers";
    FaultThrows = "fault-throws",
        "a fault in its first or last instructions may throw an exception (-fnon-call-exceptions), and their copy has no unwinding information",
        "trace its callers";
    OddStack = "odd-stack", "the top of its stack is not a return address at entry", "trace its callers";
    EnteredWithFrame { at: u64 } = "entered-with-frame",
        "the jump to it at {at:#x} leaves another function's frame on the stack, whose top is then no return address",
        "trace its callers";
    GetsRedZone { at: u64 } = "gets-red-zone",
        "the jump to it at {at:#x} may pass an address of data below the stack", "trace its callers";
    ReadsRedZone { at: u64 } = "reads-red-zone",
        "its instruction at {at:#x} reads below the stack what the function has not written: other functions jump to it with data there",
        "trace its callers";
    NoInstructions = "no-instructions", "its first bytes are not instructions", "none: it is data, or encrypted";
    FarTransfer = "far-transfer", "it begins with a far transfer", "trace its callers";
    SystemCall = "system-call", "it begins with a system call, in which threads wait", "trace its callers";
    CallReturnsInto { byte: u64 } = "call-returns-into", "a call returns to its byte {byte}, where the jump would be", "trace its callers";
    CallThroughStack = "call-through-stack", "it begins with a call through its stack", "trace its callers";
    BeginsWith { instruction: String } = "begins-with", "it begins with {instruction}", "trace its callers";
    OnlyBreakpoint { why: Box<Reason> } = "only-breakpoint", "{why}; --allow-int3 would trace it", "allow breakpoints, with the risks in docs/explanation/safety.md";

    // Go.
    GoUnknown = "go-unknown",
        "not in Go's table of functions, as far as that can be read (Go 1.16 and later)", "rebuild with a newer Go";
    GoUnchecked = "go-unchecked",
        "a Go function that does not check its stack, of a version of Go that is not known (Go before 1.18)", "trace its callers";
    GoUncheckedAssembly = "go-unchecked-assembly",
        "Go assembly that does not check its stack, which may use every register, and have no room for a hook", "trace its callers";
    GoForeign = "go-foreign",
        "no Go compiler made it: it is C code in Go's table of functions", "trace its callers";
    GoOtherStack = "go-other-stack",
        "it runs in signal handlers and starting threads, where r14 is not the goroutine of the stack", "trace its callers";
    GoFork = "go-fork", "a child process may run it on the stack of its parent", "trace its callers";
    GoSetsGoroutine = "go-sets-goroutine",
        "it changes r14, the register of its goroutine", "trace its callers";
    GoMayFault = "go-may-fault",
        "it begins with an instruction that may fault: Go finds the function that panics by the instruction's address", "trace its callers";
    GoResumes { byte: u64 } = "go-resumes",
        "a preempted goroutine may resume at its byte {byte}, where the jump would be", "trace its callers";
    GoFips = "go-fips", "Go's FIPS module, which compares its own code with a checksum", "trace its callers";
    GoVersion = "go-version",
        "Go assembly that has its goroutine in another register than r14, or a Go function of a version that is not known (before 1.16, after 1.27)", "none: its entry is traced";
    GoAssembly = "go-assembly", "Go assembly, which may use r14 for something else than its goroutine", "none: its entry is traced";
    GoEnds = "go-ends", "a Go function that ends its goroutine, and never returns", "none: its entry is traced";
    GoOnlyEntry { why: Box<Reason> } = "go-only-entry",
        "{why}; a Go function gets no return stub, as its stack may move",
        "trace its callers for durations: of it only entries are recorded";
    GoStack = "go-stack", "a Go function, whose stack may move", "trace its callers";
    GoCheckLeadsOut = "go-check-leads-out", "its stack check leads out of the function", "trace its callers";
    GoCheckLost = "go-check-lost", "its stack check does not lead back to its beginning", "trace its callers";

    Ocaml = "ocaml",
        "OCaml code: its runtime recognises a full stack by the address of the code", "trace the program's C functions";

    // The return address must stay.
    ReadsReturnAddress { at: u64 } = "reads-return-address",
        "it reads its own return address (at {at:#x})", "trace its callers, or use --tracer function";
    MovesReturnAddress { at: u64 } = "moves-return-address",
        "it may move its return address (at {at:#x})", "trace its callers, or use --tracer function";
    PopsArguments { at: u64 } = "pops-arguments",
        "a return takes its arguments from the stack (at {at:#x})", "trace its callers, or use --tracer function";
    MayPopArguments { at: u64 } = "may-pop-arguments",
        "it may end with a jump to an asynchronous function of Swift, whose return takes arguments from the stack (at {at:#x})",
        "trace its callers, or use --tracer function";
    Machine { name: String } = "virtual-machine",
        "{name} may look up its return address", "trace functions that the virtual machine calls";
    ReturnAddressReadThere = "return-address-read-there", "the return address is read there", "trace its callers";

    // Why exits are not rewritten, or the end of calls is not seen.
    TailCall { at: u64 } = "tail-call", "it ends with a tail call (at {at:#x})", "none needed: a return stub sees the return";
    SledTailCall { at: u64 } = "sled-tail-call",
        "it ends with a tail call (behind XRay's sled at {at:#x})", "none needed: a return stub sees the return";
    UnseenTailCall { at: u64, why: Box<Reason> } = "unseen-tail-call",
        "tail call (at {at:#x}): {why}", "only entries are recorded: for durations trace its callers";
    RoomAtEntry = "room-at-entry", "the compiler left room at its entry", "none needed: a return stub sees the return";
    SharesParts = "shares-parts", "it shares parts with many functions", "none needed: a return stub sees the return";
    SharesPart = "shares-part", "it shares a part with another function", "none needed: a return stub sees the return";
    RunsOn = "runs-on", "it falls through into the next function", "none needed: a return stub sees the return";
    DataBehindCalls = "data-behind-calls",
        "it has no unwinding information, and may keep data behind its calls", "none needed: a return stub sees the return";
    ExitNearEntry = "exit-near-entry", "an exit is too near to its beginning", "none needed: a return stub sees the return";
    BreakpointEntry = "breakpoint-entry",
        "its entry is a breakpoint, which is enabled in another step than rewritten exits", "none needed: a return stub sees the return";
    NoRoomForJump { at: u64 } = "no-room-for-jump", "no room for a jump at {at:#x}", "none needed: a return stub sees the return";
    NoRoomAtExit { at: u64 } = "no-room-at-exit",
        "no room for a jump at its exit at {at:#x}",
        "none needed: a return stub sees the return";
    UnresolvedJump { at: u64 } = "unresolved-jump", "unresolved indirect jump at {at:#x}", "none needed: a return stub sees the return";
    OddJump { at: u64 } = "odd-jump", "it leaves by an unusual branch (jrcxz, loop, xbegin) at {at:#x}", "none needed: a return stub sees the return";
    JumpsInto { at: u64 } = "jumps-into", "it jumps into another function at {at:#x}", "none needed: a return stub sees the return";
    JumpsNowhere { at: u64 } = "jumps-nowhere",
        "the jump at {at:#x} leads to no known function", "none needed: a return stub sees the return";
}

reasons! {
    /// The reason why the code of a profiling function takes no jump.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub enum NoJump;

    NoRoom { at: u64 } = "profiler-no-room", "{at:#x} has no room for a jump", "compile with -fpatchable-function-entry=5";
    BranchesInto { at: u64 } = "profiler-branches",
        "it branches to behind {at:#x}, where the jump would be", "compile with -fpatchable-function-entry=5";
}

impl Reason {
    /// Whether the entry is called as a function, as far as is known.
    pub fn is_of_function(&self) -> bool {
        use Reason::*;
        !matches!(
            self,
            ColdPart
                | ColdPartOf { .. }
                | SharedPart
                | Label
                | Unreached
                | Profiler
                | EntryPoint
                | NoRoom
                | Empty
                | CutOff
                | NoInstructions
        )
    }

    /// Returns the reason why only entries of a Go function are recorded, given the reason why its
    /// exits are not rewritten.
    pub(crate) fn of_go_function(self) -> Reason {
        match self {
            Reason::GoVersion | Reason::GoAssembly | Reason::GoEnds | Reason::GoSetsGoroutine => self,
            why => Reason::GoOnlyEntry { why: Box::new(why) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_include_their_facts() {
        let tail_call =
            Reason::UnseenTailCall { at: 0x40, why: Box::new(Reason::ReadsReturnAddress { at: 0x50 }) };
        assert_eq!(tail_call.to_string(), "tail call (at 0x40): it reads its own return address (at 0x50)");
        assert_eq!(tail_call.code(), "unseen-tail-call");
        let short = Reason::OnlyBreakpoint { why: Box::new(Reason::Short { bytes: 3 }) };
        assert_eq!(short.to_string(), "a jump needs 5 bytes, and it has 3; --allow-int3 would trace it");
    }

    #[test]
    fn codes_are_unique_and_documented() {
        assert_documented(Reason::ALL);
        assert_documented(NoJump::ALL);
    }
}
