//! Functions compiled without room for a call: the prologue is overwritten with a jump and executed
//! out of line.
//!
//! This pass asks the rules function by function whether that goes unnoticed by the program.

use super::exits::{Exits, TailCalls};
use super::facts::{FileFacts, FunctionFacts, SiteFacts};
use super::{FUNCTION, RETURN_STUB, SITE, go, jump, refusal};
use crate::binary::Binary;
use crate::code::branches::Branches;
use crate::code::workers;
use crate::discover::landings::Landings;
use crate::discover::scope::Scope;
use crate::discover::{go as go_files, names};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::pointers;
use crate::error::Error;
use crate::function::{Function, Returns, Verdict};
use crate::reason::Reason;
use crate::site::{SiteForm, SiteKind};

/// Finds a site for every function of the file that has none. In a program without any site before,
/// they are traced like other functions; else they are [on demand](Function::is_on_demand). With
/// `int3`, a function without room for a jump gets a [breakpoint](SiteForm::Trap).
pub fn find_prologues(data: &[u8], binary: &mut Binary, int3: bool) -> Result<(), Error> {
    find_sites(data, binary, int3, None).map(drop)
}

/// Finds sites as [`find_prologues`] does, but only for wanted functions, and decodes as little as
/// possible. Returns true if the whole file was decoded after all: then the other functions have
/// sites, too.
pub fn find_prologues_of(
    data: &[u8],
    binary: &mut Binary,
    int3: bool,
    is_wanted: &dyn Fn(&Function) -> bool,
) -> Result<bool, Error> {
    find_sites(data, binary, int3, Some(is_wanted)).map(|(_, all)| all)
}

/// Finds sites as [`find_prologues`] does, without breakpoints, and returns the branch targets of
/// the file's code.
pub fn find_landings(data: &[u8], binary: &mut Binary) -> Result<Landings, Error> {
    Ok(Landings::new(find_sites(data, binary, false, None)?.0, &binary.functions))
}

/// Finds the sites. Returns the branches of the decoded code, and whether all code was decoded.
fn find_sites(
    data: &[u8],
    binary: &mut Binary,
    int3: bool,
    is_wanted: Option<&dyn Fn(&Function) -> bool>,
) -> Result<(Branches, bool), Error> {
    let image = Image::parse(data, &mut Vec::new())?;
    names::add_packed(&image, binary);
    let on_demand = !binary.is_bare();
    let (code_of_go, has_go) = match go_files::is_go(&image) {
        true => {
            let dynamic = Dynamic::parse(&image, &mut Vec::new());
            (go::find(&image, &dynamic, &mut binary.functions, on_demand), true)
        }
        false => (0..0, false),
    };
    let starts: Vec<u64> = binary.functions.iter().map(|function| function.address.0).collect();
    let pointers = pointers::into_code(&image);
    let scope = is_wanted.filter(|_| !has_go).and_then(|is_wanted| {
        let functions = &binary.functions;
        let is_open = |function: &Function| !function.is_traceable() && !function.is_part();
        let wanted = (0..functions.len()).filter(|n| is_open(&functions[*n]) && is_wanted(&functions[*n]));
        Scope::find(&image, (functions, &starts), &pointers, wanted.collect())
    });
    let all = scope.is_none();
    let behind = scope.as_ref().map(|scope| scope.behind.clone()).unwrap_or_default();
    let undecided: Vec<Function> = behind.iter().map(|n| binary.functions[*n].clone()).collect();
    let (functions, int3) = ((&mut *binary.functions, &*starts), int3);
    let file = FileFacts::gather(&image, functions, &pointers, scope, &code_of_go, int3);
    for n in file.wanted.iter().copied().chain(behind.iter().copied()) {
        let function = &binary.functions[n];
        if function.is_traceable() || function.is_part() || code_of_go.contains(&function.address.0) {
            continue;
        }
        let found = site(file.function(&binary.functions, n));
        binary.functions[n].verdict = Verdict::unmodified(found, on_demand);
    }
    find_exits(&file, &mut binary.functions);
    for (n, old) in behind.into_iter().zip(undecided) {
        binary.functions[n] = old;
    }
    Ok((file.branches, all))
}

/// Returns the site of a function without room, or why it has none.
fn site(facts: FunctionFacts<'_>) -> Result<SiteForm, Reason> {
    if let Some(reason) = refusal(FUNCTION, &facts) {
        return Err(reason);
    }
    let (form, no_jump) = jump::form(facts)?;
    match refusal(SITE, &SiteFacts { of: facts, form: &form, no_jump: no_jump.as_ref() }) {
        Some(reason) => Err(reason),
        None => Ok(form),
    }
}

/// Decides how returns are seen. A function whose exits cannot be rewritten would need a return
/// stub; it is refused if it reads or may move its return address, or belongs to a virtual
/// machine that looks return addresses up.
fn find_exits(file: &FileFacts<'_, '_>, functions: &mut [Function]) {
    let exits = Exits::new(file, functions);
    let find_one = |n: usize| {
        let refused = refusal(RETURN_STUB, &file.function(functions, n));
        let must_stay = match functions[n].form() {
            Some(form) if form.is_of_go() => Some(Reason::GoStack),
            _ => refused.clone(),
        };
        (exits.find(n, &must_stay.map_or(TailCalls::Stub, TailCalls::Unseen)), refused)
    };
    let find = |numbers: &[usize]| Vec::from_iter(numbers.iter().map(|n| find_one(*n)));
    let found: Vec<_> =
        workers::share(&file.wanted, |n| functions[*n].size, find).into_iter().flatten().collect();
    for (n, ((returns, form), refused)) in file.wanted.iter().zip(found) {
        let function = &mut functions[*n];
        let Verdict::Site { kind: SiteKind::Prologue, form: at_entry, on_demand } = &mut function.verdict
        else {
            continue;
        };
        // A Go function never gets a return stub.
        let is_of_go = at_entry.is_of_go();
        if let (Returns::Stub(_), Some(reason), false) = (&returns, refused, is_of_go) {
            function.verdict = Verdict::refused(reason, *on_demand);
            continue;
        }
        function.returns = match returns {
            Returns::Stub(Some(why)) if is_of_go => Returns::Stub(Some(why.of_go_function())),
            returns => returns,
        };
        form.into_iter().for_each(|wider| *at_entry = wider);
    }
}
