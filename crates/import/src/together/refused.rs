//! Reasons why recordings cannot be merged.

/// A reason why recordings are not merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The clock of a recording is a counter: its events have an order but no times.
    #[error("{0}: its events are counted and have no times (--clock counter): record it with another clock")]
    Counter(String),
    /// The clock of a recording cannot be related to others.
    #[error(
        "{name}: {clock} cannot be related to the clocks of other recordings: record it with 'trace-cmd record -C mono' or '-C x86-tsc'"
    )]
    Clock {
        /// The recording.
        name: String,
        /// Clock of the trace.
        clock: String,
    },
    /// The times of a recording are ticks, and those of the others are not.
    #[error(
        "{0}: its times are ticks of the processor, which no other of the recordings compares with CLOCK_MONOTONIC: record it with 'trace-cmd record -C mono', or merge it with a recording that calltap made at that time with '--clock tsc'"
    )]
    Ticks(String),
    /// The recordings come from two machines.
    #[error(
        "{name} was recorded on {host} and {first} on {first_host}: the clocks of two machines cannot be related; merge recordings of one"
    )]
    Machines {
        /// The recording.
        name: String,
        /// Machine of the recording.
        host: String,
        /// The first recording.
        first: String,
        /// Machine of the first recording.
        first_host: String,
    },
    /// The machine's clocks were restarted between the recordings.
    #[error(
        "{name} and {first} count their times from different moments: the machine was started or suspended, or its time was set, in between; record them at the same time"
    )]
    Starts {
        /// The recording.
        name: String,
        /// The first recording.
        first: String,
    },
    /// A recording does not name its clock.
    #[error("{0}: it does not say by which clock it was recorded: the file is damaged")]
    NoSession(String),
    /// A trace cannot be read, or the new one cannot be written.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
}
