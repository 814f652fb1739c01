//! Calls of functions that are switched off while they are open, written as texts.

use super::*;
use calltap_trace::{Batch, Calls, Ending, Unpacker};

/// `f@N` enters f with its slot N words below the top of the stack, `/f@N` returns; a microsecond passes with each.
/// `off:fg` begins to switch these functions off, `done` ends that. What is expected: the calls as they end.
fn check(events: &str, expected: &str) {
    let (mut open, mut encoder) = (OpenCalls::new(true), ThreadEncoder::new(ThreadId::default()));
    let (mut queue, mut newest) = (VecDeque::new(), None);
    for (ticks, word) in (1_u64..).zip(events.split_whitespace()).map(|(n, word)| (n * 1000, word)) {
        if let Some(names) = word.strip_prefix("off:") {
            let sites = names.bytes().map(|name| SiteId(name.into())).collect();
            let off = Arc::new(SwitchedOff { sites, began: ticks, ended: Default::default() });
            queue.push_back(Arc::clone(newest.insert(off)));
        } else if let ("done", Some(off)) = (word, &newest) {
            off.ended.set(ticks).expect("it ends once");
        } else {
            let call = word.trim_start_matches('/');
            let (name, at) = call.split_once('@').expect("f@N");
            let code = if call == word { code::ENTRY } else { code::EXIT };
            let slot = 0xfff_0000_0000 - at.parse::<u64>().expect("a number");
            let low = u32::from(name.as_bytes()[0]) << 5 | code;
            let raw = RawEvent { ticks, low, slot, parent: 0 };
            Encode::new(&mut open, &mut encoder, None, &mut queue).take(raw, &[], &[]);
        }
    }
    assert_eq!(endings(&mut encoder), expected, "{events}");
}

/// How the calls ended that the encoder has.
fn endings(encoder: &mut ThreadEncoder) -> String {
    let (mut calls, mut got) = (Calls::default(), Vec::new());
    let mut end = |calls: &mut Calls<()>, closing| {
        while let Some((call, ending)) = calls.close(&closing) {
            got.push(format!("{}:{}", call.site.0 as u8 as char, ending.name()));
        }
    };
    Unpacker::default().events(encoder, |batch: &Batch| {
        for event in &batch.events {
            match event.kind {
                EventKind::Entry => calls.enter(event.site, false, ()),
                _ => calls.end(event).into_iter().for_each(|closing| end(&mut calls, closing)),
            }
        }
    });
    let closing = calls.finish(Ending::Running);
    end(&mut calls, closing);
    got.join(" ")
}

#[test]
fn a_call_whose_return_is_switched_off_while_it_is_open_was_not_left() {
    check("m@1 f@2 off:f done n@2 /n@2 /m@1", "f:switched_off n:returned m:returned");
    // What shows that it is over comes before all of them are off.
    check("m@1 f@2 off:f n@2 /n@2 done /m@1", "f:switched_off n:returned m:returned");
    check("m@1 f@2 g@3 off:fg /m@1 done", "g:switched_off f:switched_off m:returned");
}

#[test]
fn so_is_one_that_begins_before_its_function_is_off() {
    check("m@1 off:f f@2 n@2 /n@2 done /m@1", "f:switched_off n:returned m:returned");
    check("m@1 off:fg f@2 g@3 /m@1 m@1 done /m@1", "g:switched_off f:switched_off m:returned m:returned");
}

#[test]
fn one_that_returns_meanwhile_has_returned() {
    check("m@1 f@2 off:f g@3 n@3 /n@3 /f@2 done /m@1", "g:left n:returned f:returned m:returned");
}

#[test]
fn one_that_was_left_before_or_of_another_function_was_left() {
    check("m@1 f@2 n@2 off:f /n@2 done /m@1", "f:left n:returned m:returned");
    check("m@1 f@2 off:g n@2 done /n@2 /m@1", "f:left n:returned m:returned");
    check("m@1 off:f done g@2 n@2 /n@2 /m@1", "g:left n:returned m:returned");
}
