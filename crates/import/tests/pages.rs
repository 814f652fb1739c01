//! Tests of pages written by the kernel while a program was recorded: its functions are nested in
//! the program's calls.

use crate::together::{EXIT, events, program};
use calltap_import::{
    Described, Error, Joined, Named, Others, Pages, Recording, Summary, import_pages, join,
};
use calltap_ringbuffer::{PAGE_SIZE, SubBuffer, formats, record};
use calltap_trace::{ClockKind, EventKind, TraceReader};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const WRITE: u64 = 0xffff_ffff_8100_0000;
const COPY: u64 = WRITE + 0x100;
const KALLSYMS: &[u8] =
    b"ffffffff81000000 T vfs_write\nffffffff81000100 T copy_from_user\t[helper]\nffffffff81000200 t rest\n";

/// Makes a page of a processor from records with times, after `missed` lost events.
fn page(missed: u64, records: &[(u64, &[u8])]) -> SubBuffer {
    let mut page = SubBuffer::new();
    page.miss(missed);
    for (time, record) in records {
        assert!(page.push(*time, record));
    }
    page
}

fn imported(pages: &Pages, output: &Path) -> Result<Summary, Error> {
    let formats: Vec<String> = formats::EVENTS.iter().map(|(_, text)| (*text).to_owned()).collect();
    let described = Described {
        header_page: formats::HEADER_PAGE,
        formats: &formats,
        kallsyms: KALLSYMS,
        clock: "x86-tsc",
    };
    let named = Named { file: "functions of the kernel: vfs_* (function_graph)", calltap: "test" };
    import_pages(pages, described, named, output)
}

/// Returns the program's trace merged with these pages, and both summaries.
fn with_pages(directory: &Path, pages: &Pages) -> (TraceReader, Summary, Joined) {
    let (program, kernel) = (program(directory, ClockKind::Tsc), directory.join("kernel.data"));
    let summary = imported(pages, &kernel).unwrap();
    let output = directory.join("joined.data");
    let open = |path: &Path| Recording { name: String::new(), reader: TraceReader::open(path).unwrap() };
    let joined = join(&[open(&program), open(&kernel)], Others::LeftOut, &output).unwrap();
    (TraceReader::open(&output).unwrap(), summary, joined)
}

fn told(events: &[(u64, &str, EventKind)]) -> Vec<(u64, String, EventKind)> {
    events.iter().map(|(at, name, kind)| (*at, (*name).to_owned(), *kind)).collect()
}

#[test]
fn functions_on_two_processors_are_within_the_calls_of_their_thread() {
    let directory = TempDir::new().unwrap();
    let mut pages = Pages::new(tempfile::tempfile().unwrap(), PAGE_SIZE);
    // Thread 7 moves to another processor within vfs_write; thread 9 is not the program's.
    let entered = [record::graph_entry(7, WRITE, 0), record::graph_entry(7, COPY, 1)];
    let returned = [record::graph_exit(7, COPY, 1, 3300, 3400), record::graph_exit(7, WRITE, 0, 3200, 3500)];
    let other = record::graph_entry(9, WRITE, 0);
    pages.push(1, page(0, &[(3400, &returned[0]), (3500, &returned[1])]).page()).unwrap();
    pages.push(0, page(0, &[(3200, &entered[0]), (3300, &entered[1]), (3350, &other)]).page()).unwrap();
    let (reader, summary, joined) = with_pages(directory.path(), &pages);
    assert_eq!((summary.lost, joined.threads, joined.nested, joined.cut), (0, 2, 1, 0));
    let expected = [
        (2000, "main", EventKind::Entry),
        (3000, "handle", EventKind::Entry),
        (3200, "vfs_write", EventKind::Entry),
        (3300, "copy_from_user", EventKind::Entry),
        (3400, "copy_from_user", EXIT),
        (3500, "vfs_write", EXIT),
        (7000, "handle", EXIT),
        (8000, "main", EXIT),
    ];
    assert_eq!(events(&reader, 0), told(&expected));
    let meta = reader.meta();
    assert!(meta.threads.iter().all(|thread| thread.tid != 9), "{:?}", meta.threads);
    assert_eq!(reader.complaints(), [""; 0]);
    assert!(
        meta.notes.contains(&"functions of the kernel: vfs_* (function_graph)".to_owned()),
        "{:?}",
        meta.notes
    );
    let module = |name: &str| {
        let site = meta.sites.iter().find(|site| site.name == name).unwrap();
        &*meta.modules[site.module as usize].path
    };
    assert_eq!((module("vfs_write"), module("copy_from_user")), ("[kernel]", "[helper]"));
}

/// A loss of the kernel may be in any thread: it ends the kernel's calls, but not the program's.
#[test]
fn a_loss_ends_the_calls_of_the_kernel_alone() {
    let directory = TempDir::new().unwrap();
    let mut pages = Pages::new(tempfile::tempfile().unwrap(), PAGE_SIZE);
    let (entered, later) = (record::graph_entry(7, WRITE, 0), record::graph_entry(7, COPY, 0));
    let returned = record::graph_exit(7, COPY, 0, 3600, 3700);
    pages.push(0, page(0, &[(3200, &entered)]).page()).unwrap();
    pages.push(0, page(5, &[(3600, &later), (3700, &returned)]).page()).unwrap();
    let (reader, summary, joined) = with_pages(directory.path(), &pages);
    assert_eq!((summary.lost, joined.nested), (5, 1));
    let expected = [
        (2000, "main", EventKind::Entry),
        (3000, "handle", EventKind::Entry),
        (3200, "vfs_write", EventKind::Entry),
        (3600, "vfs_write", EventKind::Left { pops: 1 }),
        (3600, "copy_from_user", EventKind::Entry),
        (3700, "copy_from_user", EXIT),
        (7000, "handle", EXIT),
        (8000, "main", EXIT),
    ];
    let of_seven = events(&reader, 0);
    let kinds: Vec<_> = of_seven.iter().map(|(at, _, kind)| (*at, *kind)).collect();
    let all: Vec<_> = expected.iter().map(|(at, _, kind)| (*at, *kind)).collect();
    assert_eq!(kinds, all, "{of_seven:?}");
    let lost: u64 = reader.meta().loss.iter().map(|loss| loss.lost_entries).sum();
    assert_eq!(lost, 5, "every view shows it");
}

#[test]
fn the_function_tracer_tells_calls_alone() {
    let directory = TempDir::new().unwrap();
    let mut pages = Pages::new(tempfile::tempfile().unwrap(), PAGE_SIZE);
    let called = record::function(7, WRITE, COPY);
    pages.push(0, page(0, &[(3200, &called), (3300, &called)]).page()).unwrap();
    let (reader, ..) = with_pages(directory.path(), &pages);
    let of_kernel: Vec<_> = events(&reader, 0).into_iter().filter(|event| event.1 == "vfs_write").collect();
    let call = EventKind::Call { parent: COPY };
    assert_eq!(of_kernel, told(&[(3200, "vfs_write", call), (3300, "vfs_write", call)]));
}

#[test]
fn without_events_there_is_no_trace() {
    let directory = TempDir::new().unwrap();
    let output = directory.path().join("kernel.data");
    let pages = Pages::new(tempfile::tempfile().unwrap(), PAGE_SIZE);
    assert!(matches!(imported(&pages, &output), Err(Error::Empty)) && !fs::exists(&output).unwrap());
}
