//! Call counts from a callgrind profile.
//!
//! The file has a name once as `(id) name`, and as `(id)` from then on. `ob=` and `fn=` name the
//! function of the following costs; `cob=` and `cfn=` name the callee of the next `calls=` line, in
//! the caller's object unless there is a `cob=`. A function called by itself is `name'2`.

use std::collections::HashMap;

/// Number of calls by object and function.
pub type Calls = HashMap<String, HashMap<String, u64>>;

/// Parses a profile.
pub fn parse(text: &str) -> Calls {
    let (mut objects, mut functions) = (Names::default(), Names::default());
    let (mut object, mut called_object, mut called) = (String::new(), None, String::new());
    let mut calls = Calls::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "ob" => object = objects.name(value),
            "cob" => called_object = Some(objects.name(value)),
            "fn" => drop(functions.name(value)),
            "cfn" => called = plain(&functions.name(value)),
            "calls" => {
                let count: u64 = value.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                let object = called_object.take().unwrap_or_else(|| object.clone());
                *calls.entry(object).or_default().entry(std::mem::take(&mut called)).or_default() += count;
            }
            _ => {}
        }
    }
    calls
}

/// Returns a name without the mark of a recursion.
fn plain(name: &str) -> String {
    match name.rsplit_once('\'') {
        Some((name, level)) if !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()) => {
            name.to_owned()
        }
        _ => name.to_owned(),
    }
}

#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn name(&mut self, value: &str) -> String {
        let value = value.trim();
        let Some((id, name)) = value.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return value.to_owned();
        };
        if !name.is_empty() {
            self.0.insert(id.to_owned(), name.trim_start().to_owned());
        }
        self.0.get(id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    const PROFILE: &str = "version: 1
ob=(1) /bin/program
fl=(1) ???
fn=(1) main
0 12
cfn=(2) twice
calls=3 0
0 9
cob=(2) /lib/ld.so
cfi=(2) ???
cfn=(3) twice
calls=5 0
0 9
fn=(2)
0 7
cfn=(4) twice'2
calls=4 0
0 1
ob=(2)
fn=(3)
cob=(1)
cfn=(2)
calls=1 0
0 2
totals: 12
";

    #[test]
    fn counts_by_object_and_without_recursion_marks() {
        let calls = parse(PROFILE);
        assert_eq!(calls["/bin/program"]["twice"], 3 + 4 + 1);
        assert_eq!(calls["/lib/ld.so"]["twice"], 5);
        assert_eq!(calls.len(), 2);
    }
}
