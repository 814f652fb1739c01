//! Tests of the Perfetto export, decoded by a small parser of the protobuf wire format.

use crate::common::{recording, same};
use calltap_export::{Options, perfetto};
use calltap_trace::{ClockKind, Session};
use flate2::read::ZlibDecoder;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("wire type {other} is not used"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn number(message: &[u8], path: &[u64]) -> Option<u64> {
    let (&last, path) = path.split_last()?;
    let message = inner(message, path)?;
    fields(message).iter().find_map(|(field, value)| match value {
        Value::Number(number) if *field == last => Some(*number),
        _ => None,
    })
}

fn inner<'a>(message: &'a [u8], path: &[u64]) -> Option<&'a [u8]> {
    path.iter().try_fold(message, |message, wanted| {
        fields(message).into_iter().find_map(|(field, value)| match value {
            Value::Bytes(bytes) if field == *wanted => Some(bytes),
            _ => None,
        })
    })
}

fn text(message: &[u8], path: &[u64]) -> Option<String> {
    inner(message, path).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

/// Returns the packets inside the compressed packets of the file.
fn unpacked(trace: &[u8]) -> Vec<u8> {
    let mut packets = Vec::new();
    for (field, value) in fields(trace) {
        let Value::Bytes(packet) = value else { panic!("a packet is a message") };
        assert_eq!(field, 1, "a trace has packets only");
        let [(50, Value::Bytes(packed))] = &fields(packet)[..] else {
            panic!("packed packets, and nothing else")
        };
        ZlibDecoder::new(*packed).read_to_end(&mut packets).expect("a whole zlib stream");
    }
    packets
}

/// Returns the clocks that a sequence's snapshot sets: id, time, and whether the clock is
/// incremental.
fn snapshot(packet: &[u8]) -> Vec<(u64, u64, bool)> {
    let clock = |(_, value): &(u64, Value<'_>)| match value {
        Value::Bytes(clock) => {
            Some((number(clock, &[1])?, number(clock, &[2])?, number(clock, &[3]) == Some(1)))
        }
        Value::Number(_) => None,
    };
    inner(packet, &[6]).map_or_else(Vec::new, |snapshot| fields(snapshot).iter().filter_map(clock).collect())
}

/// Formats kind, name and annotations of an event.
fn of_event(event: &[u8], interned: &dyn Fn(u64) -> String) -> String {
    let kind = ["", "begin", "end", "instant"][number(event, &[9]).unwrap() as usize];
    let mut line = format!(" {kind}");
    let names = [number(event, &[10]).map(interned), text(event, &[23])];
    names.into_iter().flatten().for_each(|name| write!(line, " {name}").unwrap());
    for (field, value) in fields(event) {
        if let (4, Value::Bytes(annotation)) = (field, value) {
            let value = number(annotation, &[3]).or(number(annotation, &[2])).unwrap();
            write!(line, " {}={value}", text(annotation, &[10]).unwrap()).unwrap();
        }
    }
    line
}

/// Decodes a trace to one line per packet.
fn decode(trace: &[u8]) -> String {
    let mut lines = String::new();
    let mut names: HashMap<(u64, u64), String> = HashMap::new();
    let (mut clocks, mut tracks): (HashMap<u64, u64>, HashMap<u64, u64>) = Default::default();
    for (field, value) in fields(&unpacked(trace)) {
        let Value::Bytes(packet) = value else { panic!("a packet is a message") };
        assert_eq!(field, 1, "a trace has packets only");
        let sequence = number(packet, &[10]).expect("every packet is of a sequence");
        write!(lines, "{sequence}:").unwrap();
        match number(packet, &[13]) {
            Some(1) => lines.push_str(" cleared"),
            Some(2) => {}
            None => lines.push_str(" plain"),
            other => panic!("flags {other:?}"),
        }
        if let Some(clock) = number(packet, &[6, 2]) {
            write!(lines, " primary clock {clock}").unwrap();
        }
        if inner(packet, &[60, 3]).is_some() {
            let (pid, name) = (number(packet, &[60, 3, 1]).unwrap(), text(packet, &[60, 3, 6]).unwrap());
            write!(lines, " process {pid} {name}").unwrap();
        }
        if inner(packet, &[60, 4]).is_some() {
            let (pid, tid) = (number(packet, &[60, 4, 1]).unwrap(), number(packet, &[60, 4, 2]).unwrap());
            let name = text(packet, &[60, 4, 5]).unwrap();
            assert_eq!(
                number(packet, &[60, 1]),
                tracks.get(&sequence).copied(),
                "the default is its own track"
            );
            assert_eq!(
                inner(packet, &[6]),
                None,
                "Perfetto takes nothing else of a packet that relates clocks"
            );
            write!(lines, " thread {pid}/{tid} {name}").unwrap();
        }
        if inner(packet, &[59]).is_some() {
            let clock = number(packet, &[59, 58]).unwrap();
            write!(lines, ", clock {clock}").unwrap();
            tracks.insert(sequence, number(packet, &[59, 11, 11]).unwrap());
            let [(3, now, false), (64, same, true)] = snapshot(packet)[..] else {
                panic!("two clocks are related")
            };
            assert_eq!(now, same, "the incremental clock begins at the time of the other");
            clocks.insert(sequence, now);
        }
        if let Some(interned) = inner(packet, &[12, 2]) {
            let name = text(interned, &[2]).unwrap();
            names.insert((sequence, number(interned, &[1]).unwrap()), name);
            lines.push_str(" new name,");
        }
        if let Some(event) = inner(packet, &[11]) {
            lines.push_str(&of_event(event, &|iid| names[&(sequence, iid)].clone()));
            let time = number(packet, &[8]).unwrap();
            match number(packet, &[58]) {
                Some(3) => write!(lines, " at {time}").unwrap(),
                None => {
                    let now = clocks.get_mut(&sequence).expect("a clock");
                    *now += time;
                    write!(lines, " @{now}").unwrap();
                }
                other => panic!("clock {other:?}"),
            }
        }
        lines.push('\n');
    }
    lines
}

fn export(events: &str) -> Vec<u8> {
    let mut out = Vec::new();
    perfetto(&recording(events), &Options::default(), &mut out, None).unwrap();
    out
}

const PROGRAM: &str = "
    main: E main @0; E f @1000; X f @1500; L 4/3 @1600
    worker: E run @100; E f @150; X run/2 @300000; C tick @300001
    main: E f @3000; E g @3001; X g @4001";

#[test]
fn packets() {
    same(
        &decode(&export(PROGRAM)),
        "
        1: plain primary clock 3
        1: plain process 100 app
        2: cleared, clock 64
        2: plain thread 100/100 main
        2: new name, begin main @0
        2: new name, begin f @1000
        2: end @1500
        2: instant LOST entries=4 exits=3 @1600
        3: cleared, clock 64
        3: plain thread 100/101 worker
        3: new name, begin run @100
        3: new name, begin f @150
        3: end left=1 @150
        3: end @300000
        3: new name, instant tick @300001
        2: begin f @3000
        2: new name, begin g @3001
        2: end @4001
        2: end running=1 @4001
        2: end lost=1 @4001
    ",
    );
}

/// A clock pair may map an event to a time before its predecessor, and the recording may begin
/// after its first event.
#[test]
fn times_before_the_incremental_clock_are_absolute() {
    let mut source = recording("main: E f @5; X f @9; E f @20; X f @30");
    source.meta.session = Some(Session { start_monotonic_ns: 10, ..Session::of(ClockKind::Tsc) });
    let mut out = Vec::new();
    perfetto(&source, &Options::default(), &mut out, None).unwrap();
    let lines = decode(&out);
    let times: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.find(['@']).or(line.find(" at ")).map(|at| &line[at..]))
        .collect();
    assert_eq!(times, [" at 5", " at 9", "@20", "@30"], "{lines}");
}

#[test]
fn many_packets_are_packed_in_order() {
    // The program has forty batches.
    let program =
        format!("\n    main: {}E f @1000; X f @1500", "E f @1000; X f @1500; ".repeat(999)).repeat(40);
    let trace = export(&program);
    let lines = decode(&trace);
    let events: Vec<&str> = lines.lines().skip(4).collect();
    assert!(fields(&trace).len() > 1 && trace.len() < 400_000, "{} bytes", trace.len());
    assert_eq!(events.len(), 80_000);
    assert!(events.chunks(2).all(|pair| pair[0].contains("begin f") && pair[1].contains("end")));
}

#[test]
fn calls_deeper_than_perfetto_can_show_are_counted() {
    let deep = format!("main: {}{}X f @2", "E f @1; ".repeat(514), "X f @2; ".repeat(513));
    let lines = decode(&export(&deep));
    let count = |text: &str| lines.matches(text).count();
    assert_eq!((count("begin f"), count(": end "), count("end deeper calls=3 @2")), (511, 511, 1), "{lines}");
}

#[test]
fn protoc_decodes_the_export() {
    let protoc = std::process::Command::new("protoc")
        .arg("--decode_raw")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut protoc) = protoc else {
        // The output is not captured by the test harness.
        let _ = writeln!(std::io::stderr(), "SKIPPED: protoc not installed");
        return;
    };
    protoc.stdin.take().unwrap().write_all(&unpacked(&export(PROGRAM))).unwrap();
    let decoded = protoc.wait_with_output().unwrap();
    assert!(decoded.status.success());
    assert!(String::from_utf8_lossy(&decoded.stdout).contains("worker"));
}
