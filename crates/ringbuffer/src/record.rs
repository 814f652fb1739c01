//! The contents of events of the function and function_graph tracers. [`crate::formats`] describes
//! them to readers.

/// `function`: an entry of a function.
pub const FUNCTION: u16 = 1;
/// `kernel_stack`: a stack of callers.
pub const STACK: u16 = 4;
/// `print`: text.
pub const PRINT: u16 = 5;
/// `funcgraph_exit`: a return of a function.
pub const GRAPH_EXIT: u16 = 10;
/// `funcgraph_entry`: an entry of a function whose return is recorded, too.
pub const GRAPH_ENTRY: u16 = 11;
/// `raw_data`: bytes.
pub const RAW_DATA: u16 = 18;
/// `func_repeats`: repeated calls of the function before.
pub const REPEATS: u16 = 19;

/// `sched_switch`: a processor switches from one thread to another. The kernel numbers events
/// beyond those of tracers as it starts; this is one of its numbers.
pub(crate) const SCHED_SWITCH: u16 = 314;
/// `sched_waking`: a thread is woken.
pub(crate) const SCHED_WAKING: u16 = 318;

/// Bit in a record's flags: an interrupt's code ran, not the thread's.
const INTERRUPT: u8 = 0x08;

/// Returns a record with its header: kind, no flags, no preemption count, thread.
fn begin<const SIZE: usize>(kind: u16, tid: u32) -> [u8; SIZE] {
    let mut record = [0; SIZE];
    record[..2].copy_from_slice(&kind.to_le_bytes());
    record[4..8].copy_from_slice(&tid.to_le_bytes());
    record
}

/// Returns the record of an entry of `function`, called from `parent`.
pub fn function(tid: u32, function: u64, parent: u64) -> [u8; 24] {
    let mut record = begin(FUNCTION, tid);
    record[8..16].copy_from_slice(&function.to_le_bytes());
    record[16..24].copy_from_slice(&parent.to_le_bytes());
    record
}

/// Returns the record of an entry of `function` with `depth` other calls open.
pub fn graph_entry(tid: u32, function: u64, depth: u32) -> [u8; 20] {
    let mut record = begin(GRAPH_ENTRY, tid);
    record[8..16].copy_from_slice(&function.to_le_bytes());
    record[16..20].copy_from_slice(&depth.to_le_bytes());
    record
}

/// Returns the record of a return of `function`; `depth` other calls stay open.
pub fn graph_exit(tid: u32, function: u64, depth: u32, entered: u64, returned: u64) -> [u8; 40] {
    let mut record = begin(GRAPH_EXIT, tid);
    record[8..16].copy_from_slice(&function.to_le_bytes());
    record[16..20].copy_from_slice(&depth.to_le_bytes());
    // 20..24: the number of calls that were too deep for the kernel's stack of return addresses;
    // here there are none.
    record[24..32].copy_from_slice(&entered.to_le_bytes());
    record[32..40].copy_from_slice(&returned.to_le_bytes());
    record
}

/// Returns the record of `text`, from the function at `at`.
pub fn print(tid: u32, at: u64, text: &str) -> Vec<u8> {
    let mut record = begin::<16>(PRINT, tid).to_vec();
    record[8..16].copy_from_slice(&at.to_le_bytes());
    record.extend_from_slice(text.as_bytes());
    record.push(0);
    record
}

/// Returns the fields of a thread: 16 bytes of its name, its id, its priority.
fn task((tid, comm): (u32, &str)) -> [u8; 24] {
    let mut fields = [0; 24];
    let comm = &comm.as_bytes()[..comm.len().min(15)];
    fields[..comm.len()].copy_from_slice(comm);
    fields[16..20].copy_from_slice(&tid.to_le_bytes());
    fields[20..24].copy_from_slice(&(-1_i32).to_le_bytes());
    fields
}

/// Returns the record of a switch from a thread, which sleeps or is runnable, to another. Threads
/// are ids and names, of which 15 bytes are kept; id 0 is no thread. Priorities are not known: -1.
pub fn sched_switch(prev: (u32, &str), sleeps: bool, next: (u32, &str)) -> [u8; 64] {
    let mut record: [u8; 64] = begin(SCHED_SWITCH, prev.0);
    // Behind the first thread comes its state, then the second thread.
    record[8..32].copy_from_slice(&task(prev));
    record[40..64].copy_from_slice(&task(next));
    record[32..40].copy_from_slice(&u64::from(sleeps).to_le_bytes());
    record
}

/// Returns the record of a wakeup of a thread, an id and a name, by another; `interrupt`: by an
/// interrupt that came while that one ran.
pub fn sched_waking(waker: u32, interrupt: bool, woken: (u32, &str), processor: u32) -> [u8; 36] {
    let mut record: [u8; 36] = begin(SCHED_WAKING, waker);
    record[2] = if interrupt { INTERRUPT } else { 0 };
    record[8..32].copy_from_slice(&task(woken));
    record[32..36].copy_from_slice(&processor.to_le_bytes());
    record
}

/// Returns the record of functions that called each other, innermost first.
pub fn stack(tid: u32, callers: &[u64]) -> Vec<u8> {
    let mut record = begin::<16>(STACK, tid).to_vec();
    record[8..12].copy_from_slice(&(callers.len() as u32).to_le_bytes());
    record.extend(callers.iter().flat_map(|caller| caller.to_le_bytes()));
    record
}

/// Returns the record of `bytes`, of which the first four tell their meaning.
pub fn raw_data(tid: u32, bytes: &[u8]) -> Vec<u8> {
    [&begin::<8>(RAW_DATA, tid), bytes].concat()
}

/// Returns the record of `count` more calls of `function` from `parent`, the last of them `before`
/// nanoseconds before this record.
pub fn repeats(tid: u32, function: u64, parent: u64, count: u16, before: u64) -> [u8; 32] {
    let mut record = begin(REPEATS, tid);
    record[8..16].copy_from_slice(&function.to_le_bytes());
    record[16..24].copy_from_slice(&parent.to_le_bytes());
    record[24..26].copy_from_slice(&count.to_le_bytes());
    record[26..28].copy_from_slice(&((before >> 32) as u16).to_le_bytes());
    record[28..32].copy_from_slice(&(before as u32).to_le_bytes());
    record
}
