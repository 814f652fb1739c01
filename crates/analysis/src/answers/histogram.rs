//! Histograms of argument and result values: one for each value that is read, optionally per thread
//! or caller.

use super::{AROUND, By, EndedCall, Function, QueryContext, Question};
use crate::units::{count, counted, one_line};
use crate::values::FormattedValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Stars of the longest bar.
const BAR: usize = 32;

/// How values are grouped into buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widths {
    /// Powers of two, on both sides of zero.
    Log2,
    /// Buckets of equal width.
    Linear(u64),
    /// A bucket for each value.
    Each,
}

impl Widths {
    /// Returns the lowest value of the bucket that holds `value`. Buckets sort by it.
    fn place(self, value: i128) -> i128 {
        match self {
            Widths::Each => value,
            Widths::Linear(width) => value.div_euclid(i128::from(width)) * i128::from(width),
            Widths::Log2 if value > 0 => 1 << value.ilog2(),
            Widths::Log2 if value == 0 => 0,
            Widths::Log2 => 1 - (2 << (-value).ilog2()),
        }
    }

    /// Returns the highest value of the bucket whose lowest value is `place`.
    fn last(self, place: i128) -> i128 {
        match self {
            Widths::Each => place,
            Widths::Linear(width) => place + i128::from(width) - 1,
            Widths::Log2 if place > 0 => 2 * place - 1,
            Widths::Log2 if place == 0 => 0,
            Widths::Log2 => -((1 - place) / 2),
        }
    }
}

/// The values of one key.
#[derive(Default)]
struct ValueCounts {
    numbers: BTreeMap<i128, u64>,
    /// Texts, and values that are not integers.
    texts: BTreeMap<String, u64>,
    sum: i128,
    range: Option<(i128, i128)>,
    unreadable: u64,
}

/// Maximum number of distinct texts of a row; further ones count as `(others)`.
const TEXTS: usize = 1 << 14;
/// Maximum number of distinct numbers of a row; further ones count as `(others)`.
const NUMBERS: usize = 1 << 16;

impl ValueCounts {
    fn add(&mut self, shown: &FormattedValue, widths: Widths) {
        let number = shown.json.as_i64().map(i128::from).or(shown.json.as_u64().map(i128::from));
        match (number, &shown.json) {
            (Some(number), _) => {
                self.sum = self.sum.saturating_add(number);
                let (min, max) = self.range.unwrap_or((number, number));
                self.range = Some((min.min(number), max.max(number)));
                let place = widths.place(number);
                if self.numbers.len() < NUMBERS || self.numbers.contains_key(&place) {
                    *self.numbers.entry(place).or_default() += 1;
                } else {
                    *self.texts.entry("(others)".to_owned()).or_default() += 1;
                }
            }
            (None, Value::Null) => self.unreadable += 1,
            (None, _) => {
                let room = self.texts.len() < TEXTS || self.texts.contains_key(&shown.text);
                let text = if room { shown.text.clone() } else { "(others)".to_owned() };
                *self.texts.entry(text).or_default() += 1;
            }
        }
    }

    fn values(&self) -> u64 {
        self.numbers.values().chain(self.texts.values()).sum::<u64>()
    }

    fn average(&self) -> Option<f64> {
        let numbers: u64 = self.numbers.values().sum();
        (numbers > 0 && !self.texts.contains_key("(others)")).then(|| self.sum as f64 / numbers as f64)
    }
}

/// Key of a row: the function, the name of the value, and the number of the thread or caller.
type Key = (Function, String, Option<u32>);

/// The answer to `histogram`.
pub struct Histogram {
    widths: Widths,
    by: By,
    /// Names of the values; none: all.
    items: Vec<String>,
    rows: HashMap<Key, ValueCounts>,
    around: u64,
}

impl Histogram {
    /// Makes an answer about the values with these names, or about all if there are none.
    pub fn new(widths: Widths, by: By, items: Vec<String>) -> Histogram {
        Histogram { widths, by, items, rows: HashMap::new(), around: 0 }
    }

    /// Returns the rows, those with most values first.
    fn rows<'k>(&'k self, known: &'k QueryContext) -> Vec<(&'k Key, &'k ValueCounts)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let name =
            |key: &Key| (known.name(key.0).to_owned(), key.1.clone(), key.2.map(|who| known.word(who)));
        rows.sort_by(|a, b| b.1.values().cmp(&a.1.values()).then_with(|| name(a.0).cmp(&name(b.0))));
        rows
    }

    fn bars(&self, row: &ValueCounts, text: &mut String) {
        let most = row.numbers.values().chain(row.texts.values()).copied().max().unwrap_or(1);
        let mut line = |label: &str, number: u64| {
            let stars = (u128::from(number) * BAR as u128).div_ceil(u128::from(most)) as usize;
            *text += &format!("{label:>32} {:>12} |{:<BAR$}|\n", count(number), "*".repeat(stars));
        };
        for (place, number) in &row.numbers {
            match self.widths.last(*place) {
                last if last == *place => line(&place.to_string(), *number),
                last => line(&format!("{place} .. {last}"), *number),
            }
        }
        let mut texts: Vec<_> = row.texts.iter().collect();
        texts.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        texts.into_iter().for_each(|(value, number)| line(&one_line(value), *number));
    }
}

impl Question for Histogram {
    fn is_about(&self, value: &str) -> bool {
        self.items.is_empty() || self.items.iter().any(|item| item == value)
    }

    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        if self.by == By::Caller {
            self.around += u64::from(!ended.has_caller());
        }
        let who = if self.by == By::Value { None } else { known.who(self.by, ended) };
        for shown in ended.arguments.iter().chain(ended.results) {
            let row = self.rows.entry((ended.function, shown.name.clone(), who)).or_default();
            row.add(shown, self.widths);
        }
    }

    fn marked(&mut self, known: &mut QueryContext, call: &EndedCall<'_>) -> bool {
        self.ended(known, call);
        true
    }

    fn text(&self, known: &QueryContext) -> String {
        let mut text = if self.around > 0 { AROUND.to_owned() } else { String::new() };
        for ((function, item, who), row) in self.rows(known) {
            let who = match (self.by, who) {
                (By::Function | By::Value, _) => String::new(),
                (By::Thread, who) => format!(", thread {}", who.map_or("[unknown]", |who| known.word(who))),
                (By::Caller, who) => {
                    format!(", called by {}", who.map_or("[unknown]", |who| known.word(who)))
                }
            };
            let values = counted(row.values(), "value");
            let mut heading = format!("{}@{item}{who}: {values}", known.name(*function));
            if let (Some(average), Some((min, max))) = (row.average(), row.range) {
                heading += &format!(", avg {average:.1}, min {min}, max {max}, sum {}", row.sum);
            }
            if row.unreadable > 0 {
                heading += &format!("; {} unreadable", count(row.unreadable));
            }
            text += &one_line(&heading);
            text += "\n";
            self.bars(row, &mut text);
            text += "\n";
        }
        if self.rows.is_empty() { "no values\n".to_owned() } else { text }
    }

    fn json(&self, known: &QueryContext) -> Value {
        let row = |((function, item, who), row): (&Key, &ValueCounts)| {
            let numbers: Vec<Value> = row
                .numbers
                .iter()
                .map(|(place, number)| json!({ "from": whole(*place), "last": whole(self.widths.last(*place)), "values": number }))
                .collect();
            let texts: Vec<Value> =
                row.texts.iter().map(|(value, number)| json!({ "value": value, "values": number })).collect();
            let mut object = json!({
                "function": known.name(*function),
                "module": known.module(*function),
                "item": item,
                "values": row.values(),
                "unread_values": row.unreadable,
                "min": row.range.map(|range| whole(range.0)),
                "max": row.range.map(|range| whole(range.1)),
                "avg": row.average(),
                "buckets": numbers,
                "texts": texts,
            });
            let who = who.map_or("[unknown]", |who| known.word(who));
            match self.by {
                By::Function | By::Value => {}
                By::Thread => object["thread"] = who.into(),
                By::Caller => object["caller"] = who.into(),
            }
            object
        };
        let rows: Vec<Value> = self.rows(known).into_iter().map(row).collect();
        json!({ "histograms": rows, "traced_callers_only": self.around })
    }
}

/// Returns an integer of JSON, clamped to what JSON integers here can hold.
fn whole(number: i128) -> Value {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => number.into(),
        (_, Ok(number)) => number.into(),
        _ if number < 0 => i64::MIN.into(),
        _ => u64::MAX.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_do_not_overlap() {
        let edges = (0..63).flat_map(|bit| [(1i128 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let edges: Vec<i128> = edges
            .flat_map(|value| [value, -value])
            .chain([i128::from(u64::MAX), i128::from(i64::MIN)])
            .collect();
        for widths in [Widths::Log2, Widths::Linear(1), Widths::Linear(100), Widths::Each] {
            for value in &edges {
                let (first, last) = (widths.place(*value), widths.last(widths.place(*value)));
                assert!(first <= *value && *value <= last, "{value} in {first}..={last}, {widths:?}");
                assert_eq!((widths.place(first), widths.place(last)), (first, first), "{widths:?}");
            }
        }
    }
}
