//! Operations on open files: reading, writing and closing.

use super::Tracefs;
use crate::control::{Model, TRACE, Which, number_base};
use crate::errors::Wrong;
use crate::handle::{Content, Handle, Read};
use crate::instance::Snapshot;
use crate::nodes::{Entry, Kind, name};
use crate::pages::Pages;
use crate::reader::Reader;
use crate::ring::{Payload, Ring, View};
use crate::tokens::{PendingFilter, Set};
use calltap_ringbuffer::PAGE_SIZE;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Maximum length of one write to `trace_marker`.
const MARK: usize = 4054;

impl Tracefs {
    /// Opens a file, and returns its handle.
    pub fn open(&mut self, inode: u64, flags: OFlags) -> Result<u64, Errno> {
        let node = self.node(inode)?;
        let Entry::File(kind, arg) = node.entry else { return Err(Errno::ISDIR) };
        let place = self.place(node.instance)?;
        let writes = !(flags & OFlags::RWMODE).is_empty();
        let reads = flags & OFlags::RWMODE != OFlags::WRONLY;
        let truncates = writes && flags.contains(OFlags::TRUNC);
        self.separate |= kind == Kind::FunctionTracers;
        let content = match kind {
            Kind::TracePipe => {
                if std::mem::replace(&mut self.instances[place].piped, true) {
                    return Err(Errno::BUSY);
                }
                self.instances[place].expand();
                Content::Pipe(Box::default())
            }
            Kind::Trace => {
                let instance = &mut self.instances[place];
                if truncates && arg <= 1 {
                    instance.clear();
                }
                if reads { self.records(place, arg) } else { Content::Nothing }
            }
            Kind::RawPipe | Kind::RawSnapshot => {
                let instance = &mut self.instances[place];
                instance.expand();
                instance.raw_pipes += 1;
                Content::Pages(Pages::default())
            }
            Kind::Snapshot if reads => self.snapshot(place, arg),
            Kind::Filter
            | Kind::Notrace
            | Kind::GraphFunction
            | Kind::GraphNotrace
            | Kind::StackTraceFilter
                if writes =>
            {
                Content::PendingFilter(Box::new(PendingFilter::new(self.set(place, kind), truncates)))
            }
            Kind::Pid | Kind::NotracePid if truncates => {
                self.instances[place].pids[usize::from(kind == Kind::NotracePid)].clear();
                Content::Nothing
            }
            Kind::Marker | Kind::RawMarker | Kind::FreeBuffer => Content::Nothing,
            Kind::ErrorLog if truncates => {
                self.instances[place].errors.clear();
                Content::Nothing
            }
            _ if reads => Content::Text(self.text(&self.instances[place], kind, arg)),
            _ => Content::Nothing,
        };
        let instance = &mut self.instances[place];
        instance.open += 1;
        let pauses = kind == Kind::Trace && reads && instance.options.is_on("pause-on-trace");
        instance.paused += u32::from(pauses);
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, Handle { node, kind, arg, written: false, writer: 0, pauses, content });
        Ok(handle)
    }

    fn set(&self, place: usize, kind: Kind) -> Set {
        let instance = &self.instances[place];
        let words = |which| {
            let (mut words, functions) = (instance.words.clone(), self.symbols.functions());
            if !self.separate {
                words.tracers.retain(|tracer| tracer.name == TRACE);
            }
            let mut model = Model { words, functions, profile: &[] };
            Set::Words(which, model.set_mut(which).clone())
        };
        match kind {
            Kind::Filter => words(Which::Filter),
            Kind::Notrace => words(Which::Notrace),
            Kind::StackTraceFilter => Set::Stack(self.stack_tracer.filter.clone()),
            Kind::GraphFunction => Set::Functions(0, instance.graph[0].clone()),
            _ => Set::Functions(1, instance.graph[1].clone()),
        }
    }

    /// Returns a reader of the buffer's records, of all processors or one.
    fn records(&self, place: usize, arg: u16) -> Content {
        let instance = &self.instances[place];
        let (format, none) = (instance.format(), arg > 1);
        let records = if none { View::default() } else { instance.ring.view() };
        let counts = if none { (0, 0) } else { instance.ring.counts() };
        let header = format.header(&self.symbols, counts);
        Content::Records(Box::new(Reader::new(records, format, header)))
    }

    fn snapshot(&self, place: usize, arg: u16) -> Content {
        let instance = &self.instances[place];
        let (format, tracer) = (instance.format(), instance.tracer_name());
        let state = match &instance.snapshot {
            Snapshot::Allocated(ring) if !ring.is_empty() && arg <= 1 => {
                let header = format.header(&self.symbols, ring.counts());
                return Content::Records(Box::new(Reader::new(ring.view(), format, header)));
            }
            Snapshot::Allocated(_) => "allocated",
            Snapshot::Freed => "freed",
        };
        Content::Text(format!(
            "# tracer: {tracer}\n#\n#\n# * Snapshot is {state} *\n#\n# Snapshot commands:\n\
             # echo 0 > snapshot : Clears and frees snapshot buffer\n\
             # echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.\n\
             #                      Takes a snapshot of the main buffer.\n\
             # echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)\n\
             #                      (Doesn't have to be '2' works with any number that\n\
             #                       is not a '0' or '1')\n"
        ))
    }

    /// Reads from an open file. `waits`: whether the reader waits while there are no bytes.
    pub fn read(&mut self, handle: u64, offset: u64, size: usize, waits: bool) -> Result<Read, Errno> {
        let (symbols, ended) = (&mut self.symbols, self.ended);
        let open = self.handles.get_mut(&handle).ok_or(Errno::BADF)?;
        match &mut open.content {
            Content::Text(text) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let to = from.saturating_add(size).min(text.len());
                Ok(Read::Data(text.as_bytes()[from..to].to_vec()))
            }
            Content::Records(reader) => Ok(Read::Data(reader.read(symbols, offset, size))),
            Content::Pipe(pipe) => {
                let (id, arg) = (open.node.instance, open.arg);
                let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else {
                    return Ok(Read::Data(Vec::new()));
                };
                if arg <= 1 {
                    let format = instance.format();
                    if let Some(data) = pipe.read(&mut instance.ring, &format, symbols, size) {
                        return Ok(Read::Data(data));
                    }
                }
                let over = ended || !instance.is_on && pipe.any();
                Ok(if over { Read::Data(Vec::new()) } else { Read::Wait })
            }
            Content::Pages(pages) => {
                let id = open.node.instance;
                let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else {
                    return Ok(Read::Data(Vec::new()));
                };
                let (over, none) = (ended || !instance.is_on, &mut Ring::new(0));
                let ring = match (&mut instance.snapshot, open.kind) {
                    _ if open.arg > 1 => none,
                    (Snapshot::Allocated(ring), Kind::RawSnapshot) => ring,
                    (Snapshot::Freed, Kind::RawSnapshot) => none,
                    _ => &mut instance.ring,
                };
                // A reader that waits for several pages is not woken for a page with a single
                // record.
                let full = waits && !over && size > PAGE_SIZE;
                match pages.read(ring, symbols, size, full) {
                    data if data.is_empty() && !over => Ok(Read::Wait),
                    data => Ok(Read::Data(data)),
                }
            }
            Content::PendingFilter(_) | Content::Nothing => Err(Errno::INVAL),
        }
    }

    /// Prepares the text that a reader will ask for next, while it handles the last one.
    pub fn read_ahead(&mut self, handle: u64, size: usize) {
        if let Some(Handle { content: Content::Records(reader), .. }) = self.handles.get_mut(&handle) {
            reader.read_ahead(&self.symbols, size);
        }
    }

    /// Whether a read of `trace_pipe` would return bytes; always true for other files.
    pub fn is_readable(&self, handle: u64) -> bool {
        let Some(open) = self.handles.get(&handle) else { return true };
        let instance = self.instances.iter().find(|instance| instance.id == open.node.instance);
        let pipe = match &open.content {
            Content::Pipe(pipe) => pipe,
            Content::Pages(_) if open.arg > 1 => return self.ended,
            Content::Pages(pages) if open.kind == Kind::RawPipe => {
                let any = instance.is_none_or(|instance| !instance.ring.is_empty());
                return !pages.is_empty() || self.ended || any;
            }
            _ => return true,
        };
        // `buffer_percent` does not count: events that are rare would never be read if they had to
        // fill the buffer.
        !pipe.is_empty() || self.ended || instance.is_none_or(|instance| !instance.ring.is_empty())
    }

    /// Writes to an open file at a time and by the thread `tid`. Returns the number of bytes taken.
    pub fn write(
        &mut self,
        handle: u64,
        data: &[u8],
        tid: u32,
        comm: &str,
        now_ns: u64,
    ) -> Result<usize, Errno> {
        let open = self.handles.get_mut(&handle).ok_or(Errno::BADF)?;
        (open.written, open.writer) = (true, tid);
        let (id, kind, arg) = (open.node.instance, open.kind, open.arg);
        let place = self.instances.iter().position(|instance| instance.id == id).ok_or(Errno::NODEV)?;
        let instance = &mut self.instances[place];
        match (&mut open.content, kind) {
            (Content::PendingFilter(pending), _) => {
                let written = pending.write(data, self.symbols.functions(), &mut instance.triggers);
                if let Some((word, wrong)) = pending.take_wrong() {
                    instance.errors.add(now_ns, name(kind), &word, &wrong);
                }
                let (taken, triggered) = written?;
                self.effects.selects |= triggered;
                return Ok(taken);
            }
            // Opening the file may have cleared it; written data are accepted and ignored.
            (_, Kind::Trace) => return Ok(data.len()),
            (_, Kind::FreeBuffer) => return Ok(data.len()),
            (_, Kind::Pid | Kind::NotracePid) => {
                let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
                let new: Result<Vec<u32>, Wrong> = text.split_whitespace().map(thread_id).collect();
                match new {
                    Ok(new) => instance.pids[usize::from(kind == Kind::NotracePid)].extend(new),
                    Err(wrong) => {
                        instance.errors.add(now_ns, name(kind), text, &wrong);
                        return Err(wrong.errno);
                    }
                }
                return Ok(data.len());
            }
            (_, Kind::Marker | Kind::RawMarker) => {
                let taken = data.len().min(MARK);
                let payload = match kind {
                    Kind::Marker => Payload::Mark(String::from_utf8_lossy(&data[..taken]).into()),
                    _ if data.len() < 4 => return Err(Errno::INVAL),
                    _ => Payload::RawMark(data[..taken].into()),
                };
                if !instance.options.is_on("markers") {
                    return Err(Errno::INVAL);
                }
                if !instance.is_on {
                    return Err(Errno::BADF);
                }
                instance.expand();
                if self.symbols.group(tid).is_none() {
                    self.symbols.add_thread(tid, tid, comm);
                }
                self.ingest.mark(id, now_ns, tid, payload);
                return Ok(taken);
            }
            _ => {}
        }
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        let written = self.write_value(id, kind, arg, text);
        written.map(|()| data.len()).map_err(|wrong| {
            self.instances[place].errors.add(now_ns, name(kind), text, &wrong);
            wrong.errno
        })
    }

    /// Whether a thread's closing of a file takes over a set. Otherwise closing must not wait for
    /// anything: a child that has inherited the file closes it during execve, with its memory
    /// locked, and a search for calltap's processes waits for that lock.
    pub fn is_written(&self, handle: u64, tid: u32) -> bool {
        let written = |open: &Handle| open.written && open.writer == tid;
        self.handles
            .get(&handle)
            .is_some_and(|open| written(open) && matches!(open.content, Content::PendingFilter(_)))
    }

    /// Takes over a set as a process closes the file, which others may still have open.
    pub fn flush(&mut self, handle: u64) -> Result<(), Errno> {
        let written = self.handles.get_mut(&handle).is_some_and(|open| std::mem::take(&mut open.written));
        if written {
            self.commit(handle);
        }
        Ok(())
    }

    fn commit(&mut self, handle: u64) {
        let Some(open) = self.handles.get_mut(&handle) else { return };
        let id = open.node.instance;
        let Content::PendingFilter(pending) = &mut open.content else { return };
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else { return };
        let functions = self.symbols.functions();
        let triggered = pending.finish(functions, &mut instance.triggers);
        if let Some((word, wrong)) = pending.take_wrong() {
            instance.errors.add(self.last.monotonic_ns, name(open.kind), &word, &wrong);
        }
        self.effects.selects |= triggered;
        match pending.take() {
            Some(Set::Words(which, words)) => {
                let own = std::mem::take(&mut instance.words);
                let mut model = Model { words: own, functions, profile: &[] };
                if !self.separate {
                    // The first tracer's sets are changed, whether it is registered or not; they
                    // are then copied to the others.
                    model.words.tracers.sort_by_key(|tracer| tracer.name != TRACE);
                    let others = model.words.tracers.split_off(1);
                    *model.set_mut(which) = words;
                    model.words.tracers.extend(others);
                } else {
                    *model.set_mut(which) = words;
                }
                instance.words = model.words;
                if !self.separate {
                    instance.share_sets();
                }
                self.effects.selects = true;
            }
            Some(Set::Functions(which, set)) => {
                instance.graph[which] = set;
                self.effects.selects = true;
            }
            Some(Set::Stack(words)) => {
                self.stack_tracer.filter = words;
                self.effects.selects = true;
            }
            None => {}
        }
    }

    /// Releases a handle that is no longer open.
    pub fn release(&mut self, handle: u64) {
        self.commit(handle);
        let Some(open) = self.handles.remove(&handle) else { return };
        let id = open.node.instance;
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else { return };
        instance.open -= 1;
        instance.paused -= u32::from(open.pauses);
        match open.kind {
            Kind::TracePipe => instance.piped = false,
            Kind::RawPipe | Kind::RawSnapshot => instance.raw_pipes -= 1,
            Kind::FreeBuffer => {
                if instance.options.is_on("disable_on_free") {
                    instance.is_on = false;
                }
                instance.set_kb(1);
            }
            _ => {}
        }
    }
}

/// Parses a word of `set_ftrace_pid`: decimal, 0x..., 0...
fn thread_id(word: &str) -> Result<u32, Wrong> {
    let (digits, base) = number_base(word);
    let none = || Wrong::argument(format!("'{word}' is no thread id"));
    let number = u64::from_str_radix(digits, base).map_err(|_| none())?;
    let tid = u32::try_from(number).ok().filter(|tid| *tid < 1 << 31);
    tid.ok_or_else(|| Wrong { errno: Errno::PERM, ..none() })
}
