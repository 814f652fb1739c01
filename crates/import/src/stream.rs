//! Reads the events of one processor, page after page.

use crate::bytes::{Bytes, Cursor};
use crate::compression::Compression;
use crate::decode::{Decoder, Event, Item};
use crate::error::Error;
use crate::head::{Buffer, CpuPages};
use calltap_ringbuffer::PageLayout;
use std::collections::VecDeque;

/// The source of pages.
enum Pages {
    /// Uncompressed pages up to an offset.
    Plain { end: u64 },
    /// Compressed pieces of several pages: the number of pieces that follow, and the bytes of the
    /// newest one.
    Packed { how: Compression, pieces: u32, bytes: Vec<u8>, at: usize },
}

/// The events of a processor.
pub(crate) struct Stream<'f> {
    cpu: u32,
    cursor: Cursor<'f>,
    pages: Pages,
    page_size: usize,
    layout: PageLayout,
    /// Events of the current page.
    items: VecDeque<Item>,
}

impl<'f> Stream<'f> {
    pub(crate) fn new(
        file: &'f dyn Bytes,
        layout: PageLayout,
        buffer: &Buffer,
        place: &CpuPages,
    ) -> Result<Stream<'f>, Error> {
        let mut cursor = Cursor::new(file, place.offset, "a processor's buffer")?;
        let pages = match place.compression {
            Compression::None => Pages::Plain { end: place.offset.saturating_add(place.size) },
            how => {
                let pieces = if place.size > 0 { cursor.u32()? } else { 0 };
                Pages::Packed { how, pieces, bytes: Vec::new(), at: 0 }
            }
        };
        let page_size = buffer.page_size as usize;
        Ok(Stream { cpu: place.cpu, cursor, pages, page_size, layout, items: VecDeque::new() })
    }

    /// Reads the next page, if there is one.
    fn page(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let size = self.page_size;
        match &mut self.pages {
            Pages::Plain { end } => match end.saturating_sub(self.cursor.at()) {
                0 => Ok(None),
                left => self.cursor.take(left.min(size as u64)).map(Some),
            },
            Pages::Packed { how, pieces, bytes, at } => {
                while *at >= bytes.len() {
                    if *pieces == 0 {
                        return Ok(None);
                    }
                    *bytes = how.piece(&mut self.cursor, "a processor's buffer")?;
                    (*pieces, *at) = (*pieces - 1, 0);
                }
                let page = &bytes[*at..bytes.len().min(*at + size)];
                *at += page.len();
                Ok(Some(page.to_vec()))
            }
        }
    }

    /// Returns the time of the next event, if there is one.
    pub(crate) fn time(&mut self, decoder: &mut Decoder) -> Result<Option<u64>, Error> {
        while self.items.is_empty() {
            let Some(page) = self.page()? else { return Ok(None) };
            self.decode(&page, decoder)?;
        }
        Ok(self.items.front().map(|item| item.time))
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    fn decode(&mut self, page: &[u8], decoder: &mut Decoder) -> Result<(), Error> {
        const BAD: Error = Error::Damaged("a page of a buffer is not one");
        let events = self.layout.events(page).ok_or(BAD)?;
        let mut missed = events.missed();
        for event in events {
            let (time, record) = event.map_err(|_| BAD)?;
            let item = decoder.decode(self.cpu, time, record);
            if let Some(missed) = missed.take() {
                // The first event has the time of the loss, and in a file written by calltap, the
                // thread that lost events.
                let event = Event::Missed(missed.events);
                let tid = decoder.tid(record).unwrap_or(0);
                self.items.push_back(Item { time, cpu: self.cpu, tid, event });
            }
            self.items.extend(item);
        }
        Ok(())
    }
}
