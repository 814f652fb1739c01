//! Reads an ELF file: the properties that a tracer needs, and every function with its site.

use crate::address::Svma;
use crate::binary::{Binary, CallsWithoutStub};
use crate::decide::room::Rooms;
use crate::decide::{first_call, tail_jumps};
use crate::discover::lookup::Lookup;
use crate::discover::{calls, functions, go, nonlocal, profilers, records, resolvers, xray};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::{frames, symbols};
use crate::error::Error;
use crate::function::Function;
use crate::watch::{Watch, Watched};
use object::LittleEndian as Le;
use object::elf;
use object::read::elf::ProgramHeader as _;
use std::fmt::Write as _;

/// Returns the dynamic loader that an x86-64 program requests, if any, without reading its
/// functions. The errors are those of [`read`].
pub fn interpreter_of(data: &[u8]) -> Result<Option<String>, Error> {
    Ok(interpreter(&Image::parse(data, &mut Vec::new())?))
}

/// Returns the libraries that a file needs (DT_NEEDED), in order.
pub fn needed(data: &[u8]) -> Vec<String> {
    let read = |image| Dynamic::parse(&image, &mut Vec::new()).needed;
    Image::parse(data, &mut Vec::new()).map(read).unwrap_or_default()
}

/// Whether the file is a Go program without any C code. Its runtime makes threads itself, even if a
/// dynamic linker has loaded the program: they have no thread-local variables of other objects.
pub fn is_go_alone(data: &[u8]) -> bool {
    needed(data).is_empty() && Image::parse(data, &mut Vec::new()).is_ok_and(|image| go::is_go(&image))
}

/// How calls of the profiling function are found that no list names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discovery {
    /// By decoding every function of the file.
    #[default]
    AtLoad,
    /// When each call is first made.
    FirstCall,
}

/// Returns the profiling functions of a file that has no sites; no other functions are listed.
pub fn profilers(data: &[u8], module_name: &str) -> Result<Binary, Error> {
    let mut binary = read_by(data, module_name, Discovery::FirstCall)?;
    let profilers = &binary.profilers;
    binary.functions.retain(|function| profilers.iter().any(|known| known.address == function.address));
    Ok(binary)
}

/// Reads an x86-64 executable or shared object. `module_name` names the functions that have no
/// symbol.
///
/// Any bytes may be passed: a broken part results in an error or a complaint.
pub fn read(data: &[u8], module_name: &str) -> Result<Binary, Error> {
    read_by(data, module_name, Discovery::AtLoad)
}

/// Reads a file as [`read`] does, with the choice how calls of the profiling function are found.
pub fn read_by(data: &[u8], module_name: &str, discovery: Discovery) -> Result<Binary, Error> {
    let mut complaints = Vec::new();
    let image = Image::parse(data, &mut complaints)?;
    let dynamic = Dynamic::parse(&image, &mut complaints);
    let symbols = symbols::functions(&image, &dynamic, &mut complaints);
    let mut functions = functions::named(&symbols);
    go::add_functions(&image, &dynamic, &mut functions);
    let mut known = Lookup::new(&functions);
    let settled = |address| functions::is_settled(&mut known, address);
    let frames = frames::frames(&image, settled, &mut complaints);
    let entry = Svma(image.header.e_entry.get(Le));
    functions::add_frames(&mut functions, &frames, entry, module_name);
    let resolvers = resolvers::find(&image, &dynamic, &symbols, &mut functions);
    let records = records::read(&image, &dynamic, &functions, &mut complaints);
    let profiling = match discovery {
        Discovery::AtLoad => calls::ProfilingFunctions::find(&dynamic, &symbols),
        Discovery::FirstCall => calls::ProfilingFunctions::default(),
    };
    let profilers = profilers::defined(&image, &symbols);
    let exits = nonlocal::find(&image, &symbols, &functions);
    watch(&mut functions, &exits, &symbols);
    let sleds = xray::read(&image, &functions, &mut complaints);
    let rooms = Rooms { image: &image, dynamic: &dynamic, profiling: &profiling, sleds: &sleds };
    let mut next = u64::MAX;
    for (function, records) in functions.iter_mut().zip(&records).rev() {
        if functions::is_whole(function) {
            let end = latest_end(function, next).min(image.section_end(function.address.0));
            rooms.decide(function, records, end);
        }
        next = function.address.0;
    }
    if discovery == Discovery::FirstCall {
        first_call::refuse_profilers(&mut functions, &profilers);
    }
    tail_jumps::decide(&image, &dynamic, &mut functions, discovery == Discovery::FirstCall);
    let position_independent = image.header.e_type.get(Le) == elf::ET_DYN;
    let interpreter = interpreter(&image);
    let named = interpreter.is_some() && dynamic.soname.is_none();
    Ok(Binary {
        build_id: build_id(&image),
        is_program: !position_independent || dynamic.marked_pie || named,
        interpreter,
        position_independent,
        needed: dynamic.needed,
        soname: dynamic.soname,
        entry,
        segments: image.segments,
        functions,
        profilers,
        resolvers,
        complaints,
        calls_without_stub: CallsWithoutStub::default(),
    })
}

/// Marks the watched functions: nonlocal exits, and symbols with the arguments of prctl.
fn watch(functions: &mut [Function], exits: &[Watched], symbols: &[symbols::Symbol<'_>]) {
    let prctl = |symbol: &symbols::Symbol<'_>| {
        Some(Watched { address: Svma(symbol.address), watch: Watch::prctl(symbol.name)? })
    };
    for watched in exits.iter().copied().chain(symbols.iter().filter_map(prctl)) {
        if let Ok(n) = functions.binary_search_by_key(&watched.address, |function| function.address) {
            functions[n].watch = Some(watched.watch);
        }
    }
}

/// Latest end of a function's code: by its size, or the beginning of the next function.
fn latest_end(function: &Function, next: u64) -> u64 {
    if function.size == 0 { next } else { function.address.0.saturating_add(function.size) }
}

fn interpreter(image: &Image<'_>) -> Option<String> {
    let bytes = image.program_data(image.program_header(elf::PT_INTERP)?)?;
    let path = bytes.split(|&byte| byte == 0).next().filter(|path| !path.is_empty())?;
    // The kernel accepts no longer path.
    (path.len() < 4096).then(|| String::from_utf8_lossy(path).into_owned())
}

fn build_id(image: &Image<'_>) -> Option<String> {
    let segments = image.program_headers.iter().filter(|header| header.p_type.get(Le) == elf::PT_NOTE);
    for header in segments.take(64) {
        let Ok(Some(mut notes)) = header.notes(Le, image.data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(Le) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().iter().take(64).fold(String::new(), |mut text, byte| {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "{byte:02x}");
                    text
                }));
            }
        }
    }
    None
}
