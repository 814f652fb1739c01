//! Records match the texts that describe them.

use calltap_ringbuffer::{formats, record};

/// Returns the bytes of a field, found by the text that describes the record.
fn field<'a>(name: &str, record: &'a [u8]) -> &'a [u8] {
    let id = u16::from_le_bytes(record[..2].try_into().unwrap());
    let text = formats::EVENTS.iter().find(|(_, text)| text.contains(&format!("\nID: {id}\n")));
    let (_, text) = text.expect("every record is described");
    let line =
        text.lines().find(|line| line.contains(&format!(" {name};")) || line.contains(&format!(" {name}[]")));
    let line = line.unwrap_or_else(|| panic!("no field {name} in {text}"));
    let part = |key: &str| -> usize {
        let rest = line.split_once(key).expect("the kernel's form").1;
        rest.split_once(';').expect("the kernel's form").0.parse().unwrap()
    };
    let (offset, size) = (part("offset:"), part("size:"));
    &record[offset..if size == 0 { record.len() } else { offset + size }]
}

fn number(name: &str, record: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let field = field(name, record);
    bytes[..field.len()].copy_from_slice(field);
    u64::from_le_bytes(bytes)
}

fn numbers<const N: usize>(names: [&str; N], record: &[u8]) -> [u64; N] {
    names.map(|name| number(name, record))
}

#[test]
fn fields_are_where_the_formats_say() {
    let entered = record::function(77, 0x1234_5678_9abc, 0xdef0);
    assert_eq!(
        numbers(["common_type", "common_pid", "ip", "parent_ip"], &entered),
        [1, 77, 0x1234_5678_9abc, 0xdef0]
    );
    let entry = record::graph_entry(78, 0x11, 3);
    assert_eq!(numbers(["common_type", "common_pid", "func", "depth"], &entry), [11, 78, 0x11, 3]);
    let exit = record::graph_exit(79, 0x12, 4, 1 << 40, 1 << 41);
    assert_eq!(
        numbers(["common_pid", "func", "depth", "overrun", "calltime", "rettime"], &exit),
        [79, 0x12, 4, 0, 1 << 40, 1 << 41]
    );
    let text = record::print(80, 0x13, "lost");
    assert_eq!(numbers(["common_type", "common_pid", "ip"], &text), [5, 80, 0x13]);
    assert_eq!(field("buf", &text), b"lost\0");
    let stack = record::stack(81, &[0x14, 0x15]);
    assert_eq!(numbers(["common_type", "common_pid", "size"], &stack), [4, 81, 2]);
    assert_eq!(field("caller", &stack), [0x14_u64.to_le_bytes(), 0x15_u64.to_le_bytes()].concat());
    let bytes = record::raw_data(82, b"ABCDEF");
    assert_eq!((number("id", &bytes), field("buf", &bytes)), (0x4443_4241, b"EF".as_slice()));
    let repeats = record::repeats(83, 0x16, 0x17, 9, 5 << 32 | 6);
    let names = ["common_pid", "ip", "parent_ip", "count", "top_delta_ts", "bottom_delta_ts"];
    assert_eq!(numbers(names, &repeats), [83, 0x16, 0x17, 9, 5, 6]);
}

#[test]
fn names_and_numbers_of_events_are_their_own() {
    for (name, text) in formats::EVENTS {
        assert!(text.starts_with(&format!("name: {name}\nID: ")) && text.ends_with('\n'), "{text}");
    }
    let ids = [
        record::FUNCTION,
        record::STACK,
        record::PRINT,
        record::GRAPH_EXIT,
        record::GRAPH_ENTRY,
        record::RAW_DATA,
        record::REPEATS,
    ];
    for (id, (_, text)) in ids.iter().zip(formats::EVENTS) {
        assert!(text.contains(&format!("\nID: {id}\n")), "{id}: {text}");
    }
}
