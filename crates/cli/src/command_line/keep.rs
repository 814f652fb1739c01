//! `--slow`, `--graph` with `--depth`, `--on`, and `--snapshot-on`: which part of the recorded
//! calls is kept.

use crate::command_line::arguments::Arguments;
use crate::command_line::values;
use anyhow::{Context, Result, anyhow, bail};
use calltap_session::{CallTrigger, Flight, KeepRules, Slow, Subject, Subtree, Trigger};
use calltap_trace::{Action, SlowRule};

/// Parses a rule such as `handle_request>10ms`.
pub fn rule(flag: &str, text: &str) -> Result<SlowRule> {
    let (function, time) = text.rsplit_once('>').unwrap_or((text, ""));
    let (function, time) = (function.trim(), time.trim());
    if function.is_empty() || time.is_empty() {
        bail!("{flag}: '{text}' is not a function and a time, as in 'handle_request>10ms'");
    }
    let ns = values::time(time).with_context(|| format!("{flag}: '{text}'"))?.as_nanos();
    Ok(SlowRule { function: function.to_owned(), ns: u64::try_from(ns).unwrap_or(u64::MAX) })
}

/// Refuses a flag that judges calls together with overwriting rings or the counter clock.
fn must_see_all(flag: &str, arguments: &Arguments) -> Result<()> {
    if arguments.is_set("overwrite") {
        bail!(
            "--{flag} and --overwrite exclude each other: --overwrite may lose a call before its duration is known"
        );
    }
    if arguments.text("clock").as_deref() == Some("counter") {
        bail!("--{flag} and '--clock counter' exclude each other: the counter has no durations");
    }
    Ok(())
}

/// Returns the rules of `--slow`.
pub fn slow(arguments: &Arguments) -> Result<Option<Slow>> {
    let rules = arguments.names("slow");
    if rules.is_empty() {
        return Ok(None);
    }
    let rules = rules.iter().map(|text| rule("--slow", text)).collect::<Result<Vec<SlowRule>>>()?;
    must_see_all("slow", arguments)?;
    let memory = values::size_of(arguments, "slow-memory")?.unwrap_or_default();
    Ok(Some(Slow { rules, memory }))
}

/// Returns the triggers of `--on`: `'f:trace_on'`, `trace_off`, `snapshot`, `depth=N`.
fn triggers(arguments: &Arguments) -> Result<Vec<CallTrigger>> {
    arguments.names("on").iter().map(|text| trigger(text)).collect()
}

/// Parses `FUNCTION:ACTION[:COUNT]`.
fn trigger(text: &str) -> Result<CallTrigger> {
    let wrong = || {
        anyhow!(
            "--on: '{text}' is not FUNCTION:ACTION[:COUNT]; actions are trace_on, trace_off, snapshot and depth=N"
        )
    };
    let action = |text: &str| match text {
        // ftrace's spelling, without the underscore, is accepted as well.
        "trace_on" | "traceon" => Some(Action::TraceOn),
        "trace_off" | "traceoff" => Some(Action::TraceOff),
        "snapshot" => Some(Action::Snapshot),
        other => {
            let levels = other.strip_prefix("depth=")?.parse().ok().filter(|levels| *levels > 0)?;
            Some(Action::Depth(levels))
        }
    };
    let (before, last) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (function, action, count) = match (action(last), before.rsplit_once(':')) {
        (Some(found), _) => (before, found, None),
        (None, Some((function, word))) => {
            let count = last.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
            (function, action(word).ok_or_else(wrong)?, Some(count))
        }
        (None, None) => return Err(wrong()),
    };
    if function.is_empty() {
        return Err(wrong());
    }
    if let (Action::Depth(_), Some(_)) = (action, count) {
        bail!("--on: '{text}': a depth is kept at every call, and has no count");
    }
    Ok(CallTrigger { function: function.to_owned(), action, count })
}

/// Returns the changes of `set --graph`, `--callers` and `--depth`; an empty word clears a setting.
pub fn kept(arguments: &Arguments) -> Result<KeepRules> {
    let names = |flag| (!arguments.texts(flag).is_empty()).then(|| arguments.names(flag));
    let depth = match arguments.text("depth") {
        Some(text) if text.is_empty() => Some(0),
        _ => levels(arguments)?,
    };
    Ok(KeepRules { roots: names("graph"), targets: names("callers"), depth })
}

/// Returns the value of `--depth`.
fn levels(arguments: &Arguments) -> Result<Option<usize>> {
    let levels = arguments.number("depth")?;
    if levels == Some(0) {
        bail!("--depth: no call is 0 levels deep; 1 is the outermost calls");
    }
    Ok(levels)
}

/// Returns the part of the call tree that `--graph`, `--callers`, `--depth` and `--on` select.
/// Snapshots are left to [`flight`].
pub fn subtree(arguments: &Arguments) -> Result<Option<Subtree>> {
    let (roots, targets) = (arguments.names("graph"), arguments.names("callers"));
    let depth = levels(arguments)?;
    let mut triggers = triggers(arguments)?;
    triggers.retain(|trigger| trigger.action != Action::Snapshot);
    let subtree = Subtree { roots, targets, depth, triggers };
    if subtree.is_all() {
        return Ok(None);
    }
    let switches = subtree.triggers.iter().any(|trigger| trigger.action.switches());
    if let Some(clock) = arguments.text("clock").filter(|clock| switches && clock != "tsc") {
        bail!(
            "--on and '--clock {clock}' exclude each other: this clock does not order the calls of different threads"
        );
    }
    for flag in ["slow", "snapshot-on"] {
        if !arguments.texts(flag).is_empty() {
            bail!(
                "--graph, --callers, --depth and --on exclude --{flag}: choose a part when the trace is read, as in 'calltap report --graph'"
            );
        }
    }
    if arguments.is_set("overwrite") {
        bail!(
            "--graph, --callers, --depth and --on exclude --overwrite: it may overwrite the callers of a call"
        );
    }
    if triggers_snapshots(arguments)? {
        bail!(
            "--on: the action snapshot excludes other actions, --graph, --callers and --depth: a snapshot has all calls"
        );
    }
    Ok(Some(subtree))
}

fn triggers_snapshots(arguments: &Arguments) -> Result<bool> {
    Ok(triggers(arguments)?.iter().any(|trigger| trigger.action == Action::Snapshot))
}

/// Returns the triggers of snapshots, of `--snapshot-on` and `--on`.
pub fn flight(arguments: &Arguments, subject: &Subject) -> Result<Option<Flight>> {
    let texts = arguments.names("snapshot-on");
    if texts.is_empty() && !triggers_snapshots(arguments)? {
        return Ok(None);
    }
    let trigger = |text: &String| {
        Ok(match text.as_str() {
            "signal" => Trigger::Signal,
            "crash" if matches!(subject, Subject::Process { .. }) => {
                bail!(
                    "--snapshot-on crash: only the parent of a process learns how it ends; 'exit' works with -p"
                )
            }
            "crash" => Trigger::Crash,
            "exit" => Trigger::Exit,
            text if !text.contains('>') => {
                bail!("--snapshot-on: '{text}' is none of signal, crash, exit, 'FUNCTION>TIME'")
            }
            text => Trigger::Slow(rule("--snapshot-on", text)?),
        })
    };
    let mut on = texts.iter().map(trigger).collect::<Result<Vec<Trigger>>>()?;
    let calls = triggers(arguments)?.into_iter().filter(|trigger| trigger.action == Action::Snapshot);
    on.extend(calls.map(|CallTrigger { function, count, .. }| Trigger::Called { function, count }));
    must_see_all("snapshot-on", arguments)?;
    if !arguments.texts("slow").is_empty() {
        bail!(
            "--snapshot-on and --slow exclude each other: one keeps the last calls, the other the slow ones"
        );
    }
    let files = arguments.number("snapshots")?.unwrap_or(0);
    if files == 0 {
        bail!("--snapshots must be at least 1");
    }
    let last = values::time_of(arguments, "last")?.unwrap_or_default();
    let memory = values::size_of(arguments, "history")?.unwrap_or_default();
    if last.is_zero() || memory == 0 {
        bail!("{}: a snapshot would have no calls", if last.is_zero() { "--last 0" } else { "--history 0" });
    }
    Ok(Some(Flight { on, last, memory, files }))
}

/// Returns the functions whose calls are judged, and which therefore have to be traced.
pub fn functions(slow: Option<&Slow>, subtree: Option<&Subtree>, flight: Option<&Flight>) -> Vec<String> {
    let called = flight.into_iter().flat_map(|flight| &flight.on).filter_map(|trigger| match trigger {
        Trigger::Called { function, .. } => Some(function),
        Trigger::Slow(_) | Trigger::Signal | Trigger::Crash | Trigger::Exit => None,
    });
    let of_subtree = subtree.into_iter().flat_map(Subtree::functions);
    timed(slow, flight).into_iter().chain(called.chain(of_subtree).cloned()).collect()
}

/// Returns the functions whose calls are judged by their durations.
pub fn timed(slow: Option<&Slow>, flight: Option<&Flight>) -> Vec<String> {
    let of_flight = flight.into_iter().flat_map(|flight| &flight.on).filter_map(|trigger| match trigger {
        Trigger::Slow(rule) => Some(rule),
        _ => None,
    });
    let rules = slow.into_iter().flat_map(|slow| &slow.rules).chain(of_flight);
    rules.map(|rule| rule.function.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_name_functions_as_filters_do() {
        let check = |text: &str, expected: Option<(&str, Action, Option<i64>)>| {
            let found = trigger(text).ok();
            let found = found.as_ref().map(|found| (found.function.as_str(), found.action, found.count));
            assert_eq!(found, expected, "{text}");
        };
        check("f:trace_on", Some(("f", Action::TraceOn, None)));
        check("ns::Srv::handle(int):traceoff:3", Some(("ns::Srv::handle(int)", Action::TraceOff, Some(3))));
        check("libssl:SSL_*:snapshot", Some(("libssl:SSL_*", Action::Snapshot, None)));
        check("f:depth=2", Some(("f", Action::Depth(2), None)));
        for wrong in [
            "f",
            "f:",
            ":trace_on",
            "f:stop",
            "f:trace_on:0",
            "f:trace_on:x",
            "f:depth=0",
            "f:depth=2:1",
            "trace_on:3",
        ] {
            check(wrong, None);
        }
    }
}
