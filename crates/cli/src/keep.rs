//! `--slow`, `--graph` with `--depth`, and `--snapshot-on`: which part of what happens is kept.

use crate::arguments::Arguments;
use crate::values;
use anyhow::{Context, Result, bail};
use calltap_session::{Flight, Slow, Subject, Subtree, Trigger};
use calltap_trace::SlowRule;

/// `handle_request>10ms`
pub fn rule(flag: &str, text: &str) -> Result<SlowRule> {
    let (function, time) = text.rsplit_once('>').unwrap_or((text, ""));
    let (function, time) = (function.trim(), time.trim());
    if function.is_empty() || time.is_empty() {
        bail!("{flag}: '{text}' is not a function and a time, as in 'handle_request>10ms'");
    }
    let ns = values::time(time).with_context(|| format!("{flag}: '{text}'"))?.as_nanos();
    Ok(SlowRule { function: function.to_owned(), ns: u64::try_from(ns).unwrap_or(u64::MAX) })
}

/// What overwriting rings and a counter cannot tell.
fn must_see_all(flag: &str, arguments: &Arguments) -> Result<()> {
    if arguments.is_set("overwrite") {
        bail!("--{flag} and --overwrite exclude each other: what is overwritten cannot be judged");
    }
    if arguments.text("clock").as_deref() == Some("counter") {
        bail!("--{flag}: the counter clock does not tell how long calls take");
    }
    Ok(())
}

/// What `--slow` asks for.
pub fn slow(arguments: &Arguments) -> Result<Option<Slow>> {
    let rules = arguments.names("slow");
    if rules.is_empty() {
        return Ok(None);
    }
    let rules = rules.iter().map(|text| rule("--slow", text)).collect::<Result<Vec<SlowRule>>>()?;
    must_see_all("slow", arguments)?;
    let memory = values::size(&arguments.text("slow-memory").unwrap_or_default())?;
    Ok(Some(Slow { rules, memory }))
}

/// What `--graph` and `--depth` ask for.
pub fn subtree(arguments: &Arguments) -> Result<Option<Subtree>> {
    let (roots, depth) = (arguments.names("graph"), arguments.number("depth")?);
    if roots.is_empty() && depth.is_none() {
        return Ok(None);
    }
    if depth == Some(0) {
        bail!("--depth: no call is 0 levels deep; 1 is the outermost calls");
    }
    for flag in ["slow", "snapshot-on"] {
        if !arguments.texts(flag).is_empty() {
            bail!("--graph and --depth do not go with --{flag}: use them when the trace is read");
        }
    }
    if arguments.is_set("overwrite") {
        bail!(
            "--graph and --depth do not go with --overwrite: calls whose beginnings are overwritten lie in nothing"
        );
    }
    Ok(Some(Subtree { roots, depth }))
}

/// What `--snapshot-on` asks for.
pub fn flight(arguments: &Arguments, subject: &Subject) -> Result<Option<Flight>> {
    let texts = arguments.names("snapshot-on");
    if texts.is_empty() {
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
                bail!("--snapshot-on: '{text}' is none of signal, crash, exit, nor 'FUNCTION>TIME'")
            }
            text => Trigger::Slow(rule("--snapshot-on", text)?),
        })
    };
    let on = texts.iter().map(trigger).collect::<Result<Vec<Trigger>>>()?;
    must_see_all("snapshot-on", arguments)?;
    if !arguments.texts("slow").is_empty() {
        bail!("--snapshot-on and --slow exclude each other: one keeps what was last, the other what is slow");
    }
    let files = arguments.number("snapshots")?.unwrap_or(0);
    if files == 0 {
        bail!("--snapshots: at least 1");
    }
    let last = values::time(&arguments.text("last").unwrap_or_default())?;
    let memory = values::size(&arguments.text("history").unwrap_or_default())?;
    Ok(Some(Flight { on, last, memory, files }))
}

/// The functions whose calls are judged: they have to be traced.
pub fn functions(slow: Option<&Slow>, subtree: Option<&Subtree>, flight: Option<&Flight>) -> Vec<String> {
    let of_flight = flight.into_iter().flat_map(|flight| &flight.on).filter_map(|trigger| match trigger {
        Trigger::Slow(rule) => Some(rule),
        _ => None,
    });
    let rules = slow.into_iter().flat_map(|slow| &slow.rules).chain(of_flight);
    let roots = subtree.into_iter().flat_map(|subtree| subtree.roots.iter().cloned());
    rules.map(|rule| rule.function.clone()).chain(roots).collect()
}
