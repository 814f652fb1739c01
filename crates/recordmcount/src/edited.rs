//! An object file that is being edited.

use crate::calls::Call;
use crate::error::Error;
use crate::format::{Format, Header, LIST};
use crate::object_file::Object;
use object::elf;
use std::collections::BTreeMap;

/// The object, its new section headers, and the new file's bytes.
pub(crate) struct Edited<'o> {
    pub object: &'o Object<'o>,
    pub headers: Vec<Header>,
    data: Vec<u8>,
}

impl<'o> Edited<'o> {
    pub(crate) fn new(object: &'o Object<'o>) -> Self {
        let headers: Vec<Header> = object.sections.iter().map(|section| section.header).collect();
        let end = object.headers_at + headers.len() * object.format.header_size();
        // The section headers, mostly the file's last part, are written again.
        let kept = if end == object.data.len() { object.headers_at } else { end.max(object.data.len()) };
        Edited { object, headers, data: object.data[..kept].to_vec() }
    }

    /// Appends the contents of a section, and returns their offset.
    pub(crate) fn append(&mut self, content: &[u8], alignment: usize) -> u64 {
        self.data.resize(self.data.len().next_multiple_of(alignment), 0);
        let at = self.data.len() as u64;
        self.data.extend_from_slice(content);
        at
    }

    /// Replaces the contents of a section.
    pub(crate) fn replace(&mut self, section: usize, content: &[u8]) {
        let at = self.append(content, 8);
        let header = &mut self.headers[section];
        (header.offset, header.size) = (at, content.len() as u64);
    }

    /// Replaces the contents of a section by others of the same length.
    pub(crate) fn overwrite(&mut self, section: usize, content: &[u8]) {
        let at = self.headers[section].offset as usize;
        // The offset of an empty section does not matter.
        if let Some(old) = self.data.get_mut(at..).and_then(|rest| rest.get_mut(..content.len())) {
            old.copy_from_slice(content);
        }
    }

    /// Adds the names of the list and of its relocations. Returns the latter, of which the former
    /// is the end.
    pub(crate) fn add_name(&mut self) -> u32 {
        let (section, prefix) = (self.object.names, relocations_prefix(self.object.format));
        let mut names = self.object.sections[section].data.to_vec();
        if names.last() != Some(&0) {
            names.push(0);
        }
        let name = names.len() as u32;
        names.extend([prefix, LIST, b"\0"].concat());
        self.replace(section, &names);
        name
    }

    /// Adds a list: its section and that of its relocations.
    pub(crate) fn add_list(
        &mut self,
        name: u32,
        group: Option<usize>,
        calls: &[Call],
        symbols: &BTreeMap<usize, u32>,
    ) -> Result<(), Error> {
        let format = self.object.format;
        let (mut list, mut relocations) = (Vec::new(), Vec::new());
        let in_table = format.relocation_table() == elf::SHT_RELA.0;
        for call in calls {
            format.put(&mut relocations, list.len() as u64);
            let symbol = symbols.get(&call.section).copied().unwrap_or(0);
            format.put(&mut relocations, format.relocation_info(symbol, format.pointer_relocation())?);
            if in_table {
                format.put(&mut relocations, call.offset);
            }
            let addend = if in_table { 0 } else { call.offset };
            list.extend(&addend.to_le_bytes()[..format.pointer()]);
        }
        let index = self.headers.len() as u32;
        let in_group = if group.is_some() { elf::SHF_GROUP.0 } else { 0 };
        let list_header = Header {
            name: name + relocations_prefix(format).len() as u32,
            kind: elf::SHT_PROGBITS.0,
            flags: elf::SHF_ALLOC.0 | elf::SHF_WRITE.0 | in_group,
            offset: self.append(&list, format.pointer()),
            size: list.len() as u64,
            alignment: format.pointer() as u64,
            ..Header::default()
        };
        let relocations_header = Header {
            name,
            kind: format.relocation_table(),
            flags: elf::SHF_INFO_LINK.0 | in_group,
            offset: self.append(&relocations, format.word()),
            size: relocations.len() as u64,
            link: self.object.symbols.unwrap_or(0) as u32,
            info: index,
            alignment: format.word() as u64,
            entry: format.relocation_size(format.relocation_table()).unwrap_or(0) as u64,
            ..Header::default()
        };
        self.headers.extend([list_header, relocations_header]);
        if let Some(group) = group {
            let members = [index.to_le_bytes(), (index + 1).to_le_bytes()].concat();
            let content = [self.object.sections[group].data, &members].concat();
            self.replace(group, &content);
        }
        Ok(())
    }

    /// Appends the section headers, and returns the new file.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Error> {
        let format = self.object.format;
        let count = self.headers.len();
        let short = u16::try_from(count).ok().filter(|&count| count < elf::SHN_LORESERVE);
        if short.is_none() {
            self.headers[0].size = count as u64;
        }
        let mut table = Vec::new();
        self.headers.iter().for_each(|header| format.put_header(&mut table, header));
        let at = self.append(&table, format.word());
        if !format.wide && u32::try_from(self.data.len()).is_err() {
            return Err(Error::Unknown { what: "too large for an object file of 32 bits".to_owned() });
        }
        let (place, sizes) = format.headers_field();
        self.data[place..place + format.word()].copy_from_slice(&at.to_le_bytes()[..format.word()]);
        self.data[sizes + 2..sizes + 4].copy_from_slice(&short.unwrap_or(0).to_le_bytes());
        Ok(self.data)
    }
}

/// Returns the prefix of the list's name in the name of its relocations.
fn relocations_prefix(format: Format) -> &'static [u8] {
    if format.relocation_table() == elf::SHT_RELA.0 { b".rela" } else { b".rel" }
}
