//! The fields of a record, as the kernel's description of the record gives them.

/// The place of a field in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Offset of the field, in bytes.
    pub offset: usize,
    /// Size of the field, in bytes.
    pub size: usize,
}

impl Field {
    /// Returns the field's bytes in a record; `None` if the record is too short.
    pub fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Returns the field's value in a record, as a signed number, if it has the size of one.
    pub fn number(self, record: &[u8]) -> Option<i64> {
        Some(match *self.bytes(record)? {
            [byte] => byte.into(),
            [a, b] => i16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
            ref bytes => i64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

/// The fields of a `format` file, or of `header_page`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields(Vec<(String, Field)>);

impl Fields {
    /// Parses lines like `field:pid_t pid; offset:24; size:4; signed:1;`. Others are skipped.
    pub fn parse(format: &str) -> Fields {
        Fields(format.lines().filter_map(field).collect())
    }

    /// Returns the place of a field.
    pub fn get(&self, name: &str) -> Option<Field> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, field)| *field)
    }
}

fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let name = parts.next()?.strip_prefix("field:")?.split_whitespace().last()?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some((name.split('[').next()?.to_owned(), Field { offset, size }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats;

    #[test]
    fn fields_are_found_where_the_format_says() {
        let fields = Fields::parse(formats::SCHED[0].1);
        let prev_pid = Field { offset: 24, size: 4 };
        assert_eq!((fields.get("prev_pid"), fields.get("absent")), (Some(prev_pid), None));
        assert_eq!(fields.get("prev_comm"), Some(Field { offset: 8, size: 16 }), "arrays have no brackets");
        let mut record = [0; 28];
        (record[24], record[27]) = (7, 0x80);
        assert_eq!(prev_pid.number(&record), Some(i64::from(i32::MIN + 7)));
        assert_eq!(prev_pid.number(&record[..27]), None);
        assert_eq!(Field { offset: usize::MAX, size: 8 }.bytes(&record), None);
        assert_eq!(Field { offset: 0, size: 3 }.number(&record), None, "no number has three bytes");
    }
}
