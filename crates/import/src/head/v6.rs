//! The head of a file of version 6: its parts, one after the other.

use super::options::{self, Options, id};
use super::{Buffer, CpuPages, Parts};
use crate::bytes::Cursor;
use crate::compression::Compression;
use crate::error::Error;

/// Length of the words that announce the following part.
const WORD: u64 = 10;

pub(super) fn read(
    cursor: &mut Cursor<'_>,
    parts: &mut Parts,
    page_size: u32,
) -> Result<(Options, Vec<Buffer>), Error> {
    parts.header_info(cursor)?;
    parts.ftrace_events(cursor)?;
    parts.event_formats(cursor)?;
    parts.kallsyms(cursor)?;
    parts.printk(cursor)?;
    parts.cmdlines(cursor)?;
    cursor.part("its list of processors");
    let cpus = cursor.u32()?;
    let mut options = Options::default();
    let mut word = cursor.take(WORD)?;
    let mut instances = Vec::new();
    while word == b"options  \0" {
        read_options(cursor, &mut options, &mut instances)?;
        word = cursor.take(WORD)?;
    }
    match &word[..] {
        b"flyrecord\0" => {}
        b"latency  \0" => return Err(Error::Text),
        _ => return Err(Error::Damaged("no marker follows its options")),
    }
    let places = read_places(cursor, cpus)?;
    let clock = match &options.clock {
        Some(clock) => clock.clone(),
        // Files without the option may have the clocks after the table.
        None => cursor.sized().ok().and_then(|text| options::clock(&super::lossy(&text))).unwrap_or_default(),
    };
    let buffer = |name, places| Buffer { name, clock: clock.clone(), page_size, places };
    let mut buffers = vec![buffer(String::new(), places)];
    for (name, offset) in instances {
        let mut cursor = cursor.elsewhere(offset, "an instance's list of processors");
        if cursor.take(WORD)? != b"flyrecord\0" {
            return Err(Error::Damaged("no marker follows an instance's options"));
        }
        buffers.push(buffer(name, read_places(&mut cursor, cpus)?));
    }
    Ok((options, buffers))
}

fn read_options(
    cursor: &mut Cursor<'_>,
    options: &mut Options,
    instances: &mut Vec<(String, u64)>,
) -> Result<(), Error> {
    loop {
        let id = cursor.u16()?;
        if id == id::DONE {
            return Ok(());
        }
        let length = cursor.u32()?;
        let value = cursor.take(length.into())?;
        match value.split_first_chunk() {
            Some((offset, name)) if id == id::BUFFER => {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                instances.push((super::lossy(name), u64::from_le_bytes(*offset)));
            }
            _ => options.take(id, &value),
        }
    }
}

fn read_places(cursor: &mut Cursor<'_>, cpus: u32) -> Result<Vec<CpuPages>, Error> {
    let place = |cpu| {
        let (offset, size) = (cursor.u64()?, cursor.u64()?);
        Ok(CpuPages { cpu, offset, size, compression: Compression::None })
    };
    (0..cpus).map(place).collect()
}
