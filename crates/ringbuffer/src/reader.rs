//! Reads pages of [`SubBuffer`](crate::SubBuffer) and of the kernel.

use crate::fields::{Field, Fields};

const WORD: usize = 4;
/// Bits of the length of a page's data; flags are above.
const LENGTH: u64 = (1 << 27) - 1;
/// Flag in the length: events before this page are missing.
const MISSED: u64 = 1 << 31;
/// Flag in the length: the number of missing events follows the data.
const COUNTED: u64 = 1 << 30;
const DELTA_BITS: u32 = 27;
/// The bits of a time that an absolute time stamp lacks.
const ABSOLUTE_LACKS: u64 = 0x1f << 59;
const PADDING: u32 = 29;
const EXTEND: u32 = 30;
const ABSOLUTE: u32 = 31;

/// The places of a page's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLayout {
    time: Field,
    commit: Field,
    data: usize,
}

impl PageLayout {
    /// Parses the text of `header_page`; returns `None` if it does not describe pages of this form.
    pub fn parse(header_page: &str) -> Option<PageLayout> {
        let fields = Fields::parse(header_page);
        let (time, commit) = (fields.get("timestamp")?, fields.get("commit")?);
        let data = fields.get("data")?.offset;
        (time.size == 8 && matches!(commit.size, 4 | 8)).then_some(PageLayout { time, commit, data })
    }

    /// Returns the events of a page; `None` if it is too short for its header or for the data it
    /// claims to have.
    pub fn events<'p>(&self, page: &'p [u8]) -> Option<Events<'p>> {
        let time = self.time.number(page)?.cast_unsigned();
        let commit = self.commit.number(page)?.cast_unsigned();
        let length = (commit & LENGTH) as usize;
        let rest = page.get(self.data..)?;
        let data = rest.get(..length)?;
        let count = || {
            let count = Field { offset: length, size: self.commit.size }.number(rest)?;
            u64::try_from(count).ok().filter(|_| commit & COUNTED != 0)
        };
        let missed = (commit & MISSED != 0).then(|| Missed { events: count() });
        Some(Events { data, time, missed })
    }
}

/// A loss of events before a page's first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// Number of lost events, where the page has it.
    pub events: Option<u64>,
}

/// Error: from some place on the page's data are not events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadEvent;

/// The events of one page, oldest first: time and record.
#[derive(Clone, Debug)]
pub struct Events<'p> {
    data: &'p [u8],
    time: u64,
    missed: Option<Missed>,
}

impl<'p> Events<'p> {
    /// Returns the loss before the first event.
    pub fn missed(&self) -> Option<Missed> {
        self.missed
    }

    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.data.split_first_chunk::<WORD>()?;
        self.data = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn take(&mut self, length: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.data.split_at_checked(length)?;
        self.data = rest;
        Some(taken)
    }

    /// Reads the next record, if the next word begins one. The outer `None` means that the data are
    /// damaged.
    fn step(&mut self) -> Option<Option<&'p [u8]>> {
        let word = self.word()?;
        let (kind, delta) = (word & 0x1f, u64::from(word >> 5));
        match kind {
            // A full page has this at the end of its data.
            PADDING if delta == 0 => {
                self.data = &[];
                return Some(None);
            }
            PADDING => {
                self.time = self.time.wrapping_add(delta);
                let length = self.word()? as usize;
                // The length counts from behind the first word, its own word included.
                self.take(length.checked_sub(WORD)?)?;
                return Some(None);
            }
            EXTEND => {
                let more = u64::from(self.word()?) << DELTA_BITS;
                self.time = self.time.wrapping_add(more + delta);
                return Some(None);
            }
            ABSOLUTE => {
                let time = (u64::from(self.word()?) << DELTA_BITS) + delta;
                self.time = time | self.time & ABSOLUTE_LACKS;
                return Some(None);
            }
            _ => self.time = self.time.wrapping_add(delta),
        }
        let length = match kind {
            0 => (self.word()? as usize).checked_sub(WORD)?,
            words => words as usize * WORD,
        };
        // Records are whole words in a page, whatever their length is.
        let record = self.take(length.checked_next_multiple_of(WORD)?)?;
        record.get(..length).map(Some)
    }
}

impl<'p> Iterator for Events<'p> {
    type Item = Result<(u64, &'p [u8]), BadEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.data.is_empty() {
            match self.step() {
                Some(Some(record)) => return Some(Ok((self.time, record))),
                Some(None) => {}
                None => {
                    self.data = &[];
                    return Some(Err(BadEvent));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PAGE_SIZE, SubBuffer, formats};

    fn layout() -> PageLayout {
        PageLayout::parse(formats::HEADER_PAGE).unwrap()
    }

    #[test]
    fn written_records_are_read() {
        let mut page = SubBuffer::new();
        page.miss(7);
        let long = [9; 200];
        let records: [(u64, &[u8]); 4] =
            [(1 << 40, &[1; 4]), (1 << 40, &[2; 24]), ((1 << 40) + (1 << 30), &long), ((1 << 41), &[4; 112])];
        records.iter().for_each(|(time, record)| assert!(page.push(*time, record)));
        let events = layout().events(page.page()).unwrap();
        assert_eq!(events.missed(), Some(Missed { events: Some(7) }));
        let read: Vec<_> = events.map(Result::unwrap).collect();
        assert_eq!(read, records);
    }

    fn page(commit: u64, words: &[u32]) -> Vec<u8> {
        let mut page = [5_u64.to_le_bytes(), commit.to_le_bytes()].concat();
        words.iter().for_each(|word| page.extend(word.to_le_bytes()));
        page
    }

    #[test]
    fn times_are_absolute_or_relative_and_discarded_events_are_skipped() {
        let bytes =
            page(36, &[PADDING | 3 << 5, 8, 0, ABSOLUTE | 1 << 5, 1, 1 | 2 << 5, 77, PADDING, 0xffff_ffff]);
        let events: Vec<_> = layout().events(&bytes).unwrap().map(Result::unwrap).collect();
        assert_eq!(events, [((1 << 27) + 3, &77_u32.to_le_bytes()[..])]);
    }

    #[test]
    fn damaged_pages_end_where_the_damage_is() {
        let missed = layout().events(&page(MISSED, &[])).unwrap().missed();
        assert_eq!(missed, Some(Missed { events: None }));
        assert!(layout().events(&page(8, &[1])).is_none(), "less than it claims");
        assert!(layout().events(&[0; 15]).is_none());
        for words in [&[2 | 1 << 5, 1][..], &[0, 3], &[0, 4096], &[EXTEND]] {
            let bytes = page(words.len() as u64 * 4, words);
            let events: Vec<_> = layout().events(&bytes).unwrap().collect();
            assert_eq!(events, [Err(BadEvent)], "{words:?}");
        }
        assert!(PageLayout::parse("field: u64 timestamp;\toffset:0;\tsize:8;").is_none());
        assert_eq!(layout().events(&[0; PAGE_SIZE]).unwrap().count(), 0);
    }
}
