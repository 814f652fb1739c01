//! Text tables with aligned columns.

use crate::colours;
use calltap_names::fitted;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Characters between columns.
const GAP: usize = 2;
/// Characters reserved for the last column, which holds names, if its cells are that long.
const NAMES: usize = 32;
/// Characters that names get before columns which the user has named.
const MIN_NAMES: usize = 12;

/// Returns the width of each column in characters.
fn widths(titles: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| {
        let longest = rows.iter().map(|row| colours::width(&row[column])).max().unwrap_or(0);
        longest.max(titles[column].len())
    };
    (0..titles.len()).map(width).collect()
}

/// The lines of a table on a terminal.
pub(crate) struct Fitting<'a> {
    /// Characters of a line; None: no limit.
    pub(crate) width: Option<usize>,
    /// Groups of columns that are left out where names do not fit, the first one first.
    pub(crate) leavable: &'a [Leavable],
    /// Flags that show all columns.
    pub(crate) flags: &'a str,
}

/// A group of columns that may be left out.
pub(crate) struct Leavable {
    columns: Vec<usize>,
    /// Whether the user has named them.
    is_named: bool,
}

impl Leavable {
    /// Returns columns that are left out where names do not fit, or where different names would
    /// look the same.
    pub(crate) fn usual(columns: Vec<usize>) -> Leavable {
        Leavable { columns, is_named: false }
    }

    /// Returns columns that the user has named.
    pub(crate) fn named(columns: Vec<usize>) -> Leavable {
        Leavable { columns, is_named: true }
    }
}

/// Whether names that differ still differ when they are [fitted].
fn are_told_apart(rows: &[Vec<String>], room: usize) -> bool {
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row.last()).map(String::as_str).collect();
    let mut shown = BTreeSet::new();
    names.iter().all(|name| shown.insert(colours::map(name, |name| fitted(name, room))))
}

/// Writes a table as [`write`](fn@write) does. Where names do not fit, columns are left out, and a
/// last line names them. Names that are still too long are [fitted].
pub(crate) fn write_fitting(
    out: &mut dyn Write,
    titles: &[&str],
    numbers: usize,
    rows: Vec<Vec<String>>,
    Fitting { width, leavable, flags }: Fitting<'_>,
) -> io::Result<()> {
    let widths = widths(titles, &rows);
    let longest = widths.last().copied().unwrap_or(0);
    let mut used: usize = widths.iter().map(|width| width + GAP).sum::<usize>() - longest;
    let mut left_out: Vec<usize> = Vec::new();
    for Leavable { columns, is_named } in leavable {
        let Some(room) = width.map(|width| (width + GAP).saturating_sub(used)) else { break };
        let wanted = if *is_named { MIN_NAMES } else { NAMES };
        if room >= longest || room >= wanted && (*is_named || are_told_apart(&rows, room)) {
            break;
        }
        used -= columns.iter().map(|at| widths[*at] + GAP).sum::<usize>();
        left_out.extend(columns);
    }
    left_out.sort_unstable();
    let stays = |at: &usize| !left_out.contains(at);
    let keep = |row: Vec<String>| -> Vec<String> {
        row.into_iter().enumerate().filter(|(at, _)| stays(at)).map(|(_, cell)| cell).collect()
    };
    let kept: Vec<&str> = (0..titles.len()).filter(stays).map(|at| titles[at]).collect();
    let mut rows: Vec<Vec<String>> = rows.into_iter().map(keep).collect();
    if let Some(width) = width {
        let room = (width + GAP).saturating_sub(used);
        let names = rows.iter_mut().filter_map(|row| row.last_mut());
        names.for_each(|name| *name = colours::map(name, |name| fitted(name, room)));
    }
    write(out, &kept, (0..numbers).filter(stays).count(), &rows)?;
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(|at| titles[*at].to_lowercase()).collect();
        writeln!(out, "# no room for {} ({flags})", names.join(", "))?;
    }
    Ok(())
}

/// Cuts the cells of the last but one column so that the last one has half of the free characters
/// in lines of `width`, or as many as it needs.
pub(crate) fn share(rows: &mut [Vec<String>], width: usize) {
    let Some(count) = rows.first().map(Vec::len) else { return };
    let widths = widths(&vec![""; count], rows);
    let [before @ .., names, last] = &widths[..] else { return };
    let free = width.saturating_sub(before.iter().map(|width| width + GAP).sum::<usize>() + GAP);
    let most = free.saturating_sub(*last).max(free / 2);
    if *names <= most || most == 0 {
        return;
    }
    for name in rows.iter_mut().filter_map(|row| row.iter_mut().nth_back(1)) {
        if let Some((end, _)) = name.char_indices().nth(most - 1).filter(|_| name.chars().count() > most) {
            name.truncate(end);
            name.push('\u{2026}');
        }
    }
}

/// Writes titles and rows, the first `numbers` columns aligned to the right.
pub(crate) fn write(
    out: &mut dyn Write,
    titles: &[&str],
    numbers: usize,
    rows: &[Vec<String>],
) -> io::Result<()> {
    let widths = widths(titles, rows);
    let mut line = |cells: &[&str]| -> io::Result<()> {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            if column > 0 {
                text.push_str(&" ".repeat(GAP));
            }
            let padding = width.saturating_sub(colours::width(cell));
            if column < numbers {
                text.push_str(&" ".repeat(padding));
            }
            text.push_str(cell);
            if column >= numbers && column + 1 < cells.len() {
                text.push_str(&" ".repeat(padding));
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

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn two_columns_of_names_share_a_line() {
        let check = |width: usize, names: [&str; 2], expected: &str| {
            let mut rows = vec![vec!["1".to_owned(), names[0].to_owned(), names[1].to_owned()]];
            share(&mut rows, width);
            assert_eq!(rows[0][1], expected);
        };
        check(20, ["abcdefgh", "abcdefgh"], "abcdef\u{2026}");
        check(25, ["abcdefgh", "abcdefgh"], "abcdefgh");
        check(20, ["abcdefghijklmno", "abc"], "abcdefghijk\u{2026}");
        check(20, ["\u{e4}bcdefghijklmno", "abcdefghijkl"], "\u{e4}bcdef\u{2026}");
        check(3, ["abc", "abc"], "abc");
    }
}
