//! Summary of an import.

use calltap_analysis::units::counted;

/// Counts of imported and other events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Number of events of the trace: entries and returns of functions and system calls.
    pub events: u64,
    /// Number of functions and system calls.
    pub functions: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of events of all kinds that were lost before they reached the file.
    pub lost: u64,
    /// Whether some losses are of an unknown number of events, and count as one.
    pub lost_more: bool,
    /// Kinds of imported events with their numbers, most first.
    pub shown: Vec<(String, u64)>,
    /// Kinds of events that are not imported with their numbers, most first.
    pub not_shown: Vec<(String, u64)>,
    /// Names of instances whose buffers are not imported.
    pub other_buffers: Vec<String>,
}

/// Maximum number of kinds named in a sentence.
const NAMED: usize = 4;

impl Summary {
    /// Returns notes for the user, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        if !self.not_shown.is_empty() {
            let events: u64 = self.not_shown.iter().map(|(_, count)| count).sum();
            let named: Vec<String> =
                self.not_shown.iter().take(NAMED).map(|(name, count)| format!("{name} {count}")).collect();
            let more = if self.not_shown.len() > NAMED { ", ..." } else { "" };
            let kinds = self.not_shown.len();
            let (events, kinds) = (counted(events, "event"), counted(kinds as u64, "kind"));
            all.push(format!("{events} of {kinds} not shown: {}{more}", named.join(", ")));
        }
        if self.lost > 0 {
            let least = if self.lost_more { "at least " } else { "" };
            let lost = counted(self.lost, "event");
            all.push(format!("{least}{lost} of all kinds lost in the kernel's buffers: each counts as an entry that was lost"));
        }
        if !self.other_buffers.is_empty() {
            all.push(format!("not imported: the buffers of the instances {}", self.other_buffers.join(", ")));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_events_are_summarised() {
        let kinds = |counts: &[u64]| counts.iter().map(|count| (format!("k{count}"), *count)).collect();
        let summary = Summary { not_shown: kinds(&[7, 4, 1]), ..Summary::default() };
        assert_eq!(summary.sentences(), ["12 events of 3 kinds not shown: k7 7, k4 4, k1 1"]);
        let summary = Summary { not_shown: kinds(&[1]), lost: 2, lost_more: true, ..Summary::default() };
        assert_eq!(summary.sentences()[0], "1 event of 1 kind not shown: k1 1");
        assert!(summary.sentences()[1].starts_with("at least 2 events"));
        assert_eq!(Summary::default().sentences(), [""; 0]);
    }
}
