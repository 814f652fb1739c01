//! Sizes, times and numbers as users write them.

use crate::command_line::arguments::Arguments;
use anyhow::{Context, Result, bail};
use calltap_session::{Discovery, PatchMode};
use std::time::Duration;

/// Parses a size: `64K`, `256M`, `1G`, or bytes.
pub fn size(text: &str) -> Result<u64> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => bail!("'{text}' is not a size (bytes, or a number with K, M or G)"),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(bytes) => Ok(bytes),
        None => bail!("'{text}' is not a size (bytes, or a number with K, M or G)"),
    }
}

/// Returns the size that is the value of a flag.
pub fn size_of(arguments: &Arguments, name: &str) -> Result<Option<u64>> {
    let parse = |text: String| size(&text).with_context(|| format!("--{name}"));
    arguments.text(name).map(parse).transpose()
}

/// Returns the time that is the value of a flag.
pub fn time_of(arguments: &Arguments, name: &str) -> Result<Option<Duration>> {
    let parse = |text: String| time(&text).with_context(|| format!("--{name}"));
    arguments.text(name).map(parse).transpose()
}

/// Returns the share that is the value of a flag; `None` is no limit.
pub fn share_of(arguments: &Arguments, name: &str) -> Result<Option<f64>> {
    let parse = |text: String| share(&text).with_context(|| format!("--{name}"));
    Ok(arguments.text(name).map(parse).transpose()?.flatten())
}

/// Returns the value of `--buffer-size`; `None` if the size depends on the number of threads.
pub fn buffer_size(arguments: &Arguments) -> Result<Option<u64>> {
    match arguments.text("buffer-size").as_deref() {
        None | Some("auto") => Ok(None),
        Some(_) => match size_of(arguments, "buffer-size")? {
            Some(0) => bail!(
                "--buffer-size: 0 bytes hold no event: '16M' is a size, and 'auto' depends on the threads"
            ),
            size => Ok(size),
        },
    }
}

const NO_TIME: &str = "is not a time (seconds, or a number with ns, us, ms, s, m or h)";

/// Parses a time: `100ms`, `2s`, `500us`, `1.5s`, `10m`; a number alone is seconds.
pub fn time(text: &str) -> Result<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let (digits, factor) = match unit {
        "ns" => (0, 1),
        "us" => (3, 1),
        "ms" => (6, 1),
        "s" | "" => (9, 1),
        "m" | "min" => (9, 60),
        "h" => (9, 3600),
        _ => bail!("'{text}' {NO_TIME}"),
    };
    match scaled(number, digits).and_then(|ns| ns.checked_mul(factor)) {
        Some(ns) => Ok(Duration::from_nanos(ns)),
        None => bail!("'{text}' {NO_TIME}"),
    }
}

/// Multiplies a decimal number by 10 to the power of `places`. More decimals than that are an
/// error, unless they are zeros.
fn scaled(number: &str, places: usize) -> Option<u64> {
    let (whole, part) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, part)) => (whole, part.trim_end_matches('0')),
        None => (number, ""),
    };
    if whole.is_empty() || part.len() > places {
        return None;
    }
    format!("{whole}{part:0<places$}").parse().ok()
}

/// Returns the value of `--patch-mode`. `before-start` is refused for a process that already runs.
pub fn patch_mode(arguments: &Arguments, starts: bool) -> Result<PatchMode> {
    let word = arguments.text("patch-mode").unwrap_or_default();
    let mode = PatchMode::NAMES.iter().find(|(_, name)| *name == word);
    let mode = mode.map_or_else(PatchMode::default, |(mode, _)| *mode);
    if mode == PatchMode::BeforeStart && !starts {
        bail!("--patch-mode before-start needs a program that calltap starts: 'record -- PROGRAM'");
    }
    Ok(mode)
}

/// Returns the value of `--discovery`.
pub fn discovery(arguments: &Arguments) -> Discovery {
    match arguments.text("discovery").as_deref() {
        Some("first-call") => Discovery::FirstCall,
        _ => Discovery::AtLoad,
    }
}

/// Parses a share: `5%` is 0.05, `none` is no limit.
pub fn share(text: &str) -> Result<Option<f64>> {
    if text == "none" {
        return Ok(None);
    }
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    match number.filter(|number| number.is_finite() && *number > 0.0) {
        Some(percent) => Ok(Some(percent / 100.0)),
        None => bail!("'{text}' is not a percentage (as in 5%), nor 'none'"),
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_understood_or_refused() {
        assert_eq!(size("4096").unwrap(), 4096);
        assert_eq!(size("64K").unwrap(), 65536);
        assert_eq!(size("2MiB").unwrap(), 2 << 20);
        assert_eq!(time("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(time("2").unwrap(), Duration::from_secs(2));
        assert_eq!(time("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(time("2h").unwrap(), Duration::from_secs(7200));
        assert_eq!(time("0.3s").unwrap(), Duration::from_millis(300));
        assert_eq!(time("1.50us").unwrap(), Duration::from_nanos(1500));
        assert_eq!(share("5%").unwrap(), Some(0.05));
        assert_eq!(share("none").unwrap(), None);
        assert!(share("-1%").is_err() && share("much").is_err());
        for bad in ["", "M", "1X", "-1", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
            assert!(time(bad).is_err(), "{bad}");
        }
        for bad in ["5.", "5.s", ".5s", "1.2.3s", "0.5ns", "-1s", "1 s", "99999999999999999999ns"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
