//! Writes a report as text, CSV and JSON.

use super::{Column, Format, Report, Row};
use crate::bytes::push_csv;
use crate::columns::{self, Fitting, Leavable};
use crate::head::disabled;
use crate::head::facts::List;
use crate::units::{counted, one_line};
use std::io::{self, Write};

impl Report {
    /// Writes the report in `format`.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => self.write_text(out),
            Format::Csv => self.write_csv(out),
            Format::Json => self.write_json(out),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.head.as_bytes())?;
        let mut shown: Vec<Column> = if self.timed { self.columns.clone() } else { vec![Column::Calls] };
        if self.timed && !self.chosen && self.is_usual() {
            let added = Column::added(self.switched, &self.rows).into_iter();
            shown.extend(added.filter(|column| !self.columns.contains(column)));
        }
        let mut titles: Vec<String> = shown.iter().map(|column| column.title()).collect();
        titles.extend(self.by_thread.then(|| "THREAD".to_owned()));
        titles.extend(self.lines.then(|| "SOURCE".to_owned()));
        titles.extend(["MODULE", "FUNCTION"].map(str::to_owned));
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row, &shown)).collect();
        let place = |column: &Column| titles.iter().position(|title| *title == column.title());
        let usual = |column: Column| Some(Leavable::usual(vec![place(&column)?]));
        let named = |column: &Column| Some(Leavable::named(vec![place(column)?]));
        let leavable: Vec<Leavable> = if self.chosen {
            let others = shown.iter().rev().filter(|column| **column != self.sort);
            usual(Column::Module).into_iter().chain(others.filter_map(named)).collect()
        } else {
            let columns = Column::leavable().into_iter();
            columns.filter(|column| *column != self.sort).filter_map(usual).collect()
        };
        let fitting = Fitting { width: self.width, leavable: &leavable, flags: "--columns, --full-names" };
        columns::write_fitting(out, &titles, shown.len(), cells, fitting)?;
        if self.cut > 0 {
            writeln!(out, "# {} not shown", counted(self.cut, "function"))?;
        }
        Ok(())
    }

    fn cells(&self, row: &Row, shown: &[Column]) -> Vec<String> {
        let cell = |column: &Column| {
            let is_partial = row.disabled_by_limit && column.adds_up();
            disabled::at_least(is_partial, column.cell(row))
        };
        let mut cells: Vec<String> = shown.iter().map(cell).collect();
        if let Some((comm, tid)) = &row.thread {
            cells.push(one_line(&format!("{comm}-{tid}")).into_owned());
        }
        if self.lines {
            cells.push(row.source.as_deref().map_or("?".to_owned(), |source| one_line(source).into_owned()));
        }
        let paint = |text| self.colours.paint(&row.module, one_line(text)).into_owned();
        cells.extend([paint(&row.module), paint(&row.function)]);
        cells
    }

    fn is_usual(&self) -> bool {
        self.columns.starts_with(&Column::usual())
    }

    /// Returns the columns of CSV and JSON. Among the default ones the calls come first: readers of
    /// these forms may rely on that order.
    fn keys(&self) -> Vec<(Column, String)> {
        let mut columns = self.columns.clone();
        if self.is_usual() {
            columns[..3].rotate_right(1);
        }
        columns.into_iter().map(|column| (column, column.key())).collect()
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let thread = if self.by_thread { "thread,tid," } else { "" };
        let keys = self.keys();
        let titles: Vec<&str> = keys.iter().map(|(_, key)| key.as_str()).collect();
        let source = if self.lines { "source," } else { "" };
        writeln!(out, "{thread}function,module,{source}{}", titles.join(","))?;
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
            if self.lines {
                line.push(b',');
                push_csv(&mut line, row.source.as_deref().unwrap_or_default());
            }
            for (column, _) in &keys {
                match column.number(row) {
                    Some(number) => write!(line, ",{number}")?,
                    None => line.push(b','),
                }
            }
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut keys = self.keys();
        if self.is_usual() {
            let added = Column::added_to_json(&self.rows).into_iter();
            let added = added.filter(|column| !self.columns.contains(column));
            keys.extend(added.map(|column| (column, column.key())));
        }
        let mut list = List::begin(out, ("calltap_report", "functions"), &self.facts)?;
        for row in &self.rows {
            let out = list.next()?;
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            write!(out, "{{\"function\":{},\"module\":{}", quoted(&row.function), quoted(&row.module))?;
            if let Some((comm, tid)) = &row.thread {
                write!(out, ",\"thread\":{},\"tid\":{tid}", quoted(comm))?;
            }
            if self.lines {
                write!(out, ",\"source\":{}", serde_json::Value::from(row.source.as_deref()))?;
            }
            for (column, key) in &keys {
                match column.number(row) {
                    Some(number) => write!(out, ",\"{key}\":{number}")?,
                    None => write!(out, ",\"{key}\":null")?,
                }
            }
            if row.disabled_by_limit {
                out.write_all(b",\"disabled_by_limit\":true")?;
            }
            out.write_all(b"}")?;
        }
        list.end()
    }
}
