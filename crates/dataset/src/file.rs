//! A file of the dataset: takes rows, writes columns.

use crate::pages::{Column, Dictionary, Text, plain};
use crate::place::Part;
use crate::row::{Group, Presence, Row};
use crate::texts::{Texts, Values};
use parquet::basic::Compression;
use parquet::column::writer::{get_column_writer, get_typed_column_writer_mut};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnDescPtr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Schema of the table; `docs/guides/fleet.md` describes each column. Starts are stored twice, as
/// Spark reads no timestamps in nanoseconds.
const SCHEMA: &str = "message calls {
    required int32 pid;
    required int32 tid;
    required binary thread (STRING);
    required binary function (STRING);
    optional binary linker_name (STRING);
    optional binary module (STRING);
    optional binary build_id (STRING);
    optional int64 start (TIMESTAMP(MICROS, true));
    optional int64 start_ns;
    optional int64 duration_ns;
    optional int64 self_ns;
    required int32 depth;
    optional binary parent (STRING);
    required binary ending (STRING);
    required int64 calls;
    optional binary arguments (STRING);
    optional binary results (STRING);
    optional int64 cpu_ns;
    optional int64 runnable_ns;
    optional int64 blocked_ns;
    optional int64 tracing_ns;
    optional int64 faults;
    optional int64 major_faults;
    optional int64 migrations;
    optional int64 signals;
}";

/// Number of rows that are written together.
pub const GROUP: usize = 1 << 17;
/// Maximum number of distinct numbers in a group for which a dictionary is used.
const DISTINCT: usize = 1 << 12;
/// Maximum depth for which a dictionary is used.
const DEEPEST: i32 = 1 << 12;
/// Groups with fewer rows are encoded by one thread.
const WORTH_SHARING: usize = 1 << 12;
/// Maximum number of encoding threads besides the reading one.
const MOST_OTHERS: usize = 7;
/// Maximum number of rows of a file, some hundred megabytes.
const ROWS: u64 = 1 << 23;

/// A file being written.
pub struct DatasetFile {
    part: Part,
    writer: SerializedFileWriter<BufWriter<File>>,
    rows: Group,
}

/// The path of a file, and the error.
pub type Failed = (PathBuf, io::Error);

fn failed(part: &Part, error: ParquetError) -> Failed {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    };
    (part.then.clone(), error)
}

impl DatasetFile {
    /// Creates the file, and its directory if necessary.
    pub fn create(part: Part) -> Result<DatasetFile, Failed> {
        let open = || {
            part.now.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::create(&part.now)
        };
        let file = open().map_err(|error| (part.now.clone(), error))?;
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("calltap ", env!("CARGO_PKG_VERSION")).to_owned());
        let schema = parse_message_type(SCHEMA).map_err(|error| failed(&part, error))?;
        let writer = SerializedFileWriter::new(
            BufWriter::with_capacity(1 << 18, file),
            Arc::new(schema),
            Arc::new(properties.build()),
        );
        Ok(DatasetFile {
            writer: writer.map_err(|error| failed(&part, error))?,
            part,
            rows: Group::default(),
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row, texts: &Texts) -> Result<(), Failed> {
        self.rows.push(row, texts);
        if self.rows.len() < GROUP { Ok(()) } else { self.write(texts) }
    }

    /// Whether the file has its maximum number of rows.
    pub fn is_full(&self) -> bool {
        self.part.rows >= ROWS
    }

    /// Completes the file.
    pub fn finish(mut self, texts: &Texts) -> Result<Part, Failed> {
        self.write(texts)?;
        self.writer.close().map_err(|error| failed(&self.part, error))?;
        Ok(self.part)
    }

    fn write(&mut self, texts: &Texts) -> Result<(), Failed> {
        if self.rows.len() > 0 {
            self.part.rows += self.rows.len() as u64;
            let written = write_group(&mut self.writer, &self.rows, texts);
            self.rows.clear();
            written.map_err(|error| failed(&self.part, error))?;
        }
        Ok(())
    }
}

/// Encodes the columns on as many threads as there are processors, and appends them in order, so
/// that the file does not depend on the assignment of columns to threads.
fn write_group(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    rows: &Group,
    texts: &Texts,
) -> Result<(), ParquetError> {
    let (columns, properties) = (writer.schema_descr().columns().to_vec(), writer.properties().clone());
    let next = AtomicUsize::new(0);
    let encode_some = || {
        let mut done: Vec<(usize, Column)> = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(column) = columns.get(number) else { return done };
            done.push((number, encode(column, &properties, rows, texts)));
        }
    };
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let others = if rows.len() < WORTH_SHARING { 0 } else { (processors - 1).min(MOST_OTHERS) };
    let mut encoded = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, encode_some).ok();
        let others: Vec<_> = (0..others).map_while(start).collect();
        let mut all = encode_some();
        for other in others {
            all.extend(other.join().unwrap_or_else(|why| panic::resume_unwind(why)));
        }
        all
    });
    encoded.sort_unstable_by_key(|(number, _)| *number);
    let mut group = writer.next_row_group()?;
    for (_, column) in encoded {
        let (bytes, written) = column?;
        group.append_column(&bytes, written)?;
    }
    group.close().map(drop)
}

fn encode(
    descriptor: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    rows: &Group,
    texts: &Texts,
) -> Column {
    let by_site = |values: &Values<ByteArray>| keyed_texts(descriptor, values, &rows.sites);
    let counts = |(presence, values): &(Presence, Vec<i64>)| numbers(descriptor, Some(presence), values);
    match descriptor.name() {
        "pid" => keyed_ids(descriptor, &texts.pid, &rows.threads),
        "tid" => keyed_ids(descriptor, &texts.tid, &rows.threads),
        "thread" => keyed_texts(descriptor, &texts.thread, &rows.threads),
        "function" => by_site(&texts.function),
        "linker_name" => by_site(&texts.linker_name),
        "module" => by_site(&texts.module),
        "build_id" => by_site(&texts.build_id),
        "start" => {
            let (presence, start) = &rows.start;
            plain(descriptor, Some(presence), start.iter().map(|ns| ns.div_euclid(1000)))
        }
        "start_ns" => plain(descriptor, Some(&rows.start.0), rows.start.1.iter().copied()),
        "duration_ns" => numbers(descriptor, Some(&rows.timed), &rows.times[0]),
        "self_ns" => numbers(descriptor, Some(&rows.timed), &rows.times[1]),
        "depth" => depths(descriptor, &rows.depths),
        "parent" => keyed_texts(descriptor, &texts.function, &rows.callers),
        "ending" => keyed_texts(descriptor, &texts.ending, &rows.endings),
        "calls" => numbers(descriptor, None, &rows.calls),
        "arguments" => json(descriptor, properties, &rows.arguments),
        "results" => json(descriptor, properties, &rows.results),
        "cpu_ns" => numbers(descriptor, Some(&rows.switched), &rows.states[0]),
        "runnable_ns" => numbers(descriptor, Some(&rows.switched), &rows.states[1]),
        "blocked_ns" => numbers(descriptor, Some(&rows.switched), &rows.states[2]),
        "tracing_ns" => numbers(descriptor, Some(&rows.switched), &rows.states[3]),
        "faults" => counts(&rows.incidents[0]),
        "major_faults" => counts(&rows.incidents[1]),
        "migrations" => counts(&rows.incidents[2]),
        "signals" => counts(&rows.incidents[3]),
        other => Err(ParquetError::General(format!("a column {other} without values"))),
    }
}

/// Encodes a column of ids by key; every key has one.
fn keyed_ids(descriptor: &ColumnDescPtr, ids: &Values<i32>, keys: &[u32]) -> Column {
    Dictionary::keyed(keys, ids, |id| *id).0.encode(descriptor, None)
}

/// Encodes a column of texts by key.
fn keyed_texts(descriptor: &ColumnDescPtr, texts: &Values<ByteArray>, keys: &[u32]) -> Column {
    let (dictionary, presence) = Dictionary::keyed(keys, texts, |text| Text(text.data()));
    dictionary.encode(descriptor, Some(&presence).filter(|_| descriptor.max_def_level() > 0))
}

/// Encodes a column of depths, which are small.
fn depths(descriptor: &ColumnDescPtr, depths: &[i32]) -> Column {
    match depths.iter().max() {
        Some(deepest @ 0..=DEEPEST) => {
            let numbers = depths.iter().map(|depth| *depth as u32);
            Dictionary::numbered(numbers, *deepest as usize + 1, |depth| depth as i32)
                .encode(descriptor, None)
        }
        _ => plain(descriptor, None, depths.iter().copied()),
    }
}

/// Encodes a column of numbers, with a dictionary if there are few distinct ones: short calls take
/// one of a few times.
fn numbers(descriptor: &ColumnDescPtr, presence: Option<&Presence>, values: &[i64]) -> Column {
    match Dictionary::of(values, DISTINCT) {
        Some(dictionary) => dictionary.encode(descriptor, presence),
        None => plain(descriptor, presence, values.iter().copied()),
    }
}

/// Encodes a column of JSON with the library's writer, which finds equal texts.
fn json(
    descriptor: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    (presence, texts): &(Presence, Vec<Box<str>>),
) -> Column {
    if texts.is_empty() {
        return Dictionary::numbered([].into_iter(), 0, |_| Text(&[])).encode(descriptor, Some(presence));
    }
    let mut sink = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut sink));
    let mut column = get_column_writer(descriptor.clone(), properties.clone(), pages);
    let levels: Vec<i16> = presence.of.iter().map(|is_present| i16::from(*is_present)).collect();
    let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(&**text)).collect();
    get_typed_column_writer_mut::<ByteArrayType>(&mut column).write_batch(&values, Some(&levels), None)?;
    let written = column.close()?;
    Ok((sink.into_inner()?.into(), written))
}
