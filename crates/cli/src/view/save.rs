//! `calltap view --save`: the page as one file, which can be viewed without calltap, as it contains
//! the answers to the page's questions.
//!
//! The file has the blocks of the timeline at the finest resolution within a limit; the page joins
//! them as the server does. It has the details of the functions with the most time.

use super::api::{self, Query, Refusal};
use super::compare::Compared;
use super::server::FILES;
use anyhow::{Context, Result, anyhow};
use calltap_analysis::explore::{CallId, Explorer};
use calltap_analysis::{Source, units};
use calltap_trace::SiteId;
use serde_json::{Value, json};
use std::fmt::Write;

/// Number of blocks of the timeline at most: some 35 bytes each.
const BLOCKS: usize = 150_000;
/// Number of pieces of bands of states at most.
const PIECES: usize = 50_000;
/// The finest resolution after 0, which keeps every call; in nanoseconds.
const FINE: u64 = 32;
/// Bytes of details of functions at most, and of their flame graphs.
const DETAILS: usize = 3 << 20;
const FLAMES: usize = 3 << 20;
/// Number of functions with a heatmap: some 5 KB each.
const HEATS: usize = 100;
/// Number of functions whose slowest calls have their arguments and results: some 100 bytes for
/// each call.
const VALUED: usize = 100;
/// Width of the narrowest box as a share of the graph's width: of the flame graph of all functions,
/// in which the page can zoom, and of those of single functions.
const MIN_BOX_WIDTH: f64 = 1.0 / 30_000.0;
const MIN_BOX_WIDTH_OF_FUNCTION: f64 = 1.0 / 1000.0;
/// Number of columns of the overview.
const COLUMNS: u32 = 2048;
/// The times that a flame graph can show.
const TIMES: [&str; 5] = ["wall", "cpu", "runnable", "blocked", "tracing"];
/// The content security policy: nothing is loaded from outside the file.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A saved page.
pub struct Saved {
    /// The page as HTML.
    pub text: String,
    /// A sentence about the limits of the page.
    pub note: String,
}

/// Returns the page of a trace.
pub fn page<S: Source + Sync>(explorer: &Explorer<S>, base: Option<&Compared>, title: &str) -> Result<Saved> {
    let mut found = Answers::default();
    found.add_details(explorer, title)?;
    found.add_flames(explorer)?;
    let (resolution, lanes) = lanes(explorer)?;
    let note = found.note(explorer, resolution);
    let mut summary: Value = serde_json::from_str(&ask(explorer, title, "summary", "")?)?;
    if let Some(notes) = summary["notes"].as_array_mut() {
        notes.push(note.clone().into());
    }
    let (functions, overview) = (
        ask(explorer, title, "functions", "")?,
        ask(explorer, title, "overview", &format!("columns={COLUMNS}"))?,
    );
    let data = format!(
        "{{\"summary\":{summary},\"functions\":{functions},\"overview\":{overview},\"exact\":{},\"lanes\":{lanes},\"details\":{{{}}},\"flames\":{{{}}},\"heats\":{},\"values\":{},\"sources\":{},\"base\":{},\"compared\":{}}}",
        resolution == 0,
        found.details.join(","),
        found.flames.join(","),
        heats(explorer)?,
        values(explorer)?,
        sources(explorer),
        base.map_or(Value::Null, |base| base.describe(explorer)),
        base.map(|base| differences(explorer, base)).transpose()?.unwrap_or_default()
    );
    Ok(Saved { text: html(&data)?, note })
}

/// Returns the server's answer to a question.
fn ask<S: Source + Sync>(explorer: &Explorer<S>, title: &str, name: &str, query: &str) -> Result<String> {
    api::explore(explorer, title, name, &Query(query)).map_err(|refusal| anyhow!("{}", refusal.why))
}

/// The answers about single functions, each as a member of a JSON object.
#[derive(Default)]
struct Answers {
    details: Vec<String>,
    flames: Vec<String>,
}

impl Answers {
    /// Adds details of functions, those with the most time first.
    fn add_details<S: Source + Sync>(&mut self, explorer: &Explorer<S>, title: &str) -> Result<()> {
        let mut size = 0;
        for site in by_time(explorer) {
            let answer = ask(explorer, title, "function", &format!("f={site}"))?;
            size += answer.len();
            if size > DETAILS {
                break;
            }
            self.details.push(format!("\"{site}\":{answer}"));
        }
        Ok(())
    }

    /// Adds the flame graph of all functions, by each recorded kind of time, and those of single
    /// functions.
    fn add_flames<S: Source + Sync>(&mut self, explorer: &Explorer<S>) -> Result<()> {
        let times = if explorer.source.has_switches() { &TIMES[..] } else { &TIMES[..1] };
        let mut size = 0;
        for by in times {
            let answer = flame(explorer, &format!("by={by}&root=0"), MIN_BOX_WIDTH)?;
            self.flames.push(format!("\"{by}\":{answer}"));
        }
        for site in by_time(explorer) {
            for (by, callers) in times.iter().flat_map(|by| [(by, 0), (by, 1)]) {
                let query = format!("by={by}&f={site}&callers={callers}");
                // The function's paths may be missing, as there were too many paths.
                let Ok(answer) = flame(explorer, &query, MIN_BOX_WIDTH_OF_FUNCTION) else { continue };
                size += answer.len();
                self.flames.push(format!("\"{by}.{site}.{callers}\":{answer}"));
            }
            if size > FLAMES {
                break;
            }
        }
        Ok(())
    }

    fn note<S>(&self, explorer: &Explorer<S>, resolution: u64) -> String {
        let calls = match resolution {
            0 => "every call is in it".to_owned(),
            ns => format!(
                "calls within {} of each other are one block, and single calls of the chosen function are not marked",
                units::duration(ns)
            ),
        };
        let all = explorer.functions.len();
        let details = match self.details.len() {
            few if few < all => {
                format!(
                    "details of the {} functions with the most time of {}",
                    units::count(few as u64),
                    units::count(all as u64)
                )
            }
            _ => "details of all functions".to_owned(),
        };
        format!("A saved page: {calls}; {details}; flame graph and functions cover the whole recording")
    }
}

/// Returns the heatmaps of the functions with the most time, by function.
fn heats<S: Source>(explorer: &Explorer<S>) -> Result<Value> {
    let sites: Vec<u32> = by_time(explorer).into_iter().take(HEATS).collect();
    let functions: Vec<_> = sites.iter().filter_map(|site| explorer.function(SiteId(*site))).collect();
    let all = if explorer.source.has_time() { api::heats(explorer, &functions)? } else { Vec::new() };
    Ok(Value::Object(sites.iter().map(u32::to_string).zip(all).collect()))
}

/// Returns the source lines of functions, by function.
fn sources<S: Source>(explorer: &Explorer<S>) -> Value {
    let all = explorer.functions.iter();
    let known = all.filter_map(|one| Some((one.site.0.to_string(), api::source_text(explorer, one)?.into())));
    Value::Object(known.collect())
}

/// Returns the arguments and results of the slowest calls of the functions with the most time, by
/// thread, beginning and depth.
fn values<S: Source>(explorer: &Explorer<S>) -> Result<Value> {
    let functions = by_time(explorer).into_iter().filter_map(|site| explorer.function(SiteId(site)));
    let functions: Vec<_> = functions.filter(|function| explorer.has_values(function)).take(VALUED).collect();
    let slowest = functions.iter().flat_map(|function| explorer.slowest(function));
    let calls: Vec<CallId> = slowest.map(|call| (call.thread, call.start_ns, call.depth)).collect();
    if calls.is_empty() {
        return Ok(json!({}));
    }
    let found = explorer.values_of(&functions, &calls)?;
    let named = |(thread, start, depth): &CallId| format!("{}.{start}.{depth}", thread.0);
    Ok(found.iter().map(|(place, values)| (named(place), api::values_json(values))).collect())
}

/// Returns the flame graphs of differences of all calls, by time and by whether widths are the
/// base's.
fn differences<S: Source>(explorer: &Explorer<S>, base: &Compared) -> Result<Value> {
    let times = if base.base.has_switches(explorer) { &TIMES[..] } else { &TIMES[..1] };
    let mut all = serde_json::Map::new();
    for (by, of_base) in times.iter().flat_map(|by| [(by, 0), (by, 1)]) {
        let query = format!("by={by}&base={of_base}&root=0");
        let flame = base.flame_from(explorer, &Query(&query), MIN_BOX_WIDTH);
        all.insert(format!("{by}.{of_base}"), flame.map_err(|refusal| anyhow!("{}", refusal.why))?);
    }
    Ok(all.into())
}

fn flame<S: Source>(explorer: &Explorer<S>, query: &str, narrowest: f64) -> Result<String> {
    let answer = api::flame(explorer, &Query(query), narrowest);
    answer.map(|answer| answer.to_string()).map_err(|refusal| anyhow!("{}", refusal.why))
}

/// Returns the sites of functions, those with the most time first.
fn by_time<S>(explorer: &Explorer<S>) -> Vec<u32> {
    let mut functions: Vec<_> = explorer.functions.iter().collect();
    functions.sort_by_key(|function| {
        let total = function.times.as_ref().map_or(0, |times| times.total_ns);
        std::cmp::Reverse((total, function.calls))
    });
    functions.iter().map(|function| function.site.0).collect()
}

/// Returns the resolution in nanoseconds, and the timelines of all threads at it. At 0 they have
/// every call.
fn lanes<S: Source + Sync>(explorer: &Explorer<S>) -> Result<(u64, String)> {
    let timeline = &explorer.timeline;
    let window = (0, timeline.end());
    let count = |resolution: u64| {
        let tracks = timeline.threads().flat_map(|thread| {
            let window = timeline.window(&explorer.source, thread, window, resolution);
            window.tracks.into_iter().chain([window.lost])
        });
        tracks.map(|track| track.len()).sum::<usize>()
    };
    let resolution = finest(timeline.quantum(), BLOCKS, count);
    let mut bands = Vec::new();
    for thread in timeline.threads() {
        bands.extend(timeline.band(&explorer.source, thread)?);
    }
    let pieces = |resolution: u64| {
        bands.iter().map(|band| band.window(window.0, window.1, resolution).len()).sum::<usize>()
    };
    let of_states = finest(0, PIECES, pieces);
    let mut text = String::from("[");
    for thread in timeline.threads() {
        text += if text.len() > 1 { "," } else { "" };
        let lane = api::TimelineRequest { thread, tracks: (0, u32::MAX), window, resolution, of_states };
        lane.write(explorer, None, &mut text).map_err(|Refusal { why, .. }| anyhow!("{why}"))?;
    }
    Ok((resolution, text + "]"))
}

/// Returns the finest resolution from `from` on with at most `most` pieces.
fn finest(from: u64, most: usize, count: impl Fn(u64) -> usize) -> u64 {
    let mut resolution = from;
    while count(resolution) > most && resolution < u64::MAX / 4 {
        resolution = (resolution * 2).max(FINE);
    }
    resolution
}

/// Joins the page's files into one. Modules import each other by names, which an import map
/// resolves to their texts.
fn html(data: &str) -> Result<String> {
    let file = |name: &str| {
        let found = FILES.iter().find(|(known, ..)| *known == name);
        found.map(|(_, _, text)| *text).with_context(|| format!("the page has no file {name}"))
    };
    let url = |kind: &str, text: &str| format!("data:{kind},{}", percent_encoded(text));
    let modules = FILES.iter().filter(|(name, ..)| name.ends_with(".js"));
    let modules =
        modules.map(|(name, _, text)| (*name, *text)).chain([("saved.js", include_str!("page/saved.js"))]);
    let imports = modules.map(|(name, text)| {
        let text = text.replace("from \"./", "from \"calltap/");
        (format!("calltap/{name}"), url("text/javascript", &text).into())
    });
    let map = json!({ "imports": imports.collect::<serde_json::Map<String, Value>>() });
    let icon = url("image/svg+xml", file("icon.svg")?);
    let script = "import \"calltap/saved.js\"; import \"calltap/page.js\";";
    let head = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<style>\n{}</style>\n<script type=\"importmap\">{map}</script>\n<script type=\"module\">{script}</script>",
        file("style.css")?
    );
    let data = data.replace('<', "\\u003c");
    Ok(file("")?
        .replace("<link rel=\"stylesheet\" href=\"style.css\">\n", "")
        .replace("icon.svg", &icon)
        .replace("<script type=\"module\" src=\"page.js\"></script>", &head)
        .replace(
            "</body>",
            &format!("<script type=\"application/json\" id=\"saved\">{data}</script>\n</body>"),
        ))
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 2), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}
