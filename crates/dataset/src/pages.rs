//! Encodes columns as Parquet pages: a page of distinct values, if a dictionary is used, and a page
//! of indices or values.
//!
//! The library's column writers look up each value of each row by its bytes. The rows here have
//! numbers already, so that a page takes a few operations per row. The output equals that of the
//! library's writers: version 1.0 of the format, Snappy, RLE_DICTIONARY or PLAIN.

use crate::hybrid::{hybrid, one_run};
use crate::row::Presence;
use crate::texts::{NONE, Values};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::collections::HashMap;

/// An encoded column of a group: its bytes, and its metadata for the file's index.
pub type Column = Result<(Bytes, ColumnCloseResult), ParquetError>;

/// A value in pages and statistics.
pub trait Value: Clone + Ord {
    /// Appends the value in PLAIN encoding.
    fn put(&self, page: &mut Vec<u8>);

    /// Makes the statistics of a column from its least and greatest value and the number of rows
    /// without a value.
    fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics;
}

macro_rules! integer {
    ($of:ty, $variant:ident) => {
        impl Value for $of {
            #[inline(always)]
            fn put(&self, page: &mut Vec<u8>) {
                page.extend_from_slice(&self.to_le_bytes());
            }

            fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics {
                let (min, max) = range.unzip();
                let values = ValueStatistics::new(min, max, None, Some(nulls), false);
                Statistics::$variant(values.with_backwards_compatible_min_max(true))
            }
        }
    };
}

integer!(i32, Int32);
integer!(i64, Int64);

/// A text, ordered by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(pub &'a [u8]);

impl Value for Text<'_> {
    fn put(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        page.extend_from_slice(self.0);
    }

    fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics {
        let own = |text: Text<'_>| ByteArray::from(text.0.to_vec());
        let (min, max) = range.map(|(min, max)| (own(min), own(max))).unzip();
        Statistics::ByteArray(ValueStatistics::new(min, max, None, Some(nulls), false))
    }
}

/// A column chunk under construction.
struct Chunk {
    sink: TrackedWrite<Vec<u8>>,
    snappy: snap::raw::Encoder,
    uncompressed: usize,
    dictionary: Option<u64>,
    data: Option<u64>,
}

impl Chunk {
    fn new() -> Chunk {
        let (sink, snappy) = (TrackedWrite::new(Vec::new()), snap::raw::Encoder::new());
        Chunk { sink, snappy, uncompressed: 0, dictionary: None, data: None }
    }

    fn compressed(&mut self, bytes: &[u8]) -> Result<Bytes, ParquetError> {
        let compressed = self.snappy.compress_vec(bytes);
        compressed.map(Bytes::from).map_err(|error| ParquetError::External(Box::new(error)))
    }

    fn write(&mut self, page: Page, uncompressed: usize) -> Result<u64, ParquetError> {
        let mut pages = SerializedPageWriter::new(&mut self.sink);
        let PageWriteSpec { uncompressed_size, offset, .. } =
            pages.write_page(CompressedPage::new(page, uncompressed))?;
        self.uncompressed += uncompressed_size;
        Ok(offset)
    }

    fn dictionary(&mut self, bytes: &[u8], num_values: usize) -> Result<(), ParquetError> {
        let (buf, num_values, encoding) = (self.compressed(bytes)?, num_values as u32, Encoding::PLAIN);
        let page = Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
        self.dictionary = Some(self.write(page, bytes.len())?);
        Ok(())
    }

    fn data(&mut self, bytes: &[u8], rows: usize, encoding: Encoding) -> Result<(), ParquetError> {
        let page = Page::DataPage {
            buf: self.compressed(bytes)?,
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.data = Some(self.write(page, bytes.len())?);
        Ok(())
    }

    fn close(self, descriptor: &ColumnDescPtr, rows: usize, statistics: Statistics) -> Column {
        let bytes = Bytes::from(self.sink.into_inner()?);
        let page = |page_type, encoding| PageEncodingStats { page_type, encoding, count: 1 };
        let (encodings, pages) = match self.dictionary {
            None => (vec![Encoding::PLAIN, Encoding::RLE], vec![page(PageType::DATA_PAGE, Encoding::PLAIN)]),
            Some(_) => (
                vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY],
                vec![
                    page(PageType::DICTIONARY_PAGE, Encoding::PLAIN),
                    page(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY),
                ],
            ),
        };
        let metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_page_encoding_stats(pages)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(self.data.unwrap_or(0) as i64)
            .set_dictionary_page_offset(self.dictionary.map(|at| at as i64))
            .set_statistics(statistics)
            .build()?;
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes, closed))
    }
}

/// Returns the beginning of a data page: which rows have a value, if any may have none.
fn levels(presence: Option<&Presence>) -> Vec<u8> {
    let Some(presence) = presence else { return Vec::new() };
    let mut page = vec![0; size_of::<u32>()];
    match presence.nulls {
        0 => one_run(1, presence.of.len(), 1, &mut page),
        _ => hybrid(&presence.of.iter().map(|own| u32::from(*own)).collect::<Vec<u32>>(), 1, &mut page),
    }
    let length = (page.len() - size_of::<u32>()) as u32;
    page[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    page
}

fn widened<V: Value>(range: Option<(V, V)>, value: &V) -> Option<(V, V)> {
    let Some((min, max)) = range else { return Some((value.clone(), value.clone())) };
    Some((min.min(value.clone()), max.max(value.clone())))
}

/// Encodes a column of mostly distinct values. `presence` says which rows have a value, if any may
/// have none.
pub fn plain<V: Value + Copy>(
    descriptor: &ColumnDescPtr,
    presence: Option<&Presence>,
    values: impl ExactSizeIterator<Item = V>,
) -> Column {
    let mut page = levels(presence);
    let (at, mut range) = (page.len(), None);
    page.reserve(values.len() * size_of::<V>());
    for value in values {
        range = widened(range, &value);
        value.put(&mut page);
    }
    let rows = presence.map_or((page.len() - at) / size_of::<V>(), |presence| presence.of.len());
    let mut chunk = Chunk::new();
    chunk.data(&page, rows, Encoding::PLAIN)?;
    chunk.close(descriptor, rows, V::statistics(range, presence.map_or(0, |presence| presence.nulls as u64)))
}

/// The distinct values of a group, numbered in the order of their first occurrence.
pub struct Dictionary<V> {
    values: Vec<V>,
    /// Index of the value of each row that has one.
    indices: Vec<u32>,
}

/// Index of a value that has not occurred yet.
const UNSEEN: u32 = NONE - 1;

/// Returns the index of the value with this number, and assigns one at its first occurrence.
#[inline(always)]
fn index<V>(known: &mut [u32], values: &mut Vec<V>, number: u32, of: &impl Fn(usize) -> V) -> u32 {
    let index = &mut known[number as usize];
    if *index == UNSEEN {
        *index = values.len() as u32;
        values.push(of(number as usize));
    }
    *index
}

impl<V: Value> Dictionary<V> {
    /// Makes a dictionary from the rows' numbers, of `count` possible ones; `of` returns the value
    /// of a number.
    pub fn numbered(
        numbers: impl Iterator<Item = u32>,
        count: usize,
        of: impl Fn(usize) -> V,
    ) -> Dictionary<V> {
        let (mut known, mut values) = (vec![UNSEEN; count], Vec::new());
        let indices = numbers.map(|number| index(&mut known, &mut values, number, &of)).collect();
        Dictionary { values, indices }
    }

    /// Makes a dictionary from the values of the rows' keys, and returns which rows have one.
    pub fn keyed<'a, T>(
        keys: &[u32],
        all: &'a Values<T>,
        of: impl Fn(&'a T) -> V,
    ) -> (Dictionary<V>, Presence) {
        let (mut by_number, mut values) = (vec![UNSEEN; all.values.len()], Vec::new());
        let mut by_key = vec![UNSEEN; all.keys()];
        let mut indices: Vec<u32> = Vec::with_capacity(keys.len());
        let mut nulls = 0;
        for key in keys {
            let own = match by_key.get_mut(*key as usize) {
                // A key without a value has no index.
                None => NONE,
                Some(own) => {
                    if *own == UNSEEN {
                        let number = all.number(*key);
                        let of = |number: usize| of(&all.values[number]);
                        *own = if number == NONE {
                            NONE
                        } else {
                            index(&mut by_number, &mut values, number, &of)
                        };
                    }
                    *own
                }
            };
            nulls += usize::from(own == NONE);
            indices.push(own);
        }
        let presence = match nulls {
            0 => Presence { of: vec![true; keys.len()], nulls },
            _ => Presence { of: indices.iter().map(|index| *index != NONE).collect(), nulls },
        };
        if nulls > 0 {
            indices.retain(|index| *index != NONE);
        }
        (Dictionary { values, indices }, presence)
    }

    /// Encodes the column. `presence` says which rows have a value, if any may have none.
    pub fn encode(&self, descriptor: &ColumnDescPtr, presence: Option<&Presence>) -> Column {
        let Self { values, indices } = self;
        let nulls = presence.map_or(0, |presence| presence.nulls as u64);
        let rows = presence.map_or(indices.len(), |presence| presence.of.len());
        let mut chunk = Chunk::new();
        if values.is_empty() {
            chunk.data(&levels(presence), rows, Encoding::PLAIN)?;
            return chunk.close(descriptor, rows, V::statistics(None, nulls));
        }
        let (mut distinct, mut range) = (Vec::new(), None);
        for value in values {
            value.put(&mut distinct);
            range = widened(range, value);
        }
        let mut page = levels(presence);
        // The number of bits of the greatest index.
        let width = u32::BITS - (values.len().saturating_sub(1) as u32).leading_zeros();
        page.push(width as u8);
        hybrid(indices, width, &mut page);
        chunk.dictionary(&distinct, values.len())?;
        chunk.data(&page, rows, Encoding::RLE_DICTIONARY)?;
        chunk.close(descriptor, rows, V::statistics(range, nulls))
    }
}

/// Smaller numbers are looked up in a table, larger ones in a map.
const SMALL: usize = 1 << 12;

impl Dictionary<i64> {
    /// Makes a dictionary of the numbers; `None` if more than `most` are distinct.
    pub fn of(all: &[i64], most: usize) -> Option<Dictionary<i64>> {
        let (mut small, mut large) = (vec![UNSEEN; SMALL], HashMap::new());
        let mut values = Vec::new();
        let mut indices = Vec::with_capacity(all.len());
        for value in all {
            let known = match usize::try_from(*value).ok().and_then(|value| small.get_mut(value)) {
                Some(known) => known,
                None => large.entry(*value).or_insert(UNSEEN),
            };
            if *known == UNSEEN {
                if values.len() == most {
                    return None;
                }
                *known = values.len() as u32;
                values.push(*value);
            }
            indices.push(*known);
        }
        Some(Dictionary { values, indices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::record::Field;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    /// The least and greatest value, and the number of rows without one.
    type Known = (Option<[Vec<u8>; 2]>, Option<u64>);

    fn known(statistics: &Statistics) -> Known {
        let range = statistics.min_bytes_opt().zip(statistics.max_bytes_opt());
        (range.map(|(min, max)| [min, max].map(<[u8]>::to_vec)), statistics.null_count_opt())
    }

    /// Writes a file of one column and reads it with the library.
    fn read(column: &str, encode: impl Fn(&ColumnDescPtr) -> Column) -> (Vec<Field>, Known) {
        let schema = Arc::new(parse_message_type(&format!("message calls {{ {column}; }}")).unwrap());
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        // Two groups, as positions count from the beginning of the file.
        for _ in 0..2 {
            let (bytes, closed) = encode(&writer.schema_descr().column(0)).unwrap();
            let mut group = writer.next_row_group().unwrap();
            group.append_column(&bytes, closed).unwrap();
            group.close().unwrap();
        }
        let reader = SerializedFileReader::new(Bytes::from(writer.into_inner().unwrap())).unwrap();
        let statistics = known(reader.metadata().row_group(1).column(0).statistics().unwrap());
        let rows = reader.get_row_iter(None).unwrap();
        (rows.map(|row| row.unwrap().get_column_iter().next().unwrap().1.clone()).collect(), statistics)
    }

    /// Returns the presence of rows of which every `skipped`-th has no value.
    fn presence(rows: usize, skipped: usize) -> Presence {
        let mut presence = Presence::default();
        (0..rows).for_each(|row| presence.push(row % skipped != 0));
        presence
    }

    fn check_numbers(rows: usize, skipped: usize, distinct: i64) {
        let presence = presence(rows, skipped);
        let of = |row: usize| (row as i64 * 7919 % distinct - 3) * 1_000_003;
        let values: Vec<i64> = (0..rows).filter(|row| presence.of[*row]).map(of).collect();
        let field = |row| if presence.of[row] { Field::Long(of(row)) } else { Field::Null };
        let expected: Vec<Field> = (0..rows).chain(0..rows).map(field).collect();
        let range = values.iter().min().copied().zip(values.iter().max().copied());
        let bytes = |number: i64| number.to_le_bytes().to_vec();
        let statistics = (range.map(|(min, max)| [min, max].map(bytes)), Some(presence.nulls as u64));
        let column = "optional int64 ns";
        let read_plain = read(column, |own| plain(own, Some(&presence), values.iter().copied()));
        assert_eq!(read_plain, (expected.clone(), statistics.clone()), "{rows} {skipped} {distinct}");
        let dictionary = Dictionary::of(&values, rows).unwrap();
        let read_indices = read(column, |own| dictionary.encode(own, Some(&presence)));
        assert_eq!(read_indices, (expected, statistics), "{rows} {skipped} {distinct}");
    }

    #[test]
    fn numbers_come_back() {
        for rows in [1, 8, 1000, 20_000] {
            for skipped in [1, 2, 11, usize::MAX] {
                [1, 2, 300, 40_000].into_iter().for_each(|distinct| check_numbers(rows, skipped, distinct));
            }
        }
        let many: Vec<i64> = (0..100).collect();
        assert!(Dictionary::of(&many, 99).is_none() && Dictionary::of(&many, 100).is_some());
    }

    #[test]
    fn texts_of_keys_come_back() {
        let texts = ["main", "", "f", "main"].map(|text| Some(text).filter(|text| !text.is_empty()));
        let all = Values::new(texts.into_iter(), |text: &str| text.to_owned());
        assert_eq!(all.values, ["main", "f"], "each once");
        let keys: Vec<u32> =
            (0..1000).map(|row| row * 31 % 5).map(|key| if key == 4 { NONE } else { key }).collect();
        let (dictionary, presence) = Dictionary::keyed(&keys, &all, |text| Text(text.as_bytes()));
        let (rows, statistics) =
            read("optional binary text (STRING)", |own| dictionary.encode(own, Some(&presence)));
        let field = |key: &u32| match texts.get(*key as usize) {
            Some(Some(text)) => Field::Str((*text).to_owned()),
            _ => Field::Null,
        };
        assert_eq!(rows, keys.iter().chain(&keys).map(field).collect::<Vec<Field>>());
        let nulls = keys.iter().filter(|key| [1, NONE].contains(key)).count();
        assert_eq!(
            statistics,
            (Some(["f", "main"].map(|text| text.as_bytes().to_vec())), Some(nulls as u64))
        );
        // A required column stores no levels.
        let (dictionary, presence) = Dictionary::keyed(&[0, 2, 3], &all, |text| Text(text.as_bytes()));
        assert_eq!(presence.nulls, 0);
        let (rows, _) = read("required binary text (STRING)", |own| dictionary.encode(own, None));
        assert_eq!(
            rows,
            ["main", "f", "main"]
                .repeat(2)
                .into_iter()
                .map(|text| Field::Str(text.into()))
                .collect::<Vec<_>>()
        );
    }
}
