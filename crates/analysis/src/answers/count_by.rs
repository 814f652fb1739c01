//! Call counts of functions, per caller, thread or value.

use super::{AROUND, By, EndedCall, Function, QueryContext, Question};
use crate::columns;
use crate::units::{counted, one_line};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Calls of each function, per caller, thread or value.
pub struct CountBy {
    by: By,
    limit: Option<usize>,
    /// Names of the values; none: all.
    items: Vec<String>,
    rows: HashMap<(Function, Option<u32>), u64>,
    /// Number of calls without a recorded caller: the enclosing traced function counts as their
    /// caller.
    around: u64,
    width: Option<usize>,
}

impl CountBy {
    /// Shows at most `limit` rows. `items`: names of the values, or none for all.
    pub fn new(by: By, limit: Option<usize>, items: Vec<String>) -> CountBy {
        CountBy { by, limit, items, rows: HashMap::new(), around: 0, width: None }
    }

    /// Leaves room for the last column in lines of `width` characters.
    pub fn fitting(mut self, width: Option<usize>) -> CountBy {
        self.width = width;
        self
    }

    /// Returns the rows, most frequent first.
    fn rows<'k>(&self, known: &'k QueryContext) -> Vec<(Function, &'k str, u64)> {
        let word = |who: Option<u32>| who.map_or("[unknown]", |who| known.word(who));
        let mut rows: Vec<_> =
            self.rows.iter().map(|((function, who), calls)| (*function, word(*who), *calls)).collect();
        let name = |function: Function| (known.name(function), known.module(function));
        rows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (name(a.0), a.1).cmp(&(name(b.0), b.1))));
        rows
    }

    fn title(&self) -> (&'static str, &'static str) {
        match self.by {
            By::Function | By::Value => ("VALUE", "value"),
            By::Thread => ("THREAD", "thread"),
            By::Caller => ("CALLER", "caller"),
        }
    }
}

impl Question for CountBy {
    fn is_about(&self, value: &str) -> bool {
        self.items.is_empty() || self.items.iter().any(|item| item == value)
    }

    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        if self.by == By::Caller {
            self.around += u64::from(!ended.has_caller());
        }
        let who = known.who(self.by, ended);
        *self.rows.entry((ended.function, who)).or_default() += 1;
    }

    fn marked(&mut self, known: &mut QueryContext, call: &EndedCall<'_>) -> bool {
        self.ended(known, call);
        true
    }

    fn text(&self, known: &QueryContext) -> String {
        let rows = self.rows(known);
        let shown = self.limit.unwrap_or(rows.len()).min(rows.len());
        let row = |(function, who, calls): &(Function, &str, u64)| {
            let (module, name) = (known.module(*function), known.name(*function));
            let calls = known.calls(*function, *calls);
            vec![calls, one_line(module).into(), one_line(name).into(), one_line(who).into()]
        };
        let mut cells: Vec<Vec<String>> = rows[..shown].iter().map(row).collect();
        if let Some(width) = self.width {
            columns::share(&mut cells, width);
        }
        let mut out = if self.around > 0 { AROUND.as_bytes().to_vec() } else { Vec::new() };
        // Writing to a vector cannot fail.
        let _ = columns::write(&mut out, &["CALLS", "MODULE", "FUNCTION", self.title().0], 1, &cells);
        let mut text = String::from_utf8_lossy(&out).into_owned();
        if shown < rows.len() {
            text += &format!("# {} not shown\n", counted((rows.len() - shown) as u64, "row"));
        }
        text
    }

    fn json(&self, known: &QueryContext) -> Value {
        let row = |(function, who, calls): &(Function, &str, u64)| {
            let mut object = json!({ "function": known.name(*function), "module": known.module(*function), "calls": calls });
            object[self.title().1] = (*who).into();
            object
        };
        let rows: Vec<Value> =
            self.rows(known).iter().take(self.limit.unwrap_or(usize::MAX)).map(row).collect();
        json!({ "functions": rows, "traced_callers_only": self.around })
    }
}
