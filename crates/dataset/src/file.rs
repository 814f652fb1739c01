//! A file of the dataset: takes rows, writes columns.

use crate::pages::{Column, Dictionary, Text, plain};
use crate::place::Part;
use crate::row::{Common, Group, Presence, Row};
use crate::runs::Runs;
use crate::texts::{Texts, Values};
use parquet::basic::Compression;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnDescPtr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::iter::repeat_n;
use std::mem;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

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
pub(crate) const GROUP: usize = 1 << 17;
/// Maximum number of distinct numbers in a group for which a dictionary is used.
const DISTINCT: usize = 1 << 12;
/// Maximum depth for which a dictionary is used.
const MAX_DEPTH: i32 = 1 << 12;
/// Maximum number of bytes of the texts of a dictionary.
const MAX_TEXTS_LEN: usize = 1 << 20;
/// Groups with fewer rows are encoded by one thread.
const WORTH_SHARING: usize = 1 << 12;
/// Maximum number of encoding threads besides the reading one.
const MAX_OTHERS: usize = 7;
/// Maximum number of rows of a file, some hundred megabytes.
const ROWS: u64 = 1 << 23;

/// A file being written.
pub(crate) struct DatasetFile {
    part: Part,
    writer: SerializedFileWriter<BufWriter<File>>,
    texts: Arc<Texts>,
    rows: Group,
    /// The group before, encoded while `rows` fills.
    before: Option<FullGroup>,
}

/// The path of a file, and the error.
pub(crate) type Failed = (PathBuf, io::Error);

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
    pub(crate) fn create(part: Part, texts: Arc<Texts>) -> Result<DatasetFile, Failed> {
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
            texts,
            rows: Group::default(),
            before: None,
        })
    }

    /// Adds a row, and takes its texts.
    #[inline]
    pub(crate) fn push(&mut self, row: &mut Row) -> Result<(), Failed> {
        self.rows.push(row, &self.texts);
        if self.rows.len() < GROUP { Ok(()) } else { self.write() }
    }

    /// Whether the file has its maximum number of rows.
    pub(crate) fn is_full(&self) -> bool {
        self.part.rows >= ROWS
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> Result<Part, Failed> {
        self.write()?;
        self.append()?;
        self.writer.close().map_err(|error| failed(&self.part, error))?;
        Ok(self.part)
    }

    /// Appends the rows before, and starts to encode these.
    fn write(&mut self) -> Result<(), Failed> {
        if self.rows.len() > 0 {
            self.part.rows += self.rows.len() as u64;
            let empty = self.append()?;
            let rows = mem::replace(&mut self.rows, empty);
            let (columns, texts) = (self.writer.schema_descr().columns().to_vec(), self.texts.clone());
            self.before = Some(FullGroup::start(Encoder { rows, columns, texts }));
        }
        Ok(())
    }

    /// Appends the group before; returns it, emptied, for further rows.
    fn append(&mut self) -> Result<Group, Failed> {
        let Some(before) = self.before.take() else { return Ok(Group::default()) };
        let (columns, group) = before.finish();
        append_columns(&mut self.writer, columns).map_err(|error| failed(&self.part, error))?;
        Ok(group)
    }
}

/// Appends the columns in order, so that the file does not depend on which thread encoded which.
fn append_columns(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Column>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let (bytes, written) = column?;
        group.append_column(&bytes, written)?;
    }
    group.close().map(drop)
}

/// Encodes the columns of a group.
struct Encoder {
    rows: Group,
    columns: Vec<ColumnDescPtr>,
    texts: Arc<Texts>,
}

impl Encoder {
    /// Encodes all columns, on this thread and some others.
    fn encode(&self, others: usize) -> Vec<Column> {
        let next = AtomicUsize::new(0);
        let encode_some = || {
            let mut done: Vec<(usize, Column)> = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(column) = self.columns.get(number) else { return done };
                done.push((number, encode(column, &self.rows, &self.texts)));
            }
        };
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
        encoded.into_iter().map(|(_, column)| column).collect()
    }
}

/// A full group.
struct FullGroup {
    encoder: Arc<Encoder>,
    /// The thread that encodes it, while this one reads further calls.
    thread: Option<JoinHandle<Vec<Column>>>,
}

impl FullGroup {
    /// Starts encoding, if the group is large and there are processors for it.
    fn start(encoder: Encoder) -> FullGroup {
        let encoder = Arc::new(encoder);
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        // One processor reads, one encodes.
        let others = processors.checked_sub(2).filter(|_| encoder.rows.len() >= WORTH_SHARING);
        let thread = others.and_then(|others| {
            let encoder = encoder.clone();
            thread::Builder::new().spawn(move || encoder.encode(others.min(MAX_OTHERS))).ok()
        });
        FullGroup { encoder, thread }
    }

    /// Returns the columns, and the group, emptied, for further rows.
    fn finish(self) -> (Vec<Column>, Group) {
        let columns = match self.thread {
            Some(thread) => thread.join().unwrap_or_else(|why| panic::resume_unwind(why)),
            None => self.encoder.encode(0),
        };
        let mut rows = Arc::into_inner(self.encoder).map(|encoder| encoder.rows).unwrap_or_default();
        rows.clear();
        (columns, rows)
    }
}

fn encode(descriptor: &ColumnDescPtr, rows: &Group, texts: &Texts) -> Column {
    let by_site = |values: &Values<ByteArray>| keyed_texts(descriptor, values, &rows.sites);
    let threads = || rows.column(|common| texts.thread(common.thread));
    let shared = |of: &dyn Fn(&Common) -> Option<u64>| {
        numbers(descriptor, &rows.presence(|common| of(common).is_some()), &rows.column(of))
    };
    let times = |presence: &dyn Fn(&Common) -> bool, times: &[i64]| {
        durations(descriptor, &rows.presence(presence), times)
    };
    let started = || rows.presence(|common| common.has_start);
    match descriptor.name() {
        "pid" => keyed_ids(descriptor, &texts.pid, &threads()),
        "tid" => keyed_ids(descriptor, &texts.tid, &threads()),
        "thread" => keyed_texts(descriptor, &texts.thread, &threads()),
        "function" => by_site(&texts.function),
        "linker_name" => by_site(&texts.linker_name),
        "module" => by_site(&texts.module),
        "build_id" => by_site(&texts.build_id),
        "start" => {
            let micros: Vec<i64> = rows.start.iter().map(|ns| ns.div_euclid(1000)).collect();
            plain(descriptor, Some(&started()), &micros)
        }
        "start_ns" => plain(descriptor, Some(&started()), &rows.start),
        "duration_ns" => times(&|common| common.is_timed, &rows.times[0]),
        "self_ns" => times(&|common| common.is_timed, &rows.times[1]),
        "depth" => depths(descriptor, &rows.depths),
        "parent" => keyed_texts(descriptor, &texts.function, &rows.callers),
        "ending" => keyed_texts(descriptor, &texts.ending, &rows.column(Common::ending)),
        "calls" => shared(&|common| Some(common.calls.into())),
        "arguments" => json(descriptor, &rows.presence(|common| common.has_arguments), &rows.arguments),
        "results" => json(descriptor, &rows.presence(|common| common.has_results), &rows.results),
        "cpu_ns" => times(&|common| common.off.is_some(), &rows.cpu),
        "runnable_ns" => shared(&|common| Some(common.off?[0])),
        "blocked_ns" => shared(&|common| Some(common.off?[1])),
        "tracing_ns" => shared(&|common| Some(common.off?[2])),
        "faults" => shared(&|common| common.incidents[0]),
        "major_faults" => shared(&|common| common.incidents[1]),
        "migrations" => shared(&|common| common.incidents[2]),
        "signals" => shared(&|common| common.incidents[3]),
        other => Err(ParquetError::General(format!("a column {other} without values"))),
    }
}

/// Encodes a column of ids by key; every key has one.
fn keyed_ids(descriptor: &ColumnDescPtr, ids: &Values<i32>, keys: &Runs<u32>) -> Column {
    Dictionary::keyed(keys, ids, |id| *id).0.encode(descriptor, None)
}

/// Encodes a column of texts by key.
fn keyed_texts(descriptor: &ColumnDescPtr, texts: &Values<ByteArray>, keys: &Runs<u32>) -> Column {
    let (dictionary, presence) = Dictionary::keyed(keys, texts, |text| Text(text.data()));
    dictionary.encode(descriptor, Some(&presence).filter(|_| descriptor.max_def_level() > 0))
}

/// Encodes a column of depths, which are small.
fn depths(descriptor: &ColumnDescPtr, depths: &Runs<i32>) -> Column {
    match depths.iter().map(|(depth, _)| depth).max() {
        Some(deepest @ 0..=MAX_DEPTH) => {
            let numbers = depths.iter().map(|(depth, rows)| (depth as u32, rows));
            Dictionary::numbered(numbers, deepest as usize + 1, |depth| depth as i32).encode(descriptor, None)
        }
        _ => plain(descriptor, None, &depths.values().collect::<Vec<i32>>()),
    }
}

/// Encodes a column of numbers that rows mostly share.
fn numbers(descriptor: &ColumnDescPtr, presence: &Presence, numbers: &Runs<Option<u64>>) -> Column {
    let present = || numbers.iter().filter_map(|(number, rows)| Some((number? as i64, rows)));
    let presence = Some(presence).filter(|_| descriptor.max_def_level() > 0);
    match Dictionary::of(present(), DISTINCT) {
        Some(dictionary) => dictionary.encode(descriptor, presence),
        None => plain(
            descriptor,
            presence,
            &present().flat_map(|(number, rows)| repeat_n(number, rows)).collect::<Vec<i64>>(),
        ),
    }
}

/// Encodes a column of durations, with a dictionary if there are few distinct ones: short calls
/// take one of a few times.
fn durations(descriptor: &ColumnDescPtr, presence: &Presence, times: &[i64]) -> Column {
    match Dictionary::of(times.iter().map(|time| (*time, 1)), DISTINCT) {
        Some(dictionary) => dictionary.encode(descriptor, Some(presence)),
        None => plain(descriptor, Some(presence), times),
    }
}

/// Encodes a column of JSON, with a dictionary unless the distinct texts are long or many.
fn json(descriptor: &ColumnDescPtr, presence: &Presence, texts: &[Box<str>]) -> Column {
    match Dictionary::of_texts(texts, MAX_TEXTS_LEN) {
        Some(dictionary) => dictionary.encode(descriptor, Some(presence)),
        None => {
            let texts: Vec<Text<'_>> = texts.iter().map(|text| Text(text.as_bytes())).collect();
            plain(descriptor, Some(presence), &texts)
        }
    }
}
