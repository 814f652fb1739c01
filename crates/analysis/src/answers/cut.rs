//! Calls without a duration, by their endings.

use crate::units::count;
use calltap_trace::Ending;
use serde_json::{Map, Value};

/// The endings that leave a call without a duration, in the order of reports.
const ENDINGS: [Ending; 7] = [
    Ending::Left,
    Ending::Running,
    Ending::Detached,
    Ending::SwitchedOff,
    Ending::ThreadEnded,
    Ending::Lost,
    Ending::Outside,
];

/// Numbers of calls by ending.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CutCalls([u64; ENDINGS.len()]);

impl CutCalls {
    pub(super) fn add(&mut self, ending: Ending) {
        let place = ENDINGS.iter().position(|known| *known == ending);
        place.into_iter().for_each(|place| self.0[place] += 1);
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ENDINGS.iter().map(|ending| ending.name()).zip(self.0).filter(|(_, number)| *number > 0)
    }

    /// Returns the numbers as text, `; of them without a duration: 2 left, 1 open at the end`;
    /// empty if there are none.
    pub(super) fn text(&self) -> String {
        let number = |(name, number): (&str, u64)| {
            // A program that has ended runs no more: its calls were open at its end.
            let name = if name == Ending::Running.name() { "open at the end" } else { name };
            format!("{} {}", count(number), name.replace('_', " "))
        };
        let numbers: Vec<String> = self.numbers().map(number).collect();
        if numbers.is_empty() {
            String::new()
        } else {
            format!("; of them without a duration: {}", numbers.join(", "))
        }
    }

    /// Returns the numbers by the names of the endings.
    pub(super) fn json(&self) -> Value {
        let numbers = self.numbers().map(|(name, number)| (name.to_owned(), number.into()));
        Value::Object(numbers.collect::<Map<String, Value>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_duration_are_counted_by_ending() {
        let mut cut = CutCalls::default();
        assert_eq!((cut.text(), cut.json()), (String::new(), serde_json::json!({})));
        for ending in [Ending::Running, Ending::Left, Ending::ThreadEnded, Ending::Left] {
            cut.add(ending);
        }
        assert_eq!(cut.total(), 4);
        assert_eq!(cut.text(), "; of them without a duration: 2 left, 1 open at the end, 1 thread ended");
        assert_eq!(cut.json(), serde_json::json!({ "left": 2, "running": 1, "thread_ended": 1 }));
    }
}
