//! Calls into libraries: the linker's stubs through which a program makes them, as functions.
//!
//! A stub is one jump through a word of the GOT, which the dynamic linker fills in at the first
//! call or at the start: a tail call of the library's function. The jump is displaced like any
//! first instruction, and the word keeps its value:
//!
//! ```text
//! .plt.sec:  endbr64; [bnd] jmp *slot(%rip)             a stub beside .plt, which binds lazily
//! .plt:      jmp *slot(%rip); push n; jmp first         binds lazily: the slot leads to the push at first
//! .plt.got:  jmp *slot(%rip); nop                       bound at the start
//! mold:      endbr64; mov $n, %r11d; jmp *slot(%rip)
//! ```
//!
//! A program compiled with `-fno-plt`, as Rust programs are, calls through the words of the GOT
//! itself, and has no stubs. The functions that it calls so are named
//! ([`CallsWithoutStub`](crate::CallsWithoutStub)): they are traced in their libraries, where the
//! program calls them.

use std::collections::{BTreeMap, BTreeSet};

use calltap_names::printable_bytes;

use super::{return_address_readers, swift};
use crate::address::Svma;
use crate::binary::Binary;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::plt::{self, ENDBR64};
use crate::error::Error;
use crate::function::{Function, Returns, Role, Verdict};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm, SiteKind};

/// Suffix of a stub's name, behind the name of the function that it calls.
pub(crate) const SUFFIX: &str = "@plt";
/// Stubs begin at multiples of this.
const STEP: u64 = 8;
/// Maximum number of stubs of a file that are read.
const MAX_STUBS: u64 = 1 << 20;
/// Length of the longest name that is read.
const MAX_NAME_LEN: usize = 4096;
/// `mov $n, %r11d`: the number of the relocation, for the dynamic linker.
const NUMBER: [u8; 2] = [0x41, 0xbb];
/// Length of that instruction.
const NUMBER_LENGTH: u64 = 6;

/// Functions whose stubs are left out: the profiling functions, which a session handles otherwise;
/// those with which the C library starts and ends the program; and the accessor of thread-local
/// variables, which preserves more registers than functions usually do.
const LEFT_OUT: [&[u8]; 9] = [
    b"mcount",
    b"_mcount",
    b"__fentry__",
    b"__cyg_profile_func_enter",
    b"__cyg_profile_func_exit",
    b"__gmon_start__",
    b"__libc_start_main",
    b"__tls_get_addr",
    b"__cxa_finalize",
];
/// Library functions that leave a call open on a stack on which another thread may continue after
/// detaching, besides those of C libraries.
const SWITCHERS: [&[u8]; 5] =
    [b"jump_fcontext", b"ontop_fcontext", b"co_switch", b"coro_transfer", b"setcontext"];

/// Adds the stubs of a file to its functions, and the names of library functions that it can call
/// without one to [`Binary::calls_without_stub`]. Returns the number of stubs.
pub fn add_library_calls(data: &[u8], binary: &mut Binary) -> Result<usize, Error> {
    let image = Image::parse(data, &mut Vec::new())?;
    let dynamic = Dynamic::parse(&image, &mut Vec::new());
    let mut stubs: BTreeMap<u64, Stub> = BTreeMap::new();
    for stub in stubs_of(&image) {
        stubs.entry(stub.slot).or_insert(stub);
    }
    let imports: Vec<_> = dynamic.imports_at(MAX_NAME_LEN, |slot| stubs.contains_key(&slot)).collect();
    let stubbed: BTreeSet<&[u8]> = imports.iter().map(|(_, name)| *name).collect();
    for (slot, name) in dynamic.function_addresses(MAX_NAME_LEN) {
        if name.is_empty() || stubs.contains_key(&slot) || LEFT_OUT.contains(&name) {
            continue;
        }
        let calls = &mut binary.calls_without_stub;
        let list = if stubbed.contains(name) { &mut calls.beside_stub } else { &mut calls.alone };
        list.insert(printable_bytes(name));
    }
    let (keeps, mut found) = (return_address_readers::slots(&dynamic), Vec::new());
    for (slot, name) in imports {
        let Some(stub) = stubs.remove(&slot) else { continue };
        let is_known =
            binary.functions.binary_search_by_key(&stub.start, |function| function.address.0).is_ok();
        if name.is_empty() || is_known || LEFT_OUT.contains(&name) {
            continue;
        }
        let why_unseen = if keeps.contains(&slot) || SWITCHERS.contains(&name) {
            Some(Reason::ReadsReturnAddress { at: stub.at })
        } else {
            swift::may_be_async(name).then_some(Reason::MayPopArguments { at: stub.at })
        };
        found.extend(stub.function(&image, &printable_bytes(name), why_unseen));
    }
    let number = found.len();
    binary.functions.extend(found);
    binary.functions.sort_by_key(|function| function.address);
    Ok(number)
}

struct Stub {
    start: u64,
    /// First displaced instruction.
    at: u64,
    /// Number of displaced bytes.
    length: u64,
    slot: u64,
}

/// Returns all stubs in the file's tables.
fn stubs_of(image: &Image<'_>) -> impl Iterator<Item = Stub> {
    let tables = image.sections.iter().filter(|section| section.is_plt() && section.is_code());
    let places =
        tables.flat_map(|table| (0..table.size / STEP).map(|n| table.address.wrapping_add(n * STEP)));
    places.take(MAX_STUBS as usize).filter_map(|start| stub_at(image, start))
}

fn stub_at(image: &Image<'_>, start: u64) -> Option<Stub> {
    let code = image.tail(start, 2 * STEP);
    let at = start + if code.starts_with(&ENDBR64) { ENDBR64.len() as u64 } else { 0 };
    let rest = code.get((at - start) as usize..)?;
    if rest.starts_with(&NUMBER) {
        let slot = plt::slot_of(rest.get(NUMBER_LENGTH as usize..)?, at + NUMBER_LENGTH)?;
        return Some(Stub { start, at, length: NUMBER_LENGTH, slot });
    }
    // The first stub of a table, which pushes a word first, has more on the stack than a return
    // address.
    let slot = plt::slot_of(rest, at)?;
    let length = if rest.starts_with(&[0xf2]) { 7 } else { 6 };
    Some(Stub { start, at, length, slot })
}

impl Stub {
    /// Makes a function of the stub. `why_unseen`: why its return address must not be replaced, if
    /// so.
    fn function(&self, image: &Image<'_>, name: &str, why_unseen: Option<Reason>) -> Option<Function> {
        let Stub { start, at, length, .. } = *self;
        debug_assert!(length >= JUMP);
        let old = image.bytes(at, length)?.to_vec();
        let returns = match why_unseen.map(Box::new) {
            None => Returns::Stub(Some(Reason::TailCall { at })),
            Some(why) => Returns::Exits {
                at_entry: Vec::new(),
                elsewhere: Vec::new(),
                unrecorded_end: Some(Reason::UnseenTailCall { at, why }),
            },
        };
        Some(Function {
            name: format!("{name}{SUFFIX}"),
            aliases: Vec::new(),
            address: Svma(start),
            size: at - start + length,
            role: Role::Function,
            verdict: Verdict::Site {
                kind: SiteKind::Plt,
                form: SiteForm::Prologue { at: Svma(at), old },
                on_demand: true,
            },
            returns,
            poll: None,
            watch: None,
        })
    }
}
