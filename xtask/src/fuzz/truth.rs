//! The calls that a debugger sees: every entry of a program's functions, by breakpoints, with the
//! return address and the stack pointer.

use crate::shell;
use anyhow::{Context, Result, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Maximum number of entries that are observed.
const MAX_ENTRIES: usize = 20_000;
const BREAKPOINT: u8 = 0xCC;

/// A function of a program.
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Address of the first byte, as in the file.
    address: u64,
    size: u64,
    /// Whether its calls can be compared.
    pub is_traced: bool,
}

#[cfg(test)]
impl Function {
    /// Returns a function that is traced.
    pub fn named(name: &str) -> Function {
        Function { name: name.to_owned(), address: 0, size: 0, is_traced: name != "main" }
    }
}

/// An entry of a function.
pub struct Call {
    /// Index of the function.
    pub function: usize,
    /// Index of the function that it returns to, if that is one of the program's.
    pub caller: Option<usize>,
    /// Address of the slot of the return address.
    pub slot: u64,
    /// Return address.
    pub back: u64,
}

/// Returns the functions of a program in the order of their addresses.
pub fn functions(program: &Path, calltap: &str) -> Result<Vec<Function>> {
    let listed = shell::output(Command::new(calltap).args(["sites", "--format", "json"]).arg(program))?;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
    let listed = listed.as_array().into_iter().flatten();
    // A function on demand is not traced by default.
    let is_on = |row: &serde_json::Value| Some(row["traceable"].as_bool()? && !row["on_demand"].as_bool()?);
    let traceable: BTreeMap<u64, bool> =
        listed.filter_map(|row| Some((row["address"].as_u64()?, is_on(row)?))).collect();
    // The names are those of the linker's symbols, not calltap's.
    let symbols = shell::output(Command::new("nm").args(["-n", "-S", "--defined-only"]).arg(program))?;
    let mut functions: Vec<Function> = Vec::new();
    for line in String::from_utf8_lossy(&symbols.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, size, "t" | "T", name] = words[..] else { continue };
        let number = |word| u64::from_str_radix(word, 16);
        let (address, size) = (number(address)?, number(size)?);
        if functions.last().is_some_and(|last| last.address == address) {
            continue;
        }
        let is_traced = is_compared(name) && traceable.get(&address) == Some(&true);
        functions.push(Function { name: plain(name), address, size, is_traced });
    }
    Ok(functions)
}

/// Returns some of the compared functions, about a third, always the same.
pub fn left_out(functions: &[Function]) -> Vec<String> {
    let own = functions.iter().filter(|function| function.is_traced);
    let chosen = own.filter(|function| function.name.bytes().map(u64::from).sum::<u64>() * 7 % 10 < 4);
    chosen.map(|function| function.name.clone()).collect()
}

/// Whether a name is that of a piece's function, and not of a part of one.
fn is_compared(name: &str) -> bool {
    let name = plain(name);
    let digits = name.strip_prefix('p').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    digits.is_some_and(|rest| rest.starts_with('_')) && !name.contains('.')
}

/// Returns the name in the source, also of a C++ function.
pub fn plain(name: &str) -> String {
    let Some(rest) = name.strip_prefix("_Z") else { return name.to_owned() };
    let rest = rest.strip_prefix('L').unwrap_or(rest);
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    // Other names of C++, and those of Rust, are taken unchanged.
    if digits == 0 {
        return name.to_owned();
    }
    let length: usize = rest[..digits].parse().unwrap_or(0);
    let whole = rest.get(digits..digits + length).unwrap_or(name).to_owned();
    match name.split_once('.') {
        Some((_, suffix)) => format!("{whole}.{suffix}"),
        None => whole,
    }
}

/// Returns the index of the function that contains an address.
fn at(functions: &[Function], address: u64) -> Option<usize> {
    let n = functions.partition_point(|function| function.address <= address).checked_sub(1)?;
    (address < functions[n].address + functions[n].size.max(1)).then_some(n)
}

/// Runs a program with breakpoints at the compared functions.
pub fn calls(program: &Path, functions: &[Function]) -> Result<Vec<Call>> {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -STOP $$; exec \"$0\" 3"]).arg(program);
    let directory = program.parent().unwrap_or(Path::new("."));
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start the program")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let calls = follow(pid, program, functions);
    if calls.is_err() {
        child.kill().ok();
    }
    child.wait().ok();
    calls
}

fn follow(pid: Pid, program: &Path, functions: &[Function]) -> Result<Vec<Call>> {
    waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
    ptrace::seize(pid, Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL)?;
    kill(pid, Signal::SIGCONT)?;
    let mut text = None;
    let mut calls = Vec::new();
    loop {
        let signal = match waitpid(pid, None)? {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Ok(calls),
            WaitStatus::PtraceEvent(_, _, event) if event == nix::libc::PTRACE_EVENT_EXEC => {
                text = Some(Text::open(pid, program, functions)?);
                None
            }
            WaitStatus::PtraceEvent(..) => None,
            WaitStatus::Stopped(_, Signal::SIGTRAP) => match &text {
                Some(text) => {
                    calls.push(text.step_over(pid, functions)?);
                    if calls.len() > MAX_ENTRIES {
                        bail!("the program has too many calls");
                    }
                    None
                }
                None => None,
            },
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        ptrace::cont(pid, signal)?;
    }
}

/// The program's memory with breakpoints.
struct Text {
    memory: File,
    bias: u64,
    first_bytes: BTreeMap<u64, u8>,
}

impl Text {
    fn open(pid: Pid, program: &Path, functions: &[Function]) -> Result<Text> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let name = fs::canonicalize(program)?.to_string_lossy().into_owned();
        let line = maps.lines().find(|line| line.ends_with(&name)).context("the program is not mapped")?;
        let start = line.split('-').next().unwrap_or_default();
        let header = fs::read(program)?;
        // e_type ET_EXEC: the program's addresses are those of the file.
        let is_fixed = header.get(16) == Some(&2);
        let bias = if is_fixed { 0 } else { u64::from_str_radix(start, 16)? };
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let mut first_bytes = BTreeMap::new();
        for function in functions.iter().filter(|function| function.is_traced) {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, bias + function.address)?;
            memory.write_all_at(&[BREAKPOINT], bias + function.address)?;
            first_bytes.insert(function.address, byte[0]);
        }
        Ok(Text { memory, bias, first_bytes })
    }

    /// Records the entry at which the program has stopped, and steps over the breakpoint.
    fn step_over(&self, pid: Pid, functions: &[Function]) -> Result<Call> {
        let mut registers = ptrace::getregs(pid)?;
        registers.rip -= 1;
        let address = registers.rip - self.bias;
        let first = self.first_bytes.get(&address).context("the program stopped at no breakpoint")?;
        let mut back = [0; 8];
        self.memory.read_exact_at(&mut back, registers.rsp)?;
        let back = u64::from_le_bytes(back);
        let caller = at(functions, back.wrapping_sub(self.bias));
        let function = at(functions, address).context("no function begins there")?;
        self.memory.write_all_at(&[*first], registers.rip)?;
        ptrace::setregs(pid, registers)?;
        ptrace::step(pid, None)?;
        let stepped = waitpid(pid, None)?;
        if !matches!(stepped, WaitStatus::Stopped(_, Signal::SIGTRAP)) {
            bail!("a step ended with {stepped:?}");
        }
        self.memory.write_all_at(&[BREAKPOINT], registers.rip)?;
        Ok(Call { function, caller, slot: registers.rsp, back })
    }
}
