//! Decodes events by the formats in the file.

use calltap_analysis::states::{SAYS_LEFT, SAYS_RUNNING, SAYS_UNKNOWN};
use calltap_names::printable_bytes;
use calltap_ringbuffer::{Field, Fields};
use std::collections::HashMap;

/// Flags in `common_flags` of an event in an interrupt, not in the thread's own code.
const INTERRUPT: i64 = 0x08 | 0x10 | 0x40;
/// Bits of `prev_state` of a thread that sleeps or is dead. A bit above them says that it was
/// preempted.
const NOT_RUNNABLE: i64 = 0xff;
/// Bits of `prev_state` of a dead thread.
const DEAD: i64 = 0x10 | 0x20;

/// A thread named by a context switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Task {
    pub(crate) tid: u32,
    pub(crate) comm: String,
}

/// State of a thread after a switch away from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Runnable,
    Blocked,
    Dead,
}

/// A text that calltap writes about a thread where no event of the kernel says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StateMark {
    /// The thread runs.
    Runs,
    /// The thread's state is unknown.
    MayRun,
    /// The call whose exit follows ended at an unknown time.
    IsLeft,
}

/// A decoded event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A function was entered; its return is not recorded.
    Call { function: u64, parent: u64 },
    /// A function was entered, with `depth` calls below it.
    Entry { function: u64, depth: u32 },
    /// A function returned.
    Exit { function: u64, depth: u32 },
    /// A processor switches from one thread to another.
    Switch { prev: Task, after: After, next: Task },
    /// The thread wakes another one.
    Waking { woken: Task, interrupt: bool },
    /// A system call begins.
    Enter { number: i64, arguments: [u64; 6] },
    /// A system call returns.
    Return { number: i64, result: i64 },
    /// Events of the processor are missing before this one; their number, if known.
    Missed(Option<u64>),
    /// In a file written by calltap: a text about the thread.
    StateMark(StateMark),
}

/// An event with time, processor and thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) tid: u32,
    pub(crate) event: Event,
}

/// Fields of the known kinds of events.
#[derive(Clone, Copy)]
enum Shape {
    Function { ip: Field, parent: Field },
    Entry { function: Field, depth: Field },
    Exit { function: Field, depth: Field },
    Switch { prev: (Field, Field), state: Field, next: (Field, Field) },
    Waking { flags: Field, woken: (Field, Field) },
    Enter { number: Field, arguments: Field },
    Return { number: Field, result: Field },
}

impl Shape {
    fn of(name: &str, fields: &Fields) -> Option<Shape> {
        let get = |name| fields.get(name);
        let task = |tid, comm| Some((get(tid)?, get(comm)?));
        Some(match name {
            "function" => Shape::Function { ip: get("ip")?, parent: get("parent_ip")? },
            // Kernels that also record the return address write the second name.
            "funcgraph_entry" | "fgraph_retaddr_entry" => {
                Shape::Entry { function: get("func")?, depth: get("depth")? }
            }
            "funcgraph_exit" => Shape::Exit { function: get("func")?, depth: get("depth")? },
            "sched_switch" => Shape::Switch {
                prev: task("prev_pid", "prev_comm")?,
                state: get("prev_state")?,
                next: task("next_pid", "next_comm")?,
            },
            "sched_waking" => Shape::Waking { flags: get("common_flags")?, woken: task("pid", "comm")? },
            "sys_enter" => Shape::Enter { number: get("id")?, arguments: get("args")? },
            "sys_exit" => Shape::Return { number: get("id")?, result: get("ret")? },
            _ => return None,
        })
    }

    fn event(self, record: &[u8]) -> Option<Event> {
        let number = |field: Field| field.number(record);
        let address = |field| number(field).map(i64::cast_unsigned);
        let depth = |field| number(field).map(|depth| u32::try_from(depth).unwrap_or(0));
        let task = |(tid, comm): (Field, Field)| {
            let comm = comm.bytes(record)?.split(|byte| *byte == 0).next().unwrap_or_default();
            Some(Task { tid: u32::try_from(number(tid)?).ok()?, comm: printable_bytes(comm) })
        };
        Some(match self {
            Shape::Function { ip, parent } => {
                Event::Call { function: address(ip)?, parent: address(parent)? }
            }
            Shape::Entry { function, depth: field } => {
                Event::Entry { function: address(function)?, depth: depth(field)? }
            }
            Shape::Exit { function, depth: field } => {
                Event::Exit { function: address(function)?, depth: depth(field)? }
            }
            Shape::Switch { prev, state, next } => {
                let after = match number(state)? & NOT_RUNNABLE {
                    0 => After::Runnable,
                    state if state & DEAD != 0 => After::Dead,
                    _ => After::Blocked,
                };
                Event::Switch { prev: task(prev)?, after, next: task(next)? }
            }
            Shape::Waking { flags, woken } => {
                Event::Waking { woken: task(woken)?, interrupt: number(flags)? & INTERRUPT != 0 }
            }
            Shape::Enter { number: field, arguments } => {
                let mut all = [0; 6];
                for (own, bytes) in all.iter_mut().zip(arguments.bytes(record)?.chunks_exact(8)) {
                    *own = u64::from_le_bytes(bytes.try_into().ok()?);
                }
                Event::Enter { number: number(field)?, arguments: all }
            }
            Shape::Return { number: field, result } => {
                Event::Return { number: number(field)?, result: number(result)? }
            }
        })
    }
}

/// Decodes a `print` record of calltap.
fn printed(record: &[u8]) -> Option<StateMark> {
    // The text follows the common fields and the address of the printing function.
    let text = record.get(16..)?.split(|byte| *byte == 0).next()?;
    match std::str::from_utf8(text).ok()? {
        SAYS_RUNNING => Some(StateMark::Runs),
        SAYS_UNKNOWN => Some(StateMark::MayRun),
        SAYS_LEFT => Some(StateMark::IsLeft),
        _ => None,
    }
}

/// The format of a kind of events.
struct Kind {
    name: String,
    shape: Option<Shape>,
    /// Number of events of this kind.
    count: u64,
}

/// Decodes events.
pub(crate) struct Decoder {
    kinds: HashMap<u16, Kind>,
    kind: Option<Field>,
    tid: Option<Field>,
    /// Number of records of unknown kinds, or without the fields of their kind.
    strange: u64,
}

impl Decoder {
    /// Makes a decoder from the texts of all formats.
    pub(crate) fn new(formats: &[String]) -> Decoder {
        let mut decoder = Decoder { kinds: HashMap::new(), kind: None, tid: None, strange: 0 };
        for text in formats {
            let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let (Some(name), Some(Ok(id))) = (value("name:"), value("ID:").map(str::parse)) else { continue };
            let fields = Fields::parse(text);
            // The common fields are described in every format.
            decoder.kind = decoder.kind.or(fields.get("common_type"));
            decoder.tid = decoder.tid.or(fields.get("common_pid"));
            let shape = Shape::of(name, &fields);
            let name = calltap_names::printable(name).into_owned();
            decoder.kinds.insert(id, Kind { name, shape, count: 0 });
        }
        decoder
    }

    /// Returns the thread that ran.
    pub(crate) fn tid(&self, record: &[u8]) -> Option<u32> {
        u32::try_from(self.tid?.number(record)?).ok()
    }

    /// Decodes a record; `None` for kinds that are not decoded, which are counted.
    pub(crate) fn decode(&mut self, cpu: u32, time: u64, record: &[u8]) -> Option<Item> {
        let tid = self.tid(record);
        let id = self.kind.and_then(|kind| kind.number(record)).map(|id| id as u16);
        let kind = id.and_then(|id| self.kinds.get_mut(&id));
        let (Some(tid), Some(kind)) = (tid, kind) else {
            self.strange += 1;
            return None;
        };
        if let (true, Some(told)) = (kind.name == "print", printed(record)) {
            return Some(Item { time, cpu, tid, event: Event::StateMark(told) });
        }
        kind.count += 1;
        let event = kind.shape?.event(record);
        if event.is_none() {
            kind.count -= 1;
            self.strange += 1;
        }
        Some(Item { time, cpu, tid, event: event? })
    }

    /// Returns the decoded kinds of events with their counts, most first, and those that are not
    /// decoded.
    pub(crate) fn counts(&self) -> [Vec<(String, u64)>; 2] {
        let of = |is_understood: bool| {
            let kinds = self.kinds.values().filter(|kind| kind.count > 0);
            let own = kinds.filter(|kind| kind.shape.is_some() == is_understood);
            let mut counts: Vec<_> = own.map(|kind| (kind.name.clone(), kind.count)).collect();
            if !is_understood && self.strange > 0 {
                counts.push(("records of no known format".to_owned(), self.strange));
            }
            counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            counts
        };
        [of(true), of(false)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_ringbuffer::{formats, record};

    fn decoder() -> Decoder {
        let texts = formats::EVENTS.iter().chain(&formats::SCHED);
        Decoder::new(&texts.map(|(_, text)| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn events_are_read_by_their_formats() {
        let mut decoder = decoder();
        let mut event = |record: &[u8]| decoder.decode(1, 5, record).map(|item| (item.tid, item.event));
        let exit = Event::Exit { function: 7, depth: 2 };
        assert_eq!(event(&record::graph_exit(9, 7, 2, 1, 2)), Some((9, exit)));
        assert_eq!(event(&record::function(9, 7, 8)), Some((9, Event::Call { function: 7, parent: 8 })));
        let task = |tid, comm: &str| Task { tid, comm: comm.into() };
        let switch = Event::Switch { prev: task(9, "sh"), after: After::Blocked, next: task(0, "swapper") };
        assert_eq!(event(&record::sched_switch((9, "sh"), true, (0, "swapper"))), Some((9, switch)));
        let waking = Event::Waking { woken: task(9, "sh"), interrupt: true };
        assert_eq!(event(&record::sched_waking(8, true, (9, "sh"), 0)), Some((8, waking)));
        assert_eq!(event(&record::print(9, 1, "text")), None);
        assert_eq!(event(&record::graph_entry(9, 7, 2)[..12]), None, "cut off");
        assert_eq!(event(&[]), None);
        let known = vec![
            ("funcgraph_exit".into(), 1),
            ("function".into(), 1),
            ("sched_switch".into(), 1),
            ("sched_waking".into(), 1),
        ];
        let others = vec![("records of no known format".into(), 2), ("print".into(), 1)];
        assert_eq!(decoder.counts(), [known, others]);
    }

    #[test]
    fn a_preempted_thread_is_runnable_and_a_dead_one_is_dead() {
        let mut decoder = decoder();
        let mut after = |state: u64| {
            let mut record = record::sched_switch((9, "a"), false, (8, "b"));
            record[32..40].copy_from_slice(&state.to_le_bytes());
            match decoder.decode(0, 0, &record).map(|item| item.event) {
                Some(Event::Switch { after, .. }) => after,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([0, 0x100, 0x1000].map(&mut after), [After::Runnable; 3]);
        assert_eq!([1, 2, 0x80].map(&mut after), [After::Blocked; 3]);
        assert_eq!([0x10, 0x20].map(&mut after), [After::Dead; 2]);
    }
}
