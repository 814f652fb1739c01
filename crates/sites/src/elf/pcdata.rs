//! Go's tables of a function's code (pcdata, funcdata): whether it is assembly, and where a signal
//! may preempt its goroutine.

/// Flag of a function in assembly.
const ASSEMBLY: u8 = 4;
/// Number of the table of unsafe points, and of that of inlined functions.
const UNSAFE_POINTS: usize = 0;
const INLINED: usize = 2;
/// Value of every table where it says nothing.
const NONE: i32 = -1;
/// Unsafe point: a goroutine is not preempted there.
const UNSAFE: i32 = -2;
/// A goroutine that is preempted there resumes at the beginning of the function.
const RESTART_AT_ENTRY: i32 = -5;
/// Number of the map of pointers among local variables, which compiled functions have.
pub(super) const LOCALS: usize = 1;
/// Position of a missing map.
const NO_MAP: u32 = u32::MAX;
/// Maximum number of tables of one function.
pub(super) const MAX_TABLES: usize = 16;
/// Beginnings of the names of functions in which the runtime preempts no goroutine by a signal
/// (`isAsyncSafePoint` in `runtime/preempt.go`), in all versions. Some know `internal/runtime/` as
/// well.
const NEVER_PREEMPTED: [&[u8]; 3] = [b"runtime.", b"reflect.", b"runtime/internal/"];

/// Positions in a function's record, in bytes, of Go 1.18 and later.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// The flags. The number of maps is two bytes behind, and the tables' positions follow.
    flags: usize,
}

/// Position of the number of tables.
const TABLES: usize = 28;

impl Places {
    /// Returns the positions in the layout with this first word; None if it is not known.
    pub(super) fn of(magic: u32) -> Option<Places> {
        match magic {
            0xFFFF_FFF0 => Some(Places { flags: 37 }),
            // The line of the function's beginning was added.
            0xFFFF_FFF1 => Some(Places { flags: 41 }),
            _ => None,
        }
    }

    /// Reads a record. `values`: all tables of values.
    pub(super) fn read<'d>(self, record: &'d [u8], values: &'d [u8]) -> Option<Facts<'d>> {
        let half = |at: usize| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let tables = Some(half(TABLES)? as usize).filter(|tables| *tables <= MAX_TABLES)?;
        let first = self.flags + 3;
        let table = |n: usize| match n < tables {
            true => match half(first + 4 * n)? {
                0 => Some(&[][..]),
                at => values.get(at as usize..),
            },
            false => Some(&[][..]),
        };
        let maps = usize::from(*record.get(self.flags + 2)?);
        let locals = if maps > LOCALS { half(first + 4 * (tables + LOCALS))? } else { NO_MAP };
        Some(Facts {
            is_compiled: locals != NO_MAP,
            is_assembly: record.get(self.flags)? & ASSEMBLY != 0,
            unsafe_points: Values(table(UNSAFE_POINTS)?),
            inlined: Values(table(INLINED)?),
        })
    }
}

/// Facts of a function in the layouts of Go 1.18 and later.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'d> {
    /// Whether it has a map of its local variables.
    pub(super) is_compiled: bool,
    /// Whether it is written in assembly.
    pub is_assembly: bool,
    unsafe_points: Values<'d>,
    inlined: Values<'d>,
}

impl Facts<'_> {
    /// Whether a goroutine that a signal has preempted may resume at this offset of the function.
    pub(crate) fn may_resume_at(&self, offset: u64, name: &[u8]) -> bool {
        let is_unsafe = self.unsafe_points.at(offset) == Some(UNSAFE);
        // The name that counts is that of the innermost inlined function.
        let is_runtime = self.inlined.at(offset) == Some(NONE)
            && NEVER_PREEMPTED.iter().any(|beginning| name.starts_with(beginning));
        !is_unsafe && !is_runtime
    }

    /// Whether goroutines may be sent back to the function's beginning. Then it runs twice.
    pub(crate) fn restarts(&self) -> bool {
        self.unsafe_points.any(RESTART_AT_ENTRY)
    }
}

/// A table of values by offset: pairs of the difference to the last value, and the length of code
/// for which it holds.
#[derive(Clone, Copy)]
struct Values<'d>(&'d [u8]);

impl Values<'_> {
    /// Returns the ends of the ranges, each with its value. Ends at damage.
    fn ranges(&self) -> impl Iterator<Item = (u64, i32)> {
        let (mut rest, mut end, mut value, mut is_first) = (self.0, 0u64, NONE, true);
        std::iter::from_fn(move || {
            let change = number(&mut rest)?;
            if change == 0 && !is_first {
                return None;
            }
            is_first = false;
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            end = end.checked_add(number(&mut rest)?.into())?;
            Some((end, value))
        })
    }

    /// Returns the value at an offset; None if the table is damaged.
    fn at(&self, offset: u64) -> Option<i32> {
        if self.0.is_empty() {
            return Some(NONE);
        }
        self.ranges().find(|(end, _)| offset < *end).map(|(_, value)| value)
    }

    fn any(&self, wanted: i32) -> bool {
        self.ranges().any(|(_, value)| value == wanted)
    }
}

/// Reads a number of seven bits a byte.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let (byte, more) = rest.split_first()?;
        *rest = more;
        number |= u32::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn values_hold_for_their_range() {
        // -2 for 3 bytes, -1 for 200, -2 for 1, end.
        let values = Values(&[1, 3, 2, 0xC8, 1, 1, 1, 0]);
        let found = [0, 2, 3, 202, 203, 204].map(|offset| values.at(offset));
        assert_eq!(found, [Some(-2), Some(-2), Some(-1), Some(-1), Some(-2), None]);
        assert!(values.any(-1) && !values.any(-5));
        assert_eq!(Values(&[]).at(7), Some(-1));
        assert_eq!(Values(&[0, 5, 0]).at(4), Some(-1), "the first difference may be none");
        assert_eq!(Values(&[0x80, 0x80, 0x80, 0x80, 0x80]).at(0), None);
    }
}
