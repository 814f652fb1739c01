//! Runtimes that use return addresses. Virtual machines identify generated code by its return
//! address when it calls one of their functions; for the address of a stub they stop with an error.
//! A collector that searches stacks for references keeps code by them. Sanitizers use the memory
//! where calltap would keep them.

use std::fs::File;

use memchr::memmem;
use object::elf::{self, Dyn64};
use object::read::ReadCache;
use object::{LittleEndian as Le, Object, ObjectSection};

use super::dynamic::{Dynamic, whole};
use super::image::{Image, string};

/// Strings in the data of each machine, stripped or not: V8's name for the entry from generated
/// code into C++, and the tables that HotSpot exports for its debugger.
const MARKS: [(&str, &[u8]); 2] = [("V8", b"CEntry_Return1"), ("HotSpot", b"gHotSpotVMStructs")];
/// Symbols that only a file with the runtime or its compiled code defines, by the name of the
/// runtime. Mono and .NET unwind such code by tables of their own, and find its callers by return
/// addresses. Of .NET: a function of the shared runtime, and the tables for debuggers of programs
/// that contain the runtime, or were compiled ahead of time.
const DEFINED: [(&str, &[u8]); 4] = [
    ("Mono", b"mono_aot_file_info"),
    (".NET", b"coreclr_initialize"),
    (".NET", b"DotNetRuntimeInfo"),
    (".NET", b"DotNetRuntimeDebugHeader"),
];

/// Returns the virtual machine whose code or runtime a file contains.
pub(crate) fn inside(image: &Image<'_>, dynamic: &Dynamic<'_>) -> Option<&'static str> {
    let data = image.data_areas();
    let has = |mark: &[u8]| {
        let finder = memmem::Finder::new(mark);
        data.iter().any(|(_, data)| finder.find(data).is_some())
    };
    let marked = MARKS.iter().find(|(_, mark)| has(mark)).map(|(name, _)| *name);
    // Mono's runtime and the programs that start .NET have the names, too, and not the symbols.
    let mut defined = DEFINED.iter().filter(|(_, symbol)| defines(dynamic, symbol));
    marked.or_else(|| defined.next().map(|(name, _)| *name))
}

/// Whether a file exports a symbol of this name.
fn defines(dynamic: &Dynamic<'_>, name: &[u8]) -> bool {
    memmem::find(dynamic.strings, name).is_some()
        && dynamic.symbols.iter().any(|symbol| {
            symbol.st_shndx.get(Le) != elf::SHN_UNDEF
                && string(dynamic.strings, symbol.st_name.get(Le), name.len() + 1) == Some(name)
        })
}

/// Functions that SBCL's runtime exports, as its table of names has them.
const LISP: [&[u8]; 2] = [b"alloc_code_object\0", b"collect_garbage\0"];

/// Functions of the sanitizers whose memory takes all of the address space beside the stacks, as a
/// program's table of names has them.
const SHADOWS: [&[u8]; 3] = [b"__msan_init\0", b"__tsan_init\0", b"__dfsan_arg_tls\0"];

/// Why the return addresses of a program's calls must stay on the stack, in all of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnsStay {
    /// The program's collector moves or frees compiled code that nothing refers to but return
    /// addresses on the stack, as SBCL's does.
    CollectsCode,
    /// A sanitizer uses the memory in which the return addresses would be kept.
    Sanitizer,
    /// Exceptions are thrown by libunwind instead of libgcc: it stores the place where a function
    /// catches one in the memory of a return address, which does not exist for stubs.
    Unwinder,
}

/// Beginnings of the file names of unwinders: libunwind's, LLVM's of the same name, and libgcc's.
const UNWINDERS: [&[u8]; 3] = [b"libunwind.so.8", b"libunwind.so", b"libgcc_s.so"];

/// Whether a program takes libunwind's unwinder: the first needed library that has one decides.
/// `table` and `names`: its dynamic section, and the strings of that.
fn throws_by_libunwind(table: &[u8], names: &[u8]) -> bool {
    let needed = whole::<Dyn64<Le>>(table).iter().filter(|entry| entry.d_tag.get(Le) == elf::DT_NEEDED);
    let needed = needed.filter_map(|entry| names.get(usize::try_from(entry.d_val.get(Le)).ok()?..));
    let mut unwinders =
        needed.filter_map(|name| UNWINDERS.iter().position(|unwinder| name.starts_with(unwinder)));
    unwinders.next() == Some(0)
}

impl ReturnsStay {
    /// Finds the reason in a program's file, if there is one.
    pub fn find(program: &File) -> Option<ReturnsStay> {
        let cache = ReadCache::new(program);
        let object = object::File::parse(&cache).ok()?;
        let names = object.section_by_name(".dynstr").and_then(|section| section.data().ok())?;
        let has = |name: &[u8]| memmem::find(names, name).is_some();
        if LISP.iter().all(|name| has(name)) {
            return Some(ReturnsStay::CollectsCode);
        }
        if SHADOWS.iter().any(|name| has(name)) {
            return Some(ReturnsStay::Sanitizer);
        }
        let table = object.section_by_name(".dynamic").and_then(|section| section.data().ok())?;
        throws_by_libunwind(table, names).then_some(ReturnsStay::Unwinder)
    }
}
