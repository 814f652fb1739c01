//! Encodes columns as Parquet pages: a page of distinct values, if a dictionary is used, and a page
//! of indices or values.
//!
//! The library's column writers look up each value of each row by its bytes. The rows here have
//! numbers already, so that a page takes a few operations per row. The output equals that of the
//! library's writers: version 1.0 of the format, Snappy, RLE_DICTIONARY or PLAIN.

use crate::hybrid::hybrid;
use crate::row::Presence;
use crate::runs::Runs;
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
use zerocopy::IntoBytes;

/// An encoded column of a group: its bytes, and its metadata for the file's index.
pub(crate) type Column = Result<(Bytes, ColumnCloseResult), ParquetError>;

/// A value in pages and statistics.
pub(crate) trait Value: Clone + Ord {
    /// Appends values in PLAIN encoding.
    fn put(values: &[Self], page: &mut Vec<u8>);

    /// Makes the statistics of a column from its least and greatest value and the number of rows
    /// without a value.
    fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics;
}

macro_rules! integer {
    ($of:ty, $variant:ident) => {
        impl Value for $of {
            fn put(values: &[Self], page: &mut Vec<u8>) {
                // The format's byte order is that of every processor on which calltap runs.
                const { assert!(cfg!(target_endian = "little")) };
                page.extend_from_slice(values.as_bytes());
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text<'a>(pub &'a [u8]);

impl Value for Text<'_> {
    fn put(values: &[Self], page: &mut Vec<u8>) {
        for text in values {
            page.extend_from_slice(&(text.0.len() as u32).to_le_bytes());
            page.extend_from_slice(text.0);
        }
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
    hybrid(presence.of.iter().map(|(own, count)| (u32::from(own), count)), 1, &mut page);
    let length = (page.len() - size_of::<u32>()) as u32;
    page[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    page
}

/// Returns the least and the greatest value.
fn range<V: Value>(values: &[V]) -> Option<(V, V)> {
    Some((values.iter().min()?.clone(), values.iter().max()?.clone()))
}

/// Encodes a column of mostly distinct values. `presence` says which rows have a value, if any may
/// have none.
pub(crate) fn plain<V: Value>(
    descriptor: &ColumnDescPtr,
    presence: Option<&Presence>,
    values: &[V],
) -> Column {
    let mut page = levels(presence);
    V::put(values, &mut page);
    let rows = presence.map_or(values.len(), |presence| presence.of.rows());
    let mut chunk = Chunk::new();
    chunk.data(&page, rows, Encoding::PLAIN)?;
    chunk.close(
        descriptor,
        rows,
        V::statistics(range(values), presence.map_or(0, |presence| presence.nulls as u64)),
    )
}

/// The distinct values of a group, numbered in the order of their first occurrence.
pub(crate) struct Dictionary<V> {
    values: Vec<V>,
    /// Index of the value of each row that has one.
    indices: Runs<u32>,
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
    /// Makes a dictionary from runs of the rows' numbers, of `count` possible ones; `of` returns
    /// the value of a number.
    pub(crate) fn numbered(
        numbers: impl Iterator<Item = (u32, usize)>,
        count: usize,
        of: impl Fn(usize) -> V,
    ) -> Dictionary<V> {
        let (mut known, mut values, mut indices) = (vec![UNSEEN; count], Vec::new(), Runs::default());
        numbers.for_each(|(number, rows)| indices.add(index(&mut known, &mut values, number, &of), rows));
        Dictionary { values, indices }
    }

    /// Makes a dictionary from the values of the rows' keys, and returns which rows have one.
    pub(crate) fn keyed<'a, T>(
        keys: &Runs<u32>,
        all: &'a Values<T>,
        of: impl Fn(&'a T) -> V,
    ) -> (Dictionary<V>, Presence) {
        let (mut by_number, mut values) = (vec![UNSEEN; all.values.len()], Vec::new());
        let mut by_key = vec![UNSEEN; all.keys()];
        let (mut indices, mut presence) = (Runs::default(), Presence::default());
        for (key, rows) in keys.iter() {
            let own = match by_key.get_mut(key as usize) {
                // A key without a value has no index.
                None => NONE,
                Some(own) => {
                    if *own == UNSEEN {
                        let number = all.number(key);
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
            presence.add(own != NONE, rows);
            if own != NONE {
                indices.add(own, rows);
            }
        }
        (Dictionary { values, indices }, presence)
    }

    /// Encodes the column. `presence` says which rows have a value, if any may have none.
    pub(crate) fn encode(&self, descriptor: &ColumnDescPtr, presence: Option<&Presence>) -> Column {
        let Self { values, indices } = self;
        let nulls = presence.map_or(0, |presence| presence.nulls as u64);
        let rows = presence.map_or(indices.rows(), |presence| presence.of.rows());
        let mut chunk = Chunk::new();
        if values.is_empty() {
            chunk.data(&levels(presence), rows, Encoding::PLAIN)?;
            return chunk.close(descriptor, rows, V::statistics(None, nulls));
        }
        let mut distinct = Vec::new();
        V::put(values, &mut distinct);
        let mut page = levels(presence);
        // The number of bits of the greatest index.
        let width = u32::BITS - (values.len().saturating_sub(1) as u32).leading_zeros();
        page.push(width as u8);
        hybrid(indices.iter(), width, &mut page);
        chunk.dictionary(&distinct, values.len())?;
        chunk.data(&page, rows, Encoding::RLE_DICTIONARY)?;
        chunk.close(descriptor, rows, V::statistics(range(values), nulls))
    }
}

/// Smaller numbers are looked up in a table, larger ones in a map.
const SMALL: usize = 1 << 12;

impl Dictionary<i64> {
    /// Makes a dictionary of runs of numbers; `None` if more than `most` are distinct.
    pub(crate) fn of(all: impl Iterator<Item = (i64, usize)>, most: usize) -> Option<Dictionary<i64>> {
        let (mut small, mut large) = (vec![UNSEEN; SMALL], HashMap::new());
        let (mut values, mut indices) = (Vec::new(), Runs::default());
        for (value, rows) in all {
            let known = match usize::try_from(value).ok().and_then(|value| small.get_mut(value)) {
                Some(known) => known,
                None => large.entry(value).or_insert(UNSEEN),
            };
            if *known == UNSEEN {
                if values.len() == most {
                    return None;
                }
                *known = values.len() as u32;
                values.push(value);
            }
            indices.add(*known, rows);
        }
        Some(Dictionary { values, indices })
    }
}

impl<'a> Dictionary<Text<'a>> {
    /// Makes a dictionary of texts; `None` if the distinct ones have more than `most` bytes.
    pub(crate) fn of_texts(all: &'a [Box<str>], most: usize) -> Option<Dictionary<Text<'a>>> {
        let (mut known, mut bytes) = (HashMap::new(), 0);
        let (mut values, mut indices) = (Vec::new(), Runs::default());
        for text in all {
            let text = Text(text.as_bytes());
            let number = *known.entry(text).or_insert_with(|| {
                values.push(text);
                bytes += text.0.len();
                values.len() as u32 - 1
            });
            if bytes > most {
                return None;
            }
            indices.push(number);
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
        (0..rows).for_each(|row| presence.add(row % skipped != 0, 1));
        presence
    }

    /// Returns each value as a run of one row.
    fn ones(values: &[i64]) -> impl Iterator<Item = (i64, usize)> {
        values.iter().map(|value| (*value, 1))
    }

    fn check_numbers(rows: usize, skipped: usize, distinct: i64) {
        let presence = presence(rows, skipped);
        let of = |row: usize| (row as i64 * 7919 % distinct - 3) * 1_000_003;
        let is_present: Vec<bool> = presence.of.values().collect();
        let values: Vec<i64> = (0..rows).filter(|row| is_present[*row]).map(of).collect();
        let field = |row: usize| if is_present[row] { Field::Long(of(row)) } else { Field::Null };
        let expected: Vec<Field> = (0..rows).chain(0..rows).map(field).collect();
        let range = values.iter().min().copied().zip(values.iter().max().copied());
        let bytes = |number: i64| number.to_le_bytes().to_vec();
        let statistics = (range.map(|(min, max)| [min, max].map(bytes)), Some(presence.nulls as u64));
        let column = "optional int64 ns";
        let read_plain = read(column, |own| plain(own, Some(&presence), &values));
        assert_eq!(read_plain, (expected.clone(), statistics.clone()), "{rows} {skipped} {distinct}");
        let dictionary = Dictionary::of(ones(&values), rows).unwrap();
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
        assert!(Dictionary::of(ones(&many), 99).is_none() && Dictionary::of(ones(&many), 100).is_some());
    }

    #[test]
    fn texts_come_back() {
        let texts: Vec<Box<str>> = (0..1000).map(|row| format!("{{\"n\":{}}}", row % 7).into()).collect();
        let presence = presence(2000, 2);
        let column = "optional binary text (STRING)";
        let all = texts.iter().map(|text| Text(text.as_bytes())).collect::<Vec<_>>();
        let dictionary = Dictionary::of_texts(&texts, 7 * 7).expect("7 texts of 7 bytes");
        assert!(Dictionary::of_texts(&texts, 7 * 7 - 1).is_none());
        let (rows, statistics) = read(column, |own| dictionary.encode(own, Some(&presence)));
        let field = |row: usize| {
            if row.is_multiple_of(2) { Field::Null } else { Field::Str(texts[row / 2].to_string()) }
        };
        assert_eq!(rows, (0..2000).chain(0..2000).map(field).collect::<Vec<Field>>());
        assert_eq!(statistics.1, Some(1000));
        assert_eq!(read(column, |own| plain(own, Some(&presence), &all)), (rows, statistics));
    }

    #[test]
    fn texts_of_keys_come_back() {
        let texts = ["main", "", "f", "main"].map(|text| Some(text).filter(|text| !text.is_empty()));
        let all = Values::new(texts.into_iter(), |text: &str| text.to_owned());
        assert_eq!(all.values, ["main", "f"], "each once");
        let keys: Vec<u32> =
            (0..1000).map(|row| row * 31 % 5).map(|key| if key == 4 { NONE } else { key }).collect();
        let (dictionary, presence) =
            Dictionary::keyed(&keys.iter().copied().collect(), &all, |text| Text(text.as_bytes()));
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
        let (dictionary, presence) =
            Dictionary::keyed(&[0, 2, 3].into_iter().collect(), &all, |text| Text(text.as_bytes()));
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
