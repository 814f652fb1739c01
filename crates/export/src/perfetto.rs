//! Perfetto's protobuf trace format (ui.perfetto.dev, trace_processor).
//!
//! Each thread is a packet sequence of its own: names are interned per sequence, the sequence's
//! defaults carry clock and track, and its clock is incremental. Packets follow the file's order of
//! batches; Perfetto sorts them by time.

mod packed;

use self::packed::Packed;
use super::proto::{bytes, double, message, number};
use crate::labels::{off_parts, pid_tid};
use crate::options::Options;
use calltap_analysis::futures::Span;
use calltap_analysis::states::{State, states};
use calltap_analysis::values::{self, FormattedValue};
use calltap_analysis::{
    Call, Ending, Enter, Error, Names, Progress, Source, Totals, Visitor, future_spans, incidents,
    run_in_file_order, threads_with_events,
};
use calltap_trace::{Incident, RunState, SiteId, ThreadId};
use serde_json::Value;
use std::io::{self, Write};
use std::thread;

const CLOCK_REALTIME: u64 = 1;
const CLOCK_MONOTONIC: u64 = 3;
/// A sequence's clock in which times count from the preceding packet.
const CLOCK_INCREMENTAL: u64 = 64;
const PROCESS_TRACK: u64 = 1 << 32;
const THREAD_TRACK: u64 = 2 << 32;
const FUTURE_TRACK: u64 = 3 << 32;
const STATE_TRACK: u64 = 4 << 32;

/// Field numbers of the messages used.
mod field {
    pub(super) const PACKET: u32 = 1;
    /// TracePacket
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const CLOCK: u32 = 58;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const FIRST_ON_SEQUENCE: u32 = 87;
    /// TracePacketDefaults
    pub(super) const DEFAULT_TRACK_EVENT: u32 = 11;
    pub(super) const DEFAULT_CLOCK: u32 = 58;
    /// TrackEvent
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK_UUID: u32 = 11;
    pub(super) const NAME: u32 = 23;
}

/// Field numbers of DebugAnnotation.
mod annotation {
    pub(super) const BOOL: u32 = 2;
    pub(super) const UINT: u32 = 3;
    pub(super) const INT: u32 = 4;
    pub(super) const DOUBLE: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const NAME: u32 = 10;
}

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// Perfetto keeps 512 levels of slices and mistakes the end of a deeper one for that of another.
/// The last level is reserved for instants.
const MAX_DEPTH: u32 = 511;

/// Writes the trace in Perfetto's format. A counter clock's ticks count as nanoseconds.
pub fn perfetto(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let names = Names::new(source.meta(), options.linker_names);
    let threads = source.meta().threads.len();
    thread::scope(|scope| {
        let mut exporter = Exporter {
            source,
            names,
            packed: Packed::new(scope, out),
            buffer: Vec::new(),
            packet: Vec::new(),
            event: Vec::new(),
            sequences: vec![None; threads],
            deeper: vec![0; threads],
            values: Vec::new(),
        };
        exporter.prologue();
        let totals = run_in_file_order(source, &mut exporter, progress)?;
        for span in future_spans(source) {
            exporter.future(&span);
            exporter.drain(false)?;
        }
        for thread in threads_with_events(source) {
            exporter.states(thread)?;
            exporter.incidents(thread)?;
        }
        exporter.drain(true)?;
        Ok(totals)
    })
}

/// State of a thread's sequence.
#[derive(Clone)]
struct Sequence {
    /// A bit per site whose name has been sent.
    interned: Vec<u64>,
    /// Time of its incremental clock, nanoseconds.
    now: u64,
}

struct Exporter<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    packed: Packed<'a>,
    buffer: Vec<u8>,
    packet: Vec<u8>,
    event: Vec<u8>,
    /// Sequences by thread, once begun.
    sequences: Vec<Option<Sequence>>,
    /// By thread, the number of calls too deep since the last call at the deepest level.
    deeper: Vec<u64>,
    /// Values captured with the next event.
    values: Vec<FormattedValue>,
}

impl Visitor for Exporter<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.values = values::show(self.source, site, returns, bytes, &mut |_| None);
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if enter.depth < MAX_DEPTH {
            self.named(thread, enter.ticks, enter.site, SLICE_BEGIN);
        } else {
            self.deeper[thread.0 as usize] += 1;
        }
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        if call.depth >= MAX_DEPTH {
            return;
        }
        self.begin_sequence(thread);
        self.event.clear();
        number(&mut self.event, field::TYPE, SLICE_END);
        if call.depth == MAX_DEPTH - 1 && self.deeper[thread.0 as usize] > 0 {
            let deeper = std::mem::take(&mut self.deeper[thread.0 as usize]);
            message(&mut self.event, field::ANNOTATION, |annotation| {
                number(annotation, annotation::UINT, deeper);
                bytes(annotation, annotation::NAME, b"deeper calls");
            });
        }
        if call.ending.is_cut() {
            message(&mut self.event, field::ANNOTATION, |annotation| {
                number(annotation, annotation::BOOL, 1);
                bytes(annotation, annotation::NAME, call.ending.name().as_bytes());
            });
        }
        if call.ending == Ending::Returned {
            self.annotate();
        }
        self.off(call);
        self.packet(thread, call.end, None);
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.named(thread, enter.ticks, enter.site, INSTANT);
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, entries: u32, exits: u32) {
        self.begin_sequence(thread);
        self.event.clear();
        number(&mut self.event, field::TYPE, INSTANT);
        bytes(&mut self.event, field::NAME, b"LOST");
        for (name, value) in [("entries", entries), ("exits", exits)] {
            message(&mut self.event, field::ANNOTATION, |annotation| {
                number(annotation, annotation::UINT, u64::from(value));
                bytes(annotation, annotation::NAME, name.as_bytes());
            });
        }
        self.packet(thread, ticks, None);
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.drain(false)
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        self.drain(false)
    }
}

impl Exporter<'_> {
    fn drain(&mut self, is_end: bool) -> io::Result<()> {
        self.packed.add(&mut self.buffer, is_end)
    }

    /// Returns the beginning of the recording by both clocks.
    fn began(&self) -> (u64, u64) {
        let session = self.source.meta().session.as_ref();
        session.map_or((0, 0), |session| (session.start_realtime_ns, session.start_monotonic_ns))
    }

    /// Writes the relation of the clocks and the names of the processes, in sequence 1, which is
    /// not a thread's.
    fn prologue(&mut self) {
        let meta = self.source.meta();
        let (realtime, monotonic) = self.began();
        message(&mut self.buffer, field::PACKET, |packet| {
            number(packet, field::SEQUENCE_ID, 1);
            message(packet, field::CLOCK_SNAPSHOT, |snapshot| {
                for (id, time) in [(CLOCK_MONOTONIC, monotonic), (CLOCK_REALTIME, realtime)] {
                    message(snapshot, 1, |clock| {
                        number(clock, 1, id);
                        number(clock, 2, time);
                    });
                }
                number(snapshot, 2, CLOCK_MONOTONIC);
            });
        });
        for (index, process) in meta.processes.iter().enumerate() {
            message(&mut self.buffer, field::PACKET, |packet| {
                number(packet, field::SEQUENCE_ID, 1);
                message(packet, field::TRACK_DESCRIPTOR, |track| {
                    number(track, 1, PROCESS_TRACK + index as u64);
                    message(track, 3, |descriptor| {
                        number(descriptor, 1, u64::from(process.pid));
                        if !process.comm.is_empty() {
                            bytes(descriptor, 6, process.comm.as_bytes());
                        }
                    });
                });
            });
        }
    }

    /// Writes a future on a track of its own (Perfetto shows those of a type together), with its
    /// polls as nested slices.
    fn future(&mut self, span: &Span) {
        let uuid = FUTURE_TRACK + span.id;
        message(&mut self.buffer, field::PACKET, |packet| {
            number(packet, field::SEQUENCE_ID, 1);
            message(packet, field::TRACK_DESCRIPTOR, |track| {
                number(track, 1, uuid);
                bytes(track, 2, span.name.as_bytes());
                number(track, 5, PROCESS_TRACK + u64::from(span.process));
            });
        });
        let mut event = |kind: u64, name: &str, ticks: u64, notes: &[(&str, String)]| {
            let time = self.source.to_ns(ticks);
            message(&mut self.buffer, field::PACKET, |packet| {
                number(packet, field::TIMESTAMP, time);
                number(packet, field::CLOCK, CLOCK_MONOTONIC);
                number(packet, field::SEQUENCE_ID, 1);
                message(packet, field::TRACK_EVENT, |event| {
                    number(event, field::TYPE, kind);
                    number(event, field::TRACK_UUID, uuid);
                    if kind == SLICE_BEGIN {
                        bytes(event, field::NAME, name.as_bytes());
                    }
                    for (name, value) in notes {
                        message(event, field::ANNOTATION, |annotation| {
                            bytes(annotation, annotation::STRING, value.as_bytes());
                            bytes(annotation, annotation::NAME, name.as_bytes());
                        });
                    }
                });
            });
        };
        let mut notes = vec![("address", format!("{:#x}", span.address))];
        notes.extend(span.task.map(|task| ("task", format!("{task:#x}"))));
        notes.push(("end", span.how.name().to_owned()));
        event(SLICE_BEGIN, &span.name, span.start, &notes);
        for (start, end, thread) in &span.all_polls {
            event(SLICE_BEGIN, "poll", *start, &[("thread", pid_tid(self.source, *thread).1.to_string())]);
            event(SLICE_END, "poll", *end, &[]);
        }
        event(SLICE_END, &span.name, span.end, &[]);
    }

    /// Writes the thread's states on a track of their own below its calls. The format's own thread
    /// states need to know which thread was on which processor, which is not recorded.
    fn states(&mut self, thread: ThreadId) -> Result<(), Error> {
        let states = states(self.source, thread)?;
        if states.is_empty() {
            return Ok(());
        }
        let uuid = STATE_TRACK + u64::from(thread.0);
        message(&mut self.buffer, field::PACKET, |packet| {
            number(packet, field::SEQUENCE_ID, 1);
            message(packet, field::TRACK_DESCRIPTOR, |track| {
                number(track, 1, uuid);
                bytes(track, 2, b"thread state");
                number(track, 5, THREAD_TRACK + u64::from(thread.0));
            });
        });
        for State { from, to, state } in states.into_iter().filter(|state| state.state != RunState::Unknown) {
            for (kind, ticks) in [(SLICE_BEGIN, from), (SLICE_END, to)] {
                message(&mut self.buffer, field::PACKET, |packet| {
                    number(packet, field::TIMESTAMP, self.source.to_ns(ticks));
                    number(packet, field::CLOCK, CLOCK_MONOTONIC);
                    number(packet, field::SEQUENCE_ID, 1);
                    message(packet, field::TRACK_EVENT, |event| {
                        number(event, field::TYPE, kind);
                        number(event, field::TRACK_UUID, uuid);
                        if kind == SLICE_BEGIN {
                            bytes(event, field::NAME, state.name().as_bytes());
                        }
                    });
                });
            }
            self.drain(false)?;
        }
        Ok(())
    }

    /// Writes the thread's incidents on the track of its calls.
    fn incidents(&mut self, thread: ThreadId) -> Result<(), Error> {
        for Incident { at, what } in self.source.incidents(thread)?.entries {
            message(&mut self.buffer, field::PACKET, |packet| {
                number(packet, field::TIMESTAMP, self.source.to_ns(at));
                number(packet, field::CLOCK, CLOCK_MONOTONIC);
                number(packet, field::SEQUENCE_ID, 1);
                message(packet, field::TRACK_EVENT, |event| {
                    number(event, field::TYPE, INSTANT);
                    number(event, field::TRACK_UUID, THREAD_TRACK + u64::from(thread.0));
                    bytes(event, field::NAME, what.name().as_bytes());
                    for (name, value) in incidents::fields(&what) {
                        message(event, field::ANNOTATION, |annotation| {
                            bytes(annotation, annotation::STRING, value.as_bytes());
                            bytes(annotation, annotation::NAME, name.as_bytes());
                        });
                    }
                });
            });
            self.drain(false)?;
        }
        Ok(())
    }

    /// Adds the off-CPU times of a call, if there are any.
    fn off(&mut self, call: &Call) {
        for (name, ns) in off_parts(self.source, call) {
            message(&mut self.event, field::ANNOTATION, |annotation| {
                number(annotation, annotation::UINT, ns);
                bytes(annotation, annotation::NAME, name.as_bytes());
            });
        }
    }

    /// Adds the values captured with the event.
    fn annotate(&mut self) {
        for FormattedValue { name, text, json } in std::mem::take(&mut self.values) {
            message(&mut self.event, field::ANNOTATION, |annotation| {
                match json {
                    Value::Bool(truth) => number(annotation, annotation::BOOL, truth.into()),
                    Value::Number(value) => match (value.as_u64(), value.as_i64(), value.as_f64()) {
                        (Some(value), ..) => number(annotation, annotation::UINT, value),
                        (_, Some(value), _) => number(annotation, annotation::INT, value as u64),
                        (.., value) => double(annotation, annotation::DOUBLE, value.unwrap_or(f64::NAN)),
                    },
                    Value::String(value) => bytes(annotation, annotation::STRING, value.as_bytes()),
                    _ => bytes(annotation, annotation::STRING, text.as_bytes()),
                }
                bytes(annotation, annotation::NAME, name.as_bytes());
            });
        }
    }

    /// Begins the thread's sequence, if it has not begun, with the defaults of its packets and its
    /// track.
    #[inline]
    fn begin_sequence(&mut self, thread: ThreadId) {
        if self.sequences[thread.0 as usize].is_none() {
            self.first_packet(thread);
        }
    }

    fn first_packet(&mut self, thread: ThreadId) {
        let (_, now) = self.began();
        self.sequences[thread.0 as usize] = Some(Sequence { interned: Vec::new(), now });
        let uuid = THREAD_TRACK + u64::from(thread.0);
        let (pid, tid) = pid_tid(self.source, thread);
        let comm = self.names.title(thread);
        message(&mut self.buffer, field::PACKET, |packet| {
            number(packet, field::SEQUENCE_ID, sequence(thread));
            number(packet, field::SEQUENCE_FLAGS, STATE_CLEARED);
            message(packet, field::CLOCK_SNAPSHOT, |snapshot| {
                for (id, is_incremental) in [(CLOCK_MONOTONIC, false), (CLOCK_INCREMENTAL, true)] {
                    message(snapshot, 1, |clock| {
                        number(clock, 1, id);
                        number(clock, 2, now);
                        if is_incremental {
                            number(clock, 3, 1);
                        }
                    });
                }
            });
            message(packet, field::DEFAULTS, |defaults| {
                message(defaults, field::DEFAULT_TRACK_EVENT, |event| {
                    number(event, field::TRACK_UUID, uuid);
                });
                number(defaults, field::DEFAULT_CLOCK, CLOCK_INCREMENTAL);
            });
            number(packet, field::FIRST_ON_SEQUENCE, 1);
        });
        // A separate packet, as Perfetto ignores the other contents of one with a clock snapshot.
        message(&mut self.buffer, field::PACKET, |packet| {
            number(packet, field::SEQUENCE_ID, sequence(thread));
            message(packet, field::TRACK_DESCRIPTOR, |track| {
                number(track, 1, uuid);
                message(track, 4, |descriptor| {
                    number(descriptor, 1, u64::from(pid));
                    number(descriptor, 2, u64::from(tid));
                    bytes(descriptor, 5, comm.as_bytes());
                });
            });
        });
    }

    #[inline]
    fn named(&mut self, thread: ThreadId, ticks: u64, site: SiteId, kind: u64) {
        self.begin_sequence(thread);
        self.event.clear();
        number(&mut self.event, field::TYPE, kind);
        number(&mut self.event, field::NAME_IID, u64::from(site.0) + 1);
        self.annotate();
        let Some(Sequence { interned: sent, .. }) = &mut self.sequences[thread.0 as usize] else { return };
        let (word, bit) = (site.0 as usize / 64, 1u64 << (site.0 % 64));
        if sent.len() <= word {
            sent.resize(word + 1, 0);
        }
        let new = sent[word] & bit == 0;
        sent[word] |= bit;
        self.packet(thread, ticks, new.then_some(site));
    }

    /// Writes a packet with the event; `new` is a site whose name the sequence does not have yet.
    #[inline]
    fn packet(&mut self, thread: ThreadId, ticks: u64, new: Option<SiteId>) {
        let time = self.source.to_ns(ticks);
        let Some(Sequence { now, .. }) = &mut self.sequences[thread.0 as usize] else { return };
        self.packet.clear();
        match time.checked_sub(*now) {
            Some(passed) => {
                *now = time;
                number(&mut self.packet, field::TIMESTAMP, passed);
            }
            // The incremental clock cannot run backwards; this packet does not change it.
            None => {
                number(&mut self.packet, field::TIMESTAMP, time);
                number(&mut self.packet, field::CLOCK, CLOCK_MONOTONIC);
            }
        }
        number(&mut self.packet, field::SEQUENCE_ID, sequence(thread));
        bytes(&mut self.packet, field::TRACK_EVENT, &self.event);
        if let Some(site) = new {
            let name = self.names.function(site);
            message(&mut self.packet, field::INTERNED_DATA, |interned| {
                message(interned, 2, |event_name| {
                    number(event_name, 1, u64::from(site.0) + 1);
                    bytes(event_name, 2, name.as_bytes());
                });
            });
        }
        number(&mut self.packet, field::SEQUENCE_FLAGS, NEEDS_STATE);
        bytes(&mut self.buffer, field::PACKET, &self.packet);
    }
}

fn sequence(thread: ThreadId) -> u64 {
    u64::from(thread.0) + 2
}
