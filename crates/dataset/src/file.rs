//! A file of the dataset: rows in, columns out.

use crate::place::Part;
use crate::row::Row;
use bytes::Bytes;
use calltap_analysis::{Ending, Names};
use calltap_trace::{Meta, SiteId};
use parquet::basic::Compression;
use parquet::column::writer::{
    ColumnCloseResult, ColumnWriter, get_column_writer, get_typed_column_writer_mut,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, ColumnPath};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The table. `docs/fleet.md` says what each column means. Times are twice there: Spark reads no timestamps in nanoseconds.
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

/// Rows that are kept until they are written together.
pub const GROUP: usize = 1 << 17;
/// Groups of fewer rows are encoded by one thread.
const WORTH_SHARING: usize = 1 << 12;
/// The most threads that encode besides the one that reads.
const MOST_OTHERS: usize = 7;
/// Rows of a file: some hundred megabytes at most.
const ROWS: u64 = 1 << 23;

/// What is the same in all rows of a function.
struct Function {
    name: ByteArray,
    linker_name: Option<ByteArray>,
    module: Option<ByteArray>,
    build_id: Option<ByteArray>,
}

/// The texts of a trace, shared by all rows.
pub struct Texts {
    functions: Vec<Function>,
    /// Of sites that the trace does not describe.
    unknown: Function,
    /// Of losses.
    lost: Function,
    threads: Vec<ByteArray>,
    endings: [ByteArray; 9],
}

impl Texts {
    /// Of a trace.
    pub fn new(meta: &Meta, names: &Names<'_>) -> Texts {
        let function = |index: u32| {
            let site = SiteId(index);
            let module =
                meta.sites.get(index as usize).and_then(|site| meta.modules.get(site.module as usize));
            Function {
                name: names.function(site).into(),
                linker_name: Some(names.linker(site).into()),
                module: module.map(|module| module.path.as_str().into()),
                build_id: module.and_then(|module| Some(module.build_id.as_deref()?.into())),
            }
        };
        let nameless =
            |name: &str| Function { name: name.into(), linker_name: None, module: None, build_id: None };
        Texts {
            functions: (0..meta.sites.len() as u32).map(function).collect(),
            unknown: nameless("[unknown]"),
            lost: nameless("[LOST]"),
            threads: meta.threads.iter().map(|thread| thread.comm.as_str().into()).collect(),
            endings: [
                "returned",
                "tail",
                "left",
                "unfinished",
                "unknown",
                "lost",
                "switched_off",
                "thread_ended",
                "outside",
            ]
            .map(ByteArray::from),
        }
    }

    fn function(&self, row: &Row) -> &Function {
        match row.site {
            None => &self.lost,
            Some(site) => self.functions.get(site.0 as usize).unwrap_or(&self.unknown),
        }
    }

    fn thread(&self, row: &Row) -> ByteArray {
        self.threads.get(row.thread.0 as usize).cloned().unwrap_or_else(|| "".into())
    }

    fn parent(&self, row: &Row) -> Option<ByteArray> {
        let caller = row.caller?;
        Some(self.functions.get(caller.0 as usize).unwrap_or(&self.unknown).name.clone())
    }

    fn ending(&self, row: &Row) -> ByteArray {
        let number = match (row.site, row.ending) {
            (None, _) => 5,
            (_, Some(Ending::Returned)) => 0,
            (_, Some(Ending::Tail)) => 1,
            (_, Some(Ending::Left | Ending::Resumed)) => 2,
            (_, Some(Ending::Running | Ending::Detached)) => 3,
            (_, Some(Ending::Lost)) => 5,
            (_, Some(Ending::SwitchedOff)) => 6,
            (_, Some(Ending::ThreadEnded)) => 7,
            (_, Some(Ending::Outside)) => 8,
            (_, None) => 4,
        };
        self.endings[number].clone()
    }
}

/// A file being written.
pub struct DatasetFile {
    part: Part,
    writer: SerializedFileWriter<BufWriter<File>>,
    rows: Vec<Row>,
}

/// Which file, and what happened.
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
    /// Begins one, in a directory that is made if there is none.
    pub fn create(part: Part) -> Result<DatasetFile, Failed> {
        let open = || {
            part.now.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::create(&part.now)
        };
        let file = open().map_err(|error| (part.now.clone(), error))?;
        let plain = ["start", "start_ns", "duration_ns", "self_ns"];
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("calltap ", env!("CARGO_PKG_VERSION")).to_owned());
        // Hardly two are the same.
        let properties = plain.into_iter().fold(properties, |properties, column| {
            properties.set_column_dictionary_enabled(ColumnPath::from(column), false)
        });
        let schema = parse_message_type(SCHEMA).map_err(|error| failed(&part, error))?;
        let writer = SerializedFileWriter::new(
            BufWriter::with_capacity(1 << 18, file),
            Arc::new(schema),
            Arc::new(properties.build()),
        );
        Ok(DatasetFile { writer: writer.map_err(|error| failed(&part, error))?, part, rows: Vec::new() })
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row, texts: &Texts) -> Result<(), Failed> {
        self.rows.push(row);
        if self.rows.len() < GROUP { Ok(()) } else { self.write(texts) }
    }

    /// Are there enough rows in it?
    pub fn is_full(&self) -> bool {
        self.part.rows >= ROWS
    }

    /// Completes it.
    pub fn finish(mut self, texts: &Texts) -> Result<Part, Failed> {
        self.write(texts)?;
        self.writer.close().map_err(|error| failed(&self.part, error))?;
        Ok(self.part)
    }

    fn write(&mut self, texts: &Texts) -> Result<(), Failed> {
        let rows = std::mem::take(&mut self.rows);
        if !rows.is_empty() {
            self.part.rows += rows.len() as u64;
            write_group(&mut self.writer, &rows, texts).map_err(|error| failed(&self.part, error))?;
        }
        // Its memory is used again.
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }
}

/// A column of a group: its bytes, and what the file's index says of it.
type Column = Result<(Bytes, ColumnCloseResult), ParquetError>;

/// The columns are encoded by as many threads as there are processors, and put together in order: the file is the same, whichever does what.
fn write_group(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    rows: &[Row],
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
    rows: &[Row],
    texts: &Texts,
) -> Column {
    let mut sink = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut sink));
    let mut column = get_column_writer(descriptor.clone(), properties.clone(), pages);
    write_column(descriptor.name(), &mut column, rows, texts)?;
    let written = column.close()?;
    Ok((sink.into_inner()?.into(), written))
}

fn write_column(
    name: &str,
    column: &mut ColumnWriter<'_>,
    rows: &[Row],
    texts: &Texts,
) -> Result<(), ParquetError> {
    match name {
        "pid" => all::<Int32Type>(column, rows, |row| row.pid as i32),
        "tid" => all::<Int32Type>(column, rows, |row| row.tid as i32),
        "thread" => all::<ByteArrayType>(column, rows, |row| texts.thread(row)),
        "function" => all::<ByteArrayType>(column, rows, |row| texts.function(row).name.clone()),
        "linker_name" => some::<ByteArrayType>(column, rows, |row| texts.function(row).linker_name.clone()),
        "module" => some::<ByteArrayType>(column, rows, |row| texts.function(row).module.clone()),
        "build_id" => some::<ByteArrayType>(column, rows, |row| texts.function(row).build_id.clone()),
        "start" => some::<Int64Type>(column, rows, |row| row.start.map(|ns| ns.div_euclid(1000))),
        "start_ns" => some::<Int64Type>(column, rows, |row| row.start),
        "duration_ns" => some::<Int64Type>(column, rows, |row| row.times.map(|[all, _]| all as i64)),
        "self_ns" => some::<Int64Type>(column, rows, |row| row.times.map(|[_, own]| own as i64)),
        "depth" => all::<Int32Type>(column, rows, |row| row.depth as i32),
        "parent" => some::<ByteArrayType>(column, rows, |row| texts.parent(row)),
        "ending" => all::<ByteArrayType>(column, rows, |row| texts.ending(row)),
        "calls" => all::<Int64Type>(column, rows, |row| i64::from(row.calls)),
        "arguments" => some::<ByteArrayType>(column, rows, |row| row.arguments.as_deref().map(Into::into)),
        "results" => some::<ByteArrayType>(column, rows, |row| row.results.as_deref().map(Into::into)),
        "cpu_ns" => some::<Int64Type>(column, rows, |row| row.states.map(|[cpu, ..]| cpu as i64)),
        "runnable_ns" => some::<Int64Type>(column, rows, |row| row.states.map(|[_, off, ..]| off as i64)),
        "blocked_ns" => some::<Int64Type>(column, rows, |row| row.states.map(|[.., off, _]| off as i64)),
        "tracing_ns" => some::<Int64Type>(column, rows, |row| row.states.map(|[.., off]| off as i64)),
        "faults" => some::<Int64Type>(column, rows, |row| row.incidents[0].map(|count| count as i64)),
        "major_faults" => some::<Int64Type>(column, rows, |row| row.incidents[1].map(|count| count as i64)),
        "migrations" => some::<Int64Type>(column, rows, |row| row.incidents[2].map(|count| count as i64)),
        "signals" => some::<Int64Type>(column, rows, |row| row.incidents[3].map(|count| count as i64)),
        other => Err(ParquetError::General(format!("a column {other} without values"))),
    }
}

fn all<T: DataType>(
    column: &mut ColumnWriter<'_>,
    rows: &[Row],
    value: impl Fn(&Row) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    get_typed_column_writer_mut::<T>(column).write_batch(&values, None, None).map(drop)
}

fn some<T: DataType>(
    column: &mut ColumnWriter<'_>,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut levels = Vec::with_capacity(rows.len());
    let mut values = Vec::new();
    for row in rows {
        let value = value(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    get_typed_column_writer_mut::<T>(column).write_batch(&values, Some(&levels), None).map(drop)
}
