//! Reads an ELF file: what a tracer must know of the binary, and every function with its site.

mod addresses;
mod askers;
mod branches;
mod calls;
mod dynamic;
mod entries;
mod exits;
mod frames;
mod functions;
mod go;
mod go_exits;
mod goid;
mod handed;
pub(crate) mod image;
mod jumps;
mod kept;
mod landing;
mod landings;
mod libcalls;
mod lookup;
mod machines;
mod movable;
mod names;
mod nops;
mod padding;
mod parts;
mod pclntab;
mod plt;
mod pointers;
mod polls;
mod profilers;
mod prologue;
mod records;
mod resolvers;
mod return_address;
mod rseq;
mod scope;
mod search;
mod stack_depth;
mod switches;
mod symbols;
mod tables;
mod unmodified;
mod workers;
mod xray;

use std::collections::HashMap;
use std::fmt::Write as _;

use object::LittleEndian as Le;
use object::elf;
use object::read::elf::ProgramHeader as _;
use serde::{Deserialize, Serialize};

use crate::address::Svma;
use crate::error::Error;
use crate::function::Function;
use crate::reason::Reason;
use crate::site::SiteKind;
pub use landings::{Contradiction, Landings};
pub use libcalls::add_library_calls;
pub use movable::ends;
pub(crate) use names::build_id_in;
pub use names::{add_names, add_packed_names, build_id_of, debug_link, is_unnamed, lacks_names};
pub use plt::slot_of as plt_slot;
pub use polls::find_polls;
pub use profilers::{Hook, Profiler, beginning, called};
pub use resolvers::Resolver;
pub use unmodified::{find_landings, find_prologues, find_prologues_of};

use dynamic::Dynamic;
use image::Image;
pub use image::Segment;
use lookup::Lookup;
use xray::Sleds;

/// What an ELF file says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binary {
    /// The linker's identifier of this build, in hexadecimal.
    pub build_id: Option<String>,
    /// The dynamic loader the program asks for; a static program or an ordinary shared object asks for none.
    pub interpreter: Option<String>,
    /// It may be loaded anywhere (ET_DYN).
    pub position_independent: bool,
    /// A program rather than a shared object, as far as that can be told: not position independent, or marked
    /// as a program by the linker, or with an interpreter and without a library's name.
    pub is_program: bool,
    /// The libraries it needs (DT_NEEDED), in order.
    pub needed: Vec<String>,
    /// The name others need it by (DT_SONAME).
    pub soname: Option<String>,
    /// Where execution begins.
    pub entry: Svma,
    /// What the loader maps, in address order.
    pub segments: Vec<Segment>,
    /// Every function, in address order, one per address.
    pub functions: Vec<Function>,
    /// The profiling functions that it defines.
    pub profilers: Vec<Profiler>,
    /// The functions that choose others when the program is linked at run time (IFUNC), in address order.
    pub resolvers: Vec<Resolver>,
    /// Broken parts that were skipped, and what is missed for it.
    pub complaints: Vec<String>,
    /// Functions of libraries, sorted, that the program can call without a stub, by their addresses: once its stubs were [looked for](add_library_calls).
    #[serde(skip)]
    pub called_without_stub: Vec<String>,
}

impl Binary {
    /// Is it a program that was not built for tracing?
    pub fn is_bare(&self) -> bool {
        self.is_program && self.functions.iter().all(|function| function.form.is_none())
    }
}

/// The dynamic loader that an x86-64 program asks for, if it does: all that has to be known before it is run. The errors are those of [`read`].
pub fn interpreter_of(data: &[u8]) -> Result<Option<String>, Error> {
    Ok(interpreter(&Image::parse(data, &mut Vec::new())?))
}

/// The libraries that a file says it needs, in order.
pub fn needed(data: &[u8]) -> Vec<String> {
    let read = |image| Dynamic::parse(&image, &mut Vec::new()).needed;
    Image::parse(data, &mut Vec::new()).map(read).unwrap_or_default()
}

/// Is it a Go program without any C? Then its runtime makes threads itself, also where a dynamic linker has
/// loaded it: no thread-local variable of another object exists in them.
pub fn is_go_alone(data: &[u8]) -> bool {
    needed(data).is_empty() && Image::parse(data, &mut Vec::new()).is_ok_and(|image| go::is_go(&image))
}

/// When calls of the profiling function are found that no list names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discovery {
    /// In the file, by decoding every function.
    #[default]
    AtLoad,
    /// When they are made.
    FirstCall,
}

/// Of a file that has no sites, the profiling functions that it defines for others: all that its list of functions has.
pub fn profilers(data: &[u8], module_name: &str) -> Result<Binary, Error> {
    let mut binary = read_by(data, module_name, Discovery::FirstCall)?;
    let profilers = &binary.profilers;
    binary.functions.retain(|function| profilers.iter().any(|known| known.address == function.address));
    Ok(binary)
}

/// Reads an x86-64 executable or shared object. `module_name` names the functions that have no symbol.
///
/// Any bytes may be passed: what is broken gives an error or a complaint.
pub fn read(data: &[u8], module_name: &str) -> Result<Binary, Error> {
    read_by(data, module_name, Discovery::AtLoad)
}

/// The same, with calls of the profiling function found so.
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
    functions::add_frames(&mut functions, &frames, module_name);
    let resolvers = resolvers::find(&image, &dynamic, &symbols, &mut functions);
    let records = records::read(&image, &dynamic, &functions, &mut complaints);
    let hooks = match discovery {
        Discovery::AtLoad => calls::Hooks::find(&dynamic, &symbols),
        Discovery::FirstCall => calls::Hooks::default(),
    };
    let profilers = profilers::defined(&image, &symbols);
    let sleds = xray::read(&image, &functions, &mut complaints);
    let finder = Finder { image: &image, dynamic: &dynamic, hooks: &hooks, sleds: &sleds };
    let mut next = u64::MAX;
    for (function, records) in functions.iter_mut().zip(&records).rev() {
        if functions::is_whole(function) {
            finder.decide(function, records, end(function, next));
        }
        next = function.address.0;
    }
    if discovery == Discovery::FirstCall {
        // What takes their place is no tracer's.
        for profiler in &profilers {
            if let Ok(n) = functions.binary_search_by_key(&profiler.address, |function| function.address) {
                (functions[n].form, functions[n].reason) = (None, Some(Reason::Profiler));
            }
        }
    }
    handed::decide(&image, &dynamic, &mut functions, discovery == Discovery::FirstCall);
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
        entry: Svma(image.header.e_entry.get(Le)),
        segments: image.segments,
        functions,
        profilers,
        resolvers,
        complaints,
        called_without_stub: Vec::new(),
    })
}

/// Where a function's code ends at the latest: its size says, or the next function does.
fn end(function: &Function, next: u64) -> u64 {
    if function.size == 0 { next } else { function.address.0.saturating_add(function.size) }
}

struct Finder<'a, 'd> {
    image: &'a Image<'d>,
    dynamic: &'a Dynamic<'d>,
    hooks: &'a calls::Hooks,
    sleds: &'a HashMap<u64, Sleds>,
}

impl Finder<'_, '_> {
    /// Fills in the site of `function`: the first one that can be patched, or the best reason against it.
    fn decide(&self, function: &mut Function, records: &records::Records, end: u64) {
        let address = function.address.0;
        let sleds = self.sleds.get(&address);
        let xray = || Some((SiteKind::Xray, xray::entry(self.image, address, sleds?)));
        let patchable = || {
            Some((SiteKind::Patchable, nops::patchable(self.image, address, end, records.patchable?.get())))
        };
        let mcount =
            || Some((SiteKind::McountLoc, calls::recorded(self.image, address, end, records.mcount?.get())));
        let plain = || match self.hooks.is_empty() {
            true => None,
            false => calls::plain(self.image, self.dynamic, self.hooks, address, end),
        };
        let candidates: [&dyn Fn() -> Option<calls::Candidate>; 4] = [&xray, &patchable, &mcount, &plain];
        let mut refused = None;
        for (kind, site) in candidates.into_iter().filter_map(|candidate| candidate()) {
            match site {
                Ok(form) => {
                    if let Some(sleds) = sleds.filter(|_| kind == SiteKind::Xray) {
                        function.returns = xray::returns(self.image, sleds);
                    }
                    function.kind = kind;
                    function.form = Some(form);
                    return;
                }
                Err(reason) => refused = refused.or(Some((kind, reason))),
            }
        }
        let (kind, reason) = refused.unwrap_or((SiteKind::None, Reason::NoRoom));
        (function.kind, function.reason) = (kind, Some(reason));
    }
}

fn interpreter(image: &Image<'_>) -> Option<String> {
    let bytes = image.program_data(image.program_header(elf::PT_INTERP)?)?;
    let path = bytes.split(|&byte| byte == 0).next().filter(|path| !path.is_empty())?;
    // The kernel takes no longer path either.
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
