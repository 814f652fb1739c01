//! Properties of the agent's images: they depend on no library, export nothing that could replace a
//! program's symbol, and their data path uses integer registers only.

use calltap_abi::stub::{HOOK_COUNT, RED_ZONE};
use calltap_process::agent::{ATTACHED, Image, PLACED, PRELOADED};
use iced_x86::{Code, Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use std::collections::BTreeSet;

fn parse(image: &'static Image) -> ElfFile64<'static, LittleEndian> {
    ElfFile64::parse(image.bytes()).expect("the agent is an ELF file")
}

/// The images that a dynamic linker loads.
fn loaded() -> [ElfFile64<'static, LittleEndian>; 2] {
    [&PRELOADED, &ATTACHED].map(parse)
}

fn all() -> [ElfFile64<'static, LittleEndian>; 3] {
    [&PRELOADED, &ATTACHED, &PLACED].map(parse)
}

#[test]
fn the_agent_needs_no_library_and_imports_only_the_environment() {
    for file in loaded() {
        let imports: BTreeSet<&str> =
            file.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
        assert_eq!(imports, BTreeSet::from(["environ"]));
        let dynamic = file.section_by_name(".dynamic").expect("a dynamic section");
        let data = dynamic.data().unwrap();
        let needed = data.chunks_exact(16).filter(|entry| entry[..8] == 1u64.to_le_bytes()).count();
        assert_eq!(needed, 0, "DT_NEEDED entries");
    }
}

#[test]
fn the_agent_that_is_placed_imports_nothing() {
    assert_eq!(parse(&PLACED).dynamic_symbols().filter(|symbol| symbol.is_undefined()).count(), 0);
}

#[test]
fn the_agent_that_comes_into_a_process_has_no_thread_local_storage() {
    let bytes = |image: &'static Image| {
        let file = parse(image);
        let segments = file.elf_program_headers().iter();
        let tls = segments.filter(|header| header.p_type(LittleEndian) == object::elf::PT_TLS);
        tls.map(|header| header.p_memsz(LittleEndian)).sum::<u64>()
    };
    assert_eq!([&PRELOADED, &ATTACHED, &PLACED].map(bytes), [8, 0, 0]);
}

#[test]
fn the_agent_exports_only_the_names_seen_in_backtraces() {
    for file in loaded() {
        let exports: BTreeSet<&str> =
            file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect();
        assert_eq!(exports, BTreeSet::from(["calltap_hook", "calltap_stub"]));
    }
}

#[test]
fn the_agent_is_small() {
    let sizes = [&PRELOADED, &ATTACHED, &PLACED].map(|image| image.bytes().len());
    // More than half are the hooks: one for each combination of tracers, kind of site and clock.
    assert!(sizes.iter().all(|size| *size < 232 << 10), "{sizes:?} bytes");
}

/// Returns start and end of the functions whose name passes.
fn ranges(file: &ElfFile64<'_, LittleEndian>, pass: impl Fn(&str) -> bool) -> Vec<(String, u64, u64)> {
    let text = file.section_by_name(".text").expect("text");
    let mut all: Vec<(String, u64)> = file
        .symbols()
        .filter(|symbol| symbol.section_index() == Some(text.index()))
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .filter(|(name, _)| !name.is_empty() && name != "calltap_hook")
        .collect();
    all.sort_by_key(|(_, address)| *address);
    let end_of_text = text.address() + text.size();
    let ends: Vec<u64> = all.iter().skip(1).map(|(_, at)| *at).chain([end_of_text]).collect();
    all.into_iter()
        .zip(ends)
        .filter(|((name, _), _)| pass(name))
        .map(|((name, at), end)| (name, at, end))
        .collect()
}

fn registers(file: &ElfFile64<'_, LittleEndian>, from: u64, to: u64) -> (BTreeSet<String>, BTreeSet<Code>) {
    let text = file.section_by_name(".text").expect("text");
    let data = text.data().unwrap();
    let slice = &data[(from - text.address()) as usize..(to - text.address()) as usize];
    let mut factory = InstructionInfoFactory::new();
    let (mut used, mut codes) = (BTreeSet::new(), BTreeSet::new());
    for instruction in &mut Decoder::with_ip(64, slice, from, DecoderOptions::NONE) {
        codes.insert(instruction.code());
        for register in factory.info(&instruction).used_registers() {
            let register = register.register();
            let wide =
                register.is_vector_register() || register.is_st() || register.is_mm() || register.is_k();
            if wide {
                used.insert(format!("{register:?}"));
            }
        }
    }
    (used, codes)
}

#[test]
fn the_hooks_use_integer_registers_only() {
    for file in all() {
        let hooks = ranges(&file, |name| name.starts_with("calltap_hook_"));
        assert_eq!(hooks.len(), 4 * HOOK_COUNT, "every hook for four clocks");
        for (name, from, to) in hooks {
            let (wide, codes) = registers(&file, from, to);
            assert!(wide.is_empty(), "{name} uses {wide:?}");
            let locked = codes.contains(&Code::Syscall) || codes.contains(&Code::INVALID);
            assert!(!locked, "{name} makes a system call or does not decode");
        }
    }
}

#[test]
fn the_recorder_of_first_calls_uses_integer_registers_and_calls_nothing_but_its_slow_path() {
    for file in all() {
        let found = ranges(&file, |name| name == "calltap_first");
        let [(_, from, to)] = found[..] else { panic!("{found:?}") };
        let (wide, codes) = registers(&file, from, to);
        assert!(wide.is_empty(), "{wide:?}");
        assert!(!codes.contains(&Code::Syscall) && !codes.contains(&Code::Call_rm64));
        let text = file.section_by_name(".text").expect("text");
        let code = &text.data().unwrap()[(from - text.address()) as usize..(to - text.address()) as usize];
        let calls = Decoder::with_ip(64, code, from, DecoderOptions::NONE)
            .into_iter()
            .filter(|instruction| instruction.code() == Code::Call_rel32_64);
        let shim = ranges(&file, |name| name == "calltap_first_shim");
        assert_eq!(calls.map(|call| call.near_branch_target()).collect::<Vec<_>>(), [shim[0].1]);
    }
}

#[test]
fn nothing_in_the_agent_touches_more_than_the_low_halves_the_shims_save() {
    for file in all() {
        for (name, from, to) in ranges(&file, |_| true) {
            let (wide, _) = registers(&file, from, to);
            let beyond: Vec<&String> = wide.iter().filter(|register| !register.starts_with("XMM")).collect();
            assert!(beyond.is_empty(), "{name} uses {beyond:?}");
        }
    }
}

#[test]
fn hooks_for_small_stacks_use_little_stack() {
    // A Go function whose stack check has passed has at least 928 bytes, of which functions that it
    // calls without a check may take 800.
    const MAX_STACK_USE: usize = 200;
    // At an exit, the function's callees are not on the stack any more.
    const MAX_AT_EXIT: usize = 400;
    let pushes = |file: &ElfFile64<'_, LittleEndian>, from: u64, to: u64| {
        let text = file.section_by_name(".text").expect("text");
        let code = &text.data().unwrap()[(from - text.address()) as usize..(to - text.address()) as usize];
        let instructions = Decoder::with_ip(64, code, from, DecoderOptions::NONE).into_iter();
        let on_it = instructions.take_while(|instruction| instruction.code() != Code::Xchg_rm64_r64);
        on_it
            .filter(|instruction| matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pushfq))
            .count()
    };
    for file in all() {
        let most = |start: &str| {
            let found = ranges(&file, |name| name.starts_with(start));
            assert!(!found.is_empty(), "{start}");
            found.into_iter().map(|(_, from, to)| pushes(&file, from, to)).max().unwrap_or(usize::MAX)
        };
        // Two calls: of the hook, and of the shim that switches to a stack of its own.
        let shim = most("calltap_small_");
        let bytes = 8 * (2 + most("calltap_hook_small_").max(most("calltap_hook_go_")) + shim);
        assert!((100..MAX_STACK_USE).contains(&bytes), "{bytes} bytes");
        // At an exit, the red zone is skipped, and the out-of-line copy calls the stub.
        let bytes = RED_ZONE + 8 * (3 + most("calltap_hook_go_leave_") + shim);
        assert!(bytes < MAX_AT_EXIT, "{bytes} bytes");
    }
}
