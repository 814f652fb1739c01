//! A report as text, CSV and JSON.

use super::{Format, Report, Row};
use crate::bytes::push_csv;
use crate::columns;
use crate::units::{count, counted, duration, one_line};
use serde::Serialize;
use std::io::{self, Write};

impl Report {
    /// Writes it in `format`.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => self.write_text(out),
            Format::Csv => self.write_csv(out),
            Format::Json => self.write_json(out),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.head.as_bytes())?;
        let mut titles = Vec::new();
        if self.timed {
            titles.extend(["TOTAL", "SELF", "CALLS", "AVG", "MIN", "MAX", "STDEV"]);
        } else {
            titles.push("CALLS");
        }
        let numbers = titles.len();
        if self.by_thread {
            titles.push("THREAD");
        }
        titles.extend(["MODULE", "FUNCTION"]);
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        columns::write(out, &titles, numbers, &cells)?;
        if self.cut > 0 {
            writeln!(out, "# {} not shown", counted(self.cut, "function"))?;
        }
        Ok(())
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = Vec::new();
        if self.timed {
            let time = |ns: fn(&super::Times) -> u64| {
                row.times.as_ref().map_or_else(|| "-".to_owned(), |t| duration(ns(t)))
            };
            cells.extend([
                time(|t| t.total_ns),
                time(|t| t.self_ns),
                count(row.calls),
                time(|t| t.avg_ns),
                time(|t| t.min_ns),
                time(|t| t.max_ns),
                time(|t| t.stdev_ns),
            ]);
        } else {
            cells.push(count(row.calls));
        }
        if let Some((comm, tid)) = &row.thread {
            cells.push(one_line(&format!("{comm}-{tid}")).into_owned());
        }
        cells.extend([one_line(&row.module).into_owned(), one_line(&row.function).into_owned()]);
        cells
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let thread = if self.by_thread { "thread,tid," } else { "" };
        writeln!(out, "{thread}function,module,calls,total_ns,self_ns,avg_ns,min_ns,max_ns,stdev_ns")?;
        let mut line = Vec::new();
        for row in &self.rows {
            line.clear();
            if let Some((comm, tid)) = &row.thread {
                push_csv(&mut line, comm);
                write!(line, ",{tid},")?;
            }
            push_csv(&mut line, &row.function);
            line.push(b',');
            push_csv(&mut line, &row.module);
            match row.times {
                Some(t) => writeln!(
                    line,
                    ",{},{},{},{},{},{},{}",
                    row.calls, t.total_ns, t.self_ns, t.avg_ns, t.min_ns, t.max_ns, t.stdev_ns
                )?,
                None => writeln!(line, ",{},,,,,,", row.calls)?,
            }
            out.write_all(&line)?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"[")?;
        for (at, row) in self.rows.iter().enumerate() {
            let time = |ns: fn(&super::Times) -> u64| row.times.as_ref().map(ns);
            let object = Object {
                function: &row.function,
                module: &row.module,
                thread: row.thread.as_ref().map(|(comm, _)| comm.as_str()),
                tid: row.thread.as_ref().map(|(_, tid)| *tid),
                calls: row.calls,
                total_ns: time(|t| t.total_ns),
                self_ns: time(|t| t.self_ns),
                avg_ns: time(|t| t.avg_ns),
                min_ns: time(|t| t.min_ns),
                max_ns: time(|t| t.max_ns),
                stdev_ns: time(|t| t.stdev_ns),
            };
            out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &object)?;
        }
        writeln!(out, "{}]", if self.rows.is_empty() { "" } else { "\n" })
    }
}

/// A row in JSON, keys in this order.
#[derive(Serialize)]
struct Object<'a> {
    function: &'a str,
    module: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    calls: u64,
    total_ns: Option<u64>,
    self_ns: Option<u64>,
    avg_ns: Option<u64>,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    stdev_ns: Option<u64>,
}
