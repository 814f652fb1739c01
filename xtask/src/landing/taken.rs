//! The transfers of control in a profile of callgrind (`--collect-jumps=yes`): jumps within
//! functions, calls, and jumps to other functions, which callgrind records as calls.

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeAddress<'p> {
    /// Path of its file.
    pub object: &'p str,
    /// Address of the instruction in the file.
    pub address: u64,
}

/// A jump or call that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer<'p> {
    /// The jump or call.
    pub from: CodeAddress<'p>,
    /// The next instruction.
    pub to: CodeAddress<'p>,
}

/// Returns the transfers of a profile without compressed positions and names.
pub fn transfers(profile: &str) -> impl Iterator<Item = Transfer<'_>> {
    let (mut object, mut callee, mut next) = ("", None, None);
    profile.lines().filter_map(move |line| {
        if let Some((name, value)) = line.split_once('=') {
            match name {
                "ob" => object = value,
                "cob" => callee = Some(value),
                // `calls=COUNT ADDRESS LINE`, `jump=COUNT ADDRESS LINE`; `jcnd=TAKEN/RUN ADDRESS
                // LINE`.
                "calls" => {
                    next = target(value)
                        .map(|to| CodeAddress { object: callee.take().unwrap_or(object), address: to })
                }
                "jump" | "jcnd" => next = target(value).map(|to| CodeAddress { object, address: to }),
                _ => {}
            }
            return None;
        }
        // The line behind one of these names the instruction.
        let to = next.take()?;
        let from = CodeAddress { object, address: number(line.split(' ').next()?)? };
        Some(Transfer { from, to })
    })
}

fn target(value: &str) -> Option<u64> {
    number(value.split(' ').nth(1)?)
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_calls_are_read_with_their_files() {
        let profile = "positions: instr line\nob=/bin/a\nfl=a.c\nfn=f\n0x10 3 2\njump=7 0x2a 4\n0x12 3\ncob=/lib/b\ncfn=g\ncalls=2 0x500 0\n\
                       0x14 5 90\ncalls=1 0x10 0\n0x16 5 3\njcnd=1/8 0x30 0\n0x18 0\nob=/lib/b\nfn=g\n0x500 0 2\n";
        let found: Vec<_> = transfers(profile)
            .map(|Transfer { from, to }| (from.object, from.address, to.object, to.address))
            .collect();
        assert_eq!(
            found,
            [
                ("/bin/a", 0x12, "/bin/a", 0x2a),
                ("/bin/a", 0x14, "/lib/b", 0x500),
                ("/bin/a", 0x16, "/bin/a", 0x10),
                ("/bin/a", 0x18, "/bin/a", 0x30),
            ]
        );
    }
}
