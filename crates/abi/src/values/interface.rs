//! Interfaces of Go: two words, the type of the value and the value. Stored is the name of the type
//! as the runtime has it, and the text of an error whose type begins with its text.
//!
//! ```text
//! itab (0: nil):   inter, type, ...       of interfaces with methods; others have the type itself
//! type:            +20 flags of a byte, +40 the name's offset of 4 bytes from the module's types
//! name:            flags of a byte, the length (7 bits in each byte, the lowest first), the text
//! ```

use super::{Call, Stored, TEXT, WORD_KIND, load};

// Offsets in an itab and in a type.
const TYPE: u64 = 8;
const FLAGS: usize = 20;
const NAME: usize = 40;
/// Flag of a type: its name follows a `*` that is not part of it.
const EXTRA_STAR: u8 = 1 << 1;
/// Flag of a byte of a length: another byte follows.
const MORE: u8 = 0x80;
/// Types of errors that are pointers to structures which begin with a text.
const ERRORS: [&[u8]; 3] = [b"*errors.errorString", b"*fmt.wrapError", b"*fmt.wrapErrors"];
/// Stands between a type and a text.
const BETWEEN: &[u8] = b": ";
const NIL: &[u8] = b"nil";

/// Position of a text in memory.
struct Text {
    at: u64,
    length: u64,
}

impl Text {
    /// Adds the text at the end of the stored bytes, as far as there is room in the text that
    /// begins with `head`.
    fn add(&self, call: &impl Call, head: usize, stored: &mut Stored) -> Option<()> {
        let has = stored.length - head - 1;
        let length = self.length.min((TEXT as usize).saturating_sub(has) as u64) as usize;
        let room = stored.room(length)?;
        (length == 0 || call.read(self.at, room)).then_some(())?;
        stored.end(head, length as u64 != self.length)
    }
}

impl Stored {
    /// Sets the length of the text that begins with `head` and ends with the stored bytes.
    fn end(&mut self, head: usize, is_cut_off: bool) -> Option<()> {
        let length = self.length - head - 1;
        *self.bytes.get_mut(head)? = length as u8 | if is_cut_off { MORE } else { 0 };
        Some(())
    }
}

/// Returns the position of a type's name. `types`: address of the module's types.
fn name(call: &impl Call, of: u64, types: u64) -> Option<Text> {
    let mut bytes = [0; NAME + 4];
    call.read(of, &mut bytes).then_some(())?;
    let [.., a, b, c, d] = bytes;
    // Types that are made at run time have negative offsets, and no name here.
    let offset = i32::from_le_bytes([a, b, c, d]);
    let at = types.wrapping_add(u64::try_from(offset).ok().filter(|offset| *offset > 0)?);
    let mut head = [0; 2];
    call.read(at, &mut head).then_some(())?;
    let (mut start, mut length) = (at.wrapping_add(2), u64::from(head[1] & !MORE));
    if head[1] & MORE != 0 {
        length |= load(call, start, 1)? << 7;
        start = start.wrapping_add(1);
    }
    let star = u64::from(bytes[FLAGS] & EXTRA_STAR != 0).min(length);
    Some(Text { at: start.wrapping_add(star), length: length - star })
}

/// Stores an interface. `word` and `value` are its words; `has_methods`: the first is an itab.
pub(super) fn put(
    call: &impl Call,
    (word, value): (u64, u64),
    has_methods: bool,
    types: u64,
    stored: &mut Stored,
) -> Option<()> {
    *stored.room(1)?.first_mut()? = WORD_KIND;
    let head = stored.length;
    stored.room(1)?;
    if word == 0 {
        stored.room(NIL.len())?.copy_from_slice(NIL);
        return stored.end(head, false);
    }
    let of = if has_methods { load(call, word.wrapping_add(TYPE), 8)? } else { word };
    name(call, of, types)?.add(call, head, stored)?;
    let found = stored.bytes.get(head + 1..stored.length)?;
    if ERRORS.contains(&found) {
        let mut words = [0; 16];
        call.read(value, &mut words).then_some(())?;
        let [at, length] = [0, 8].map(|n| {
            let word = words.get(n..n + 8).and_then(|bytes| bytes.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        });
        stored.room(BETWEEN.len())?.copy_from_slice(BETWEEN);
        Text { at, length }.add(call, head, stored)?;
    }
    Some(())
}
