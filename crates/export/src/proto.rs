//! The few pieces of the protobuf wire format that Perfetto traces need.

/// Appends a varint.
#[inline]
pub(super) fn varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Appends an unsigned integer field.
#[inline]
pub(super) fn number(buffer: &mut Vec<u8>, field: u32, value: u64) {
    varint(buffer, u64::from(field) << 3);
    varint(buffer, value);
}

/// Appends a double field.
pub(super) fn double(buffer: &mut Vec<u8>, field: u32, value: f64) {
    varint(buffer, u64::from(field) << 3 | 1);
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Appends a string, bytes or sub-message field.
#[inline]
pub(super) fn bytes(buffer: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(buffer, u64::from(field) << 3 | 2);
    varint(buffer, value.len() as u64);
    buffer.extend_from_slice(value);
}

/// Appends a sub-message field filled by `fill`.
pub(super) fn message(buffer: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(buffer, field, &inner);
}
