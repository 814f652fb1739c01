//! Lookup of functions by address.

use crate::function::Function;

/// Finds the functions around an address.
///
/// Callers pass addresses nearly in order, so the neighbours of the last answer are tried before
/// the list is searched. For a whole program, searches would cost as much as all other work on its
/// functions.
pub(crate) struct Lookup<'a> {
    functions: &'a [Function],
    after: usize,
}

impl<'a> Lookup<'a> {
    /// Creates a lookup. `functions` are in address order.
    pub(crate) fn new(functions: &'a [Function]) -> Self {
        Lookup { functions, after: 0 }
    }

    /// Returns the index of the first function behind `address`.
    pub(crate) fn after(&mut self, address: u64) -> usize {
        let behind = |index: usize| self.functions.get(index).is_none_or(|next| next.address.0 > address);
        let is_answer = |&index: &usize| behind(index) && (index == 0 || !behind(index - 1));
        let near = (self.after..=self.after.saturating_add(1)).find(is_answer);
        let search = || self.functions.partition_point(|function| function.address.0 <= address);
        self.after = near.unwrap_or_else(search);
        self.after
    }

    /// Returns the last function that begins at `address` or in front of it.
    pub(crate) fn before(&mut self, address: u64) -> Option<(usize, &'a Function)> {
        let index = self.after(address).checked_sub(1)?;
        Some((index, self.functions.get(index)?))
    }

    /// Returns the function or part that contains `address`, according to sizes.
    pub(crate) fn around(&mut self, address: u64) -> Option<(usize, &'a Function)> {
        self.before(address).filter(|(index, _)| address < end(self.functions, *index))
    }

    /// Returns the function that begins at `address`.
    pub(crate) fn at(&mut self, address: u64) -> Option<(usize, &'a Function)> {
        self.before(address).filter(|(_, function)| function.address.0 == address)
    }
}

/// Returns the index of the function or part that contains `address`, according to sizes.
pub(crate) fn index_at(functions: &[Function], address: u64) -> Option<usize> {
    let n = functions.partition_point(|function| function.address.0 <= address).checked_sub(1)?;
    (address < end(functions, n)).then_some(n)
}

/// Address behind a function's last byte.
pub(crate) fn end(functions: &[Function], n: usize) -> u64 {
    let next = functions.get(n + 1).map_or(u64::MAX, |next| next.address.0);
    let function = &functions[n];
    if function.size == 0 { next } else { next.min(function.address.0.saturating_add(function.size)) }
}
