//! Writes chains as JSON: the content of the text, unabridged, with null for unknowns.

use super::chain::Chain;
use super::descriptions::{Descriptions, WaitGroup, WakerDescription};
use super::explained::{Explained, since_start};
use calltap_trace::SiteId;
use serde_json::{Value, json};

/// Returns all chains.
pub(crate) fn chains(explained: &Explained, descriptions: &Descriptions<'_>) -> Value {
    let calls = explained.chains.iter().map(|(slow, chain)| {
        let call = &slow.call;
        json!({
            "function": descriptions.names.function(call.site),
            "thread": descriptions.names.comm(slow.thread),
            "tid": descriptions.names.tid(slow.thread),
            "start_ns": since_start(descriptions.source, call.start),
            "duration_ns": descriptions.source.duration_ns(call.total),
            "returned": !call.ending.is_cut(),
            "did": did(descriptions, chain, Some(call.site)),
        })
    });
    Value::Array(calls.collect())
}

pub(crate) fn did(descriptions: &Descriptions<'_>, chain: &Chain, from: Option<SiteId>) -> Value {
    let ns = |ticks: u64| descriptions.source.duration_ns(ticks);
    let functions = |times: Vec<(String, u64)>| {
        let times = times.into_iter();
        times
            .map(|(function, ticks)| json!({ "function": function, "ns": ns(ticks) }))
            .collect::<Vec<Value>>()
    };
    let (ran, unknown) = (functions(descriptions.ran(chain)), functions(descriptions.unseen(chain)));
    let waits: Vec<Value> =
        descriptions.alike(chain, from).iter().map(|one| wait(descriptions, one)).collect();
    json!({
        "cpu_ns": ns(chain.ran),
        "ran": ran,
        "runnable_ns": ns(chain.runnable),
        "unknown_ns": ns(chain.unknown),
        "unknown": unknown,
        "blocked": waits,
    })
}

fn wait(descriptions: &Descriptions<'_>, one: &WaitGroup<'_>) -> Value {
    json!({
        "ns": descriptions.source.duration_ns(one.ticks),
        "waits": one.count,
        "max_ns": descriptions.source.duration_ns(one.longest.ticks),
        "max_at_ns": since_start(descriptions.source, one.longest.time.start),
        "in": one.cause.within,
        "path": one.cause.path,
        "woken_by": waker(descriptions, &one.cause.waker),
        "meanwhile": one.longest.meanwhile.as_ref().map(|chain| did(descriptions, chain, None)),
    })
}

pub(crate) fn waker(descriptions: &Descriptions<'_>, waker: &WakerDescription) -> Value {
    match waker {
        WakerDescription::Unknown | WakerDescription::NotRecorded => Value::Null,
        WakerDescription::GoRuntime { path } => json!({ "kind": "go_runtime", "path": path }),
        WakerDescription::Interrupt => json!({ "kind": "interrupt" }),
        WakerDescription::Recorder => json!({ "kind": "calltap" }),
        WakerDescription::Stopped => json!({ "kind": "stopped_by_calltap" }),
        WakerDescription::StoppedOrChild => json!({ "kind": "stopped_by_calltap_or_child" }),
        WakerDescription::Other { pid, comm } => json!({ "kind": "process", "pid": pid, "comm": comm }),
        WakerDescription::Untraced { tid, comm } => json!({
            "kind": "thread",
            "thread": comm,
            "tid": tid,
            "path": null,
        }),
        WakerDescription::Thread { thread, path } => json!({
            "kind": "thread",
            "thread": descriptions.names.comm(*thread),
            "tid": descriptions.names.tid(*thread),
            "path": path,
        }),
    }
}
