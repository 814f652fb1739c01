//! The description as JSON: the metadata records, and sums for scripts.

use super::{Entered, Options, active_ns, damage, sites_by_module};
use crate::head::disabled;
use crate::names::Names;
use crate::sources::source::Source;
use calltap_trace::{DisabledByLimit, Meta};
use serde_json::{Value, json};
use std::io::{self, Write};

pub(super) fn write(source: &dyn Source, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let (meta, entered) = (source.meta(), Entered::by_thread(source));
    let threads: Vec<Value> = meta
        .threads
        .iter()
        .map(|thread| {
            let pid = meta.processes.get(thread.process as usize).map(|process| process.pid);
            json!({
                "tid": thread.tid,
                "pid": pid,
                "thread": thread.comm,
                "goroutine": thread.goroutine,
                "active_ns": active_ns(source, thread.id),
                "calls": entered.get(&thread.id),
            })
        })
        .collect();
    let modules: Vec<Value> = meta
        .modules
        .iter()
        .zip(sites_by_module(source))
        .map(|(module, functions)| {
            json!({
                "path": module.path,
                "build_id": module.build_id,
                "bias": module.bias,
                "range": module.range,
                "unloaded": module.unloaded_ticks.is_some(),
                "functions": functions,
                "untraceable": module.untraceable.named,
                "untraceable_count": module.untraceable.count,
            })
        })
        .collect();
    let names = Names::new(meta, options.linker_names);
    let sum = Entered::sum(&entered);
    let marks = sum.marks(source);
    let (unreadable, damage) = damage(source);
    let mut info = json!({
        "calltap_info": 1,
        "session": meta.session,
        "events": source.event_count() - marks,
        "marks": marks,
        "unreadable": { "events": unreadable, "chunks": damage.damaged, "first": damage.first_damage },
        "functions": meta.sites.len(),
        "calls": sum,
        "processes": meta.processes,
        "threads": threads,
        "modules": modules,
        "slow": meta.slow,
        "kept": meta.kept,
        "conditions": meta.conditions,
        disabled::KEY: disabled::functions(meta, &names),
        "rates_when_disabled": rates(meta, &names),
        "scheduling": meta.scheduling,
        "kernel_events": meta.kernel_events,
        "notes": meta.notes,
        "complaints": source.complaints(),
        "end": meta.end,
    });
    if options.sites {
        info["sites"] = sites(meta, &names);
    }
    serde_json::to_writer_pretty(&mut *out, &info)?;
    writeln!(out)
}

/// Returns the functions that the overhead limit disabled, with their rates at that time.
fn rates(meta: &Meta, names: &Names<'_>) -> Vec<Value> {
    let rate = |one: &DisabledByLimit| json!({ "function": names.function(one.site), "events_per_s": one.events_per_s });
    meta.disabled_by_limit.iter().map(rate).collect()
}

fn sites(meta: &Meta, names: &Names<'_>) -> Value {
    let sites = meta.sites.iter().map(|site| {
        json!({
            "function": names.function(site.id),
            "linker_name": site.name,
            "module": names.module(site.id),
            "address": site.address,
            "size": site.size,
            "kind": site.kind,
        })
    });
    sites.collect()
}
