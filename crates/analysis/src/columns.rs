//! Tables for people.

use std::io::{self, Write};

/// Writes titles and rows, the first `numbers` columns to the right.
pub(crate) fn write(
    out: &mut dyn Write,
    titles: &[&str],
    numbers: usize,
    rows: &[Vec<String>],
) -> io::Result<()> {
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            longest.max(titles[column].len())
        })
        .collect();
    let mut line = |cells: &[&str]| -> io::Result<()> {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            if column > 0 {
                text.push_str("  ");
            }
            if column < numbers {
                text.push_str(&format!("{cell:>width$}"));
            } else if column + 1 < cells.len() {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(cell);
            }
        }
        writeln!(out, "{text}")
    };
    line(titles)?;
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}
