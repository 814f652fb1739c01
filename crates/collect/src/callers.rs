//! Finds the callers of a call from a copy of its thread's stack: by unwinding information, and by
//! frame pointers where code has none.
//!
//! A path ends where unwinding information marks a function as the outermost. It is not whole where
//! it ends before, at code without information or at the end of the copy. No frame is guessed: a
//! frame pointer is followed only in a function that has set it up.

mod rule;

use calltap_abi::frames::Copied;
use calltap_process::memory::maps::Region;
use calltap_process::target::TextSegment;
use calltap_process::unwind::Module;
use calltap_sites::open_itself;
use calltap_trace::Callers;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use object::read::ReadCache;
use object::{Object, ObjectSymbol};
use rule::{Registers, Rule};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, OnceLock};

/// Depth up to which stacks are followed.
const MAX_CALLERS: usize = 1024;
/// Number of rules that are kept of a process before starting over.
const RULES: usize = 1 << 18;
/// Bytes at the beginning of a function in which it sets up its frame pointer.
const PROLOGUE: usize = 64;
/// The mappings of a process.
#[derive(Debug)]
pub struct Mapped {
    /// Index of the process.
    pub process: u32,
    /// Id of the process.
    pub pid: u32,
    /// The mappings.
    pub regions: Vec<Region>,
}

/// Unwinder for copies of stacks.
#[derive(Default)]
pub struct Unwinding {
    processes: HashMap<u32, Process>,
    /// Words of the present copy as address and value, ascending.
    words: Vec<(u64, u64)>,
}

#[derive(Default)]
struct Process {
    /// Mapped texts, by address.
    texts: Vec<Arc<Text>>,
    /// Rules that were looked up, by address.
    rules: HashMap<u64, Rule>,
}

/// A mapped text of a file.
struct Text {
    pid: u32,
    region: Region,
    /// Time of the file's last change when the mapping was seen; `None` if the path led to another
    /// file.
    changed: Option<(i64, i64)>,
    opened: OnceLock<Option<Opened>>,
}

/// The file of a text, opened.
struct Opened {
    file: File,
    bias: u64,
    module: Option<Module>,
    /// Address and size of functions, ascending.
    functions: OnceLock<Vec<(u64, u64)>>,
}

impl Unwinding {
    /// Takes the present mappings of a process. Earlier mappings of other addresses are kept: calls
    /// made then may not have been read yet.
    pub fn map(&mut self, mapped: &Mapped) {
        let process = self.processes.entry(mapped.process).or_default();
        process.rules.clear();
        let meets =
            |text: &Text, region: &Region| text.region.start < region.end && region.start < text.region.end;
        for region in mapped.regions.iter().filter(|region| region.executable && region.file.1 != 0) {
            if process.texts.iter().any(|text| text.region == *region) {
                continue;
            }
            process.texts.retain(|text| !meets(text, region));
            let (pid, region) = (mapped.pid, region.clone());
            let changed = fs::symlink_metadata(&region.path).ok().and_then(|meta| change_of(&meta, &region));
            process.texts.push(Arc::new(Text { pid, region, changed, opened: OnceLock::new() }));
        }
        process.texts.sort_by_key(|text| text.region.start);
    }

    /// Gives a forked child the mappings of its parent.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let texts = self.processes.get(&parent).map(|parent| parent.texts.clone());
        if let Some(texts) = texts
            && !self.processes.contains_key(&child)
        {
            self.processes.insert(child, Process { texts, rules: HashMap::new() });
        }
    }

    /// Finds the callers of a call in a copy of its stack.
    pub fn callers(&mut self, process: u32, mut copy: &[u8]) -> Callers {
        let mut callers = Callers::default();
        let (words, mut first) = (&mut self.words, None);
        words.clear();
        let mut next = 0;
        // Pieces behind a lost one are not used.
        while let Some(piece) = Copied::take(&mut copy).filter(|piece| u64::from(piece.number) == next) {
            first.get_or_insert(piece);
            words.extend(piece.words());
            next += 1;
        }
        let Some(first) = first else { return callers };
        let read = |at: u64| {
            let place = words.binary_search_by_key(&at, |(place, _)| *place).ok()?;
            Some(words[place].1)
        };
        let Some(rip) = read(first.address) else { return callers };
        let rbp = (first.rbp != 0).then_some(first.rbp);
        let mut registers = Registers { rip, rsp: first.address.wrapping_add(8), rbp };
        callers.addresses.push(rip);
        let process = self.processes.entry(process).or_default();
        // A signal handler returns to the interrupted instruction itself, not to one behind a call.
        let mut interrupted = false;
        while callers.addresses.len() < MAX_CALLERS {
            let rule = process.rule(registers.rip.wrapping_sub(u64::from(!interrupted)));
            match rule.apply(registers, &read) {
                rule::Undone::Caller(caller, at_instruction) => {
                    (registers, interrupted) = (caller, at_instruction)
                }
                rule::Undone::Outermost => {
                    callers.whole = true;
                    break;
                }
                rule::Undone::Unknown => break,
            }
            callers.addresses.push(registers.rip.wrapping_add(u64::from(interrupted)));
        }
        callers
    }
}

impl Process {
    fn rule(&mut self, at: u64) -> &Rule {
        if self.rules.len() >= RULES {
            self.rules.clear();
        }
        let texts = &self.texts;
        self.rules.entry(at).or_insert_with(|| {
            let behind = texts.partition_point(|text| text.region.start <= at);
            let text = behind.checked_sub(1).map(|n| &texts[n]).filter(|text| text.region.contains(at));
            text.and_then(|text| text.rule(at)).unwrap_or(Rule::Unknown)
        })
    }
}

impl Text {
    fn rule(&self, at: u64) -> Option<Rule> {
        let opened = self.opened.get_or_init(|| self.open()).as_ref()?;
        let module = opened.module.as_ref();
        let known =
            module.and_then(|module| module.unwind(at, |frames, found, row| Rule::of(frames, found, row)));
        known.or_else(|| opened.sets_frame(&self.region, at).then_some(Rule::FRAME_POINTER))
    }

    fn open(&self) -> Option<Opened> {
        // The process may have ended: its file may still have its name, if that is the same file,
        // unchanged.
        let is_same_file = |file: &File| {
            let changed = file.metadata().ok().and_then(|meta| change_of(&meta, &self.region));
            changed.is_some() && changed == self.changed
        };
        let by_name = || open_itself(&self.region.path).ok().filter(is_same_file);
        let file = self.region.open(self.pid).ok().or_else(by_name)?;
        let module = Module::read(&file, &self.region);
        let text = TextSegment::of(&ReadCache::new(&file))?;
        let start = text.address.wrapping_sub(text.offset).wrapping_add(self.region.offset);
        let bias = self.region.start.wrapping_sub(start);
        Some(Opened { file, bias, module, functions: OnceLock::new() })
    }
}

/// Returns the time of the last change of a file, if it is the file of a mapping.
fn change_of(file: &Metadata, region: &Region) -> Option<(i64, i64)> {
    (file.ino() == region.file.1).then(|| (file.ctime(), file.ctime_nsec()))
}

impl Opened {
    /// Whether the function around an address in the process has set up a frame pointer before that
    /// address.
    fn sets_frame(&self, region: &Region, at: u64) -> bool {
        let functions = self.functions.get_or_init(|| functions(&self.file).unwrap_or_default());
        let inside = at.wrapping_sub(self.bias);
        let behind = functions.partition_point(|(start, _)| *start <= inside);
        let Some((start, size)) = behind.checked_sub(1).map(|n| functions[n]) else { return false };
        let start_offset =
            start.wrapping_add(self.bias).wrapping_sub(region.start).wrapping_add(region.offset);
        let length = PROLOGUE.min((inside - start) as usize);
        let mut code = [0; PROLOGUE];
        let Some(code) = code.get_mut(..length).filter(|_| inside - start < size) else { return false };
        let is_read = self.file.read_exact_at(code, start_offset).is_ok();
        is_read && begins_with_frame(code)
    }
}

/// Whether a function begins by setting up its frame pointer. A function that does so behind a
/// branch may have a path without.
fn begins_with_frame(code: &[u8]) -> bool {
    let mut pushed = false;
    for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
        let (first, second) = (instruction.op0_register(), instruction.op1_register());
        match instruction.mnemonic() {
            Mnemonic::Push if first == Register::RBP && !pushed => pushed = true,
            Mnemonic::Mov if (first, second) == (Register::RBP, Register::RSP) => return pushed,
            // The call of `__fentry__` comes first.
            Mnemonic::Call => {}
            _ if instruction.flow_control() != FlowControl::Next || instruction.is_stack_instruction() => {
                return false;
            }
            _ if [Register::RBP, Register::RSP].contains(&first) => return false,
            _ => {}
        }
    }
    false
}

/// Returns address and size of the functions in a file's symbol tables.
fn functions(file: &File) -> Option<Vec<(u64, u64)>> {
    let data = ReadCache::new(file);
    let object = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&data).ok()?;
    let symbols = object.symbols().chain(object.dynamic_symbols());
    let of_code = symbols.filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0);
    let mut functions: Vec<(u64, u64)> = of_code.map(|symbol| (symbol.address(), symbol.size())).collect();
    functions.sort_unstable();
    functions.dedup();
    Some(functions)
}

#[cfg(test)]
mod tests;
