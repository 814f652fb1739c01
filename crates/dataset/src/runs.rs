//! Columns whose values repeat from row to row.

/// The values of a column's rows; equal neighbours are stored once.
pub(crate) struct Runs<T> {
    runs: Vec<(T, u32)>,
    rows: usize,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Runs { runs: Vec::new(), rows: 0 }
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// Appends a row.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.add(value, 1);
    }

    /// Appends rows with the same value.
    #[inline]
    pub(crate) fn add(&mut self, value: T, rows: usize) {
        self.rows += rows;
        match self.runs.last_mut() {
            Some((last, count)) if *last == value => *count += rows as u32,
            _ => self.runs.push((value, rows as u32)),
        }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the runs: a value, and the number of rows that have it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (T, usize)> + '_ {
        self.runs.iter().map(|(value, count)| (*value, *count as usize))
    }

    /// Returns the value of each row.
    pub(crate) fn values(&self) -> impl Iterator<Item = T> + '_ {
        self.iter().flat_map(|(value, count)| std::iter::repeat_n(value, count))
    }

    /// Removes all rows and keeps the memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.rows = 0;
    }
}

impl<T: Copy + PartialEq> FromIterator<T> for Runs<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut runs = Runs::default();
        values.into_iter().for_each(|value| runs.push(value));
        runs
    }
}
