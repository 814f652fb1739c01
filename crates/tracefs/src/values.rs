//! Writing of values to files such as `current_tracer` and `buffer_size_kb`: parses the text, and
//! changes the instance, or the directory as a whole.

use crate::clocks::{CLOCKS, Clock};
use crate::control::{Model, Open, parse_number};
use crate::errors::Wrong;
use crate::instance::{Instance, STACK_TRACE, Snapshot};
use crate::nodes::Kind;
use crate::options::OPTIONS;
use crate::tracefs::Tracefs;
use calltap_trace::ClockKind;
use rustix::io::Errno;

fn number(text: &str) -> Result<u64, Wrong> {
    parse_number(text).map_err(Wrong::from)
}

/// Parses a number, and refuses one above `most`.
fn within(text: &str, most: u64) -> Result<u64, Wrong> {
    let n = number(text)?;
    if n > most { Err(Wrong::argument(format!("more than {most}"))) } else { Ok(n) }
}

impl Tracefs {
    fn instance_mut(&mut self, id: u32) -> Result<&mut Instance, Wrong> {
        let found = self.instances.iter_mut().find(|instance| instance.id == id);
        found.ok_or_else(|| Errno::NODEV.into())
    }

    /// Writes a value to a file of an instance.
    pub(crate) fn write_value(&mut self, id: u32, kind: Kind, arg: u16, text: &str) -> Result<(), Wrong> {
        let (recorded, processors, separate) = (self.clock, self.processors, self.separate);
        let instance = self.instance_mut(id)?;
        match kind {
            Kind::CurrentTracer => return self.write_tracer(id, text),
            Kind::FunctionTracers => return self.write_control(id, kind, text),
            Kind::Ftraced => return self.write_control(id, kind, text),
            Kind::ProfileEnabled => {
                self.write_control(id, kind, text)?;
                if !separate {
                    self.instance_mut(id)?.share_sets();
                }
            }
            Kind::Options => {
                let (tracer, is_top) = (instance.tracer_name(), instance.is_top());
                let before = instance.options.has(STACK_TRACE);
                if text.len() >= 64 || !instance.options.change(text.trim(), tracer, is_top) {
                    return Err(Wrong::argument("no such option here (see trace_options)"));
                }
                let changes = instance.options.has(STACK_TRACE) != before;
                self.effects.selects |= changes;
            }
            Kind::Option => return self.write_option(id, arg, text),
            Kind::Clock => instance.write_clock(text, recorded)?,
            Kind::Cpumask => instance.mask = cpumask(text, processors)?,
            Kind::StackMaxSize => self.stack_tracer.max = number(text)?,
            Kind::StackTracerEnabled => {
                let on = number(text)? != 0;
                self.effects.selects |= std::mem::replace(&mut self.stack_tracer.is_on, on) != on;
            }
            _ => instance.write_own(kind, arg, text)?,
        }
        Ok(())
    }

    /// Writes a value to a file that [`crate::control`] implements.
    fn write_control(&mut self, id: u32, kind: Kind, text: &str) -> Result<(), Wrong> {
        let Tracefs { instances, symbols, profile, effects, .. } = self;
        let Some(instance) = instances.iter_mut().find(|instance| instance.id == id) else {
            return Err(Errno::NODEV.into());
        };
        let words = instance.words.clone();
        let mut model = Model { words, functions: symbols.functions(), profile };
        let effect = model.change(kind, text, Open::Truncate)?;
        let profiled = instance.profiles();
        instance.words = model.words;
        effects.resets_profile |= effect.resets_profile;
        effects.ends_profile |= profiled && !instance.profiles();
        effects.selects = true;
        Ok(())
    }

    fn write_tracer(&mut self, id: u32, text: &str) -> Result<(), Wrong> {
        let instance = self.instance_mut(id)?;
        if text.trim() == instance.tracer_name() {
            return Ok(());
        }
        let busy = instance.piped || instance.raw_pipes > 0;
        if busy && ["function", "function_graph", "nop"].contains(&text.trim()) {
            return Err(Wrong { errno: Errno::BUSY, why: "trace_pipe is open".into(), at: 0 });
        }
        self.write_control(id, Kind::CurrentTracer, text)?;
        let separate = self.separate;
        let instance = self.instance_mut(id)?;
        if !separate {
            instance.share_sets();
        }
        instance.expand();
        instance.clear();
        Ok(())
    }

    fn write_option(&mut self, id: u32, arg: u16, text: &str) -> Result<(), Wrong> {
        let option = OPTIONS.get(usize::from(arg)).ok_or(Errno::INVAL)?;
        let on = within(text, 1)? == 1;
        // A tracer's own options are common to all instances.
        let shared = option.tracer.is_some();
        self.effects.selects |= option.name == "func_stack_trace";
        for instance in self.instances.iter_mut().filter(|instance| shared || instance.id == id) {
            if !instance.options.set(option.name, on) {
                return Err(Wrong::argument("the tracer refuses this"));
            }
        }
        Ok(())
    }
}

impl Instance {
    fn write_clock(&mut self, text: &str, recorded: ClockKind) -> Result<(), Wrong> {
        let named = |(name, clock): &(&str, Clock)| *name == text.trim() && clock.exists(recorded);
        let none = || Wrong::argument(format!("no clock '{}' (see trace_clock)", text.trim()));
        self.set_clock(CLOCKS.iter().position(named).ok_or_else(none)?);
        Ok(())
    }

    /// Writes a value to a file that changes this instance alone.
    fn write_own(&mut self, kind: Kind, arg: u16, text: &str) -> Result<(), Wrong> {
        match kind {
            Kind::TracingOn => self.is_on = number(text)? != 0,
            Kind::MaxGraphDepth => self.max_depth = number(text)? as u32,
            Kind::Threshold => self.threshold_us = number(text)?,
            Kind::MaxLatency | Kind::EventsEnable => drop(number(text)?),
            Kind::Percent => self.percent = within(text, 100)?,
            Kind::BufferKb => match number(text)? {
                0 => return Err(Wrong::argument("a buffer has at least 1 kB")),
                kb => self.set_kb(kb),
            },
            Kind::SubbufKb => {
                let kb = number(text)?.div_ceil(4).max(1).next_power_of_two() * 4;
                if kb > 512 {
                    return Err(Wrong::argument("more than 512"));
                }
                self.subbuf_kb = kb;
                self.clear();
            }
            Kind::SavedCmdlinesSize => {
                if within(text, 1_000_000_000)? == 0 {
                    return Err(Errno::INVAL.into());
                }
            }
            Kind::Snapshot => self.write_snapshot(arg, number(text)?)?,
            // There are no events except the tracers' own.
            Kind::SetEvent if !text.trim().is_empty() => {
                return Err(Wrong::argument("a process has no events but calls"));
            }
            Kind::SetEvent | Kind::ErrorLog => {}
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(())
    }

    fn write_snapshot(&mut self, arg: u16, number: u64) -> Result<(), Wrong> {
        match number {
            0 if arg > 0 => {
                return Err(Wrong::argument("the snapshot is freed of all processors together"));
            }
            0 => self.snapshot = Snapshot::Freed,
            1 => self.take_snapshot(),
            _ => {
                if let Snapshot::Allocated(ring) = &mut self.snapshot {
                    ring.clear();
                }
            }
        }
        Ok(())
    }
}

/// Parses a mask: hexadecimal digits, in groups separated by commas.
fn cpumask(text: &str, processors: usize) -> Result<u64, Errno> {
    let digits: String = text.trim_end().split(',').collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Errno::INVAL);
    }
    let mask = u64::from_str_radix(digits.trim_start_matches('0'), 16)
        .or_else(|_| if digits.bytes().all(|byte| byte == b'0') { Ok(0) } else { Err(Errno::OVERFLOW) })?;
    if processors < 64 && mask >> processors != 0 { Err(Errno::OVERFLOW) } else { Ok(mask) }
}
