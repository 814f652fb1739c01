//! Formats argument and result values as text and JSON.

use crate::sources::source::Source;
use crate::units::one_line;
use calltap_trace::{Captured, Datum, SiteId};
use serde_json::{Map, Value};

/// A captured value in display forms.
#[derive(Clone, PartialEq, Debug)]
pub struct FormattedValue {
    /// The value's name.
    pub name: String,
    /// Text form.
    pub text: String,
    /// JSON form.
    pub json: Value,
}

/// Decodes the values of an entry or a return, without callers. `code` returns the name of the
/// function that begins at an address.
pub fn read(
    captured: &Captured,
    returns: bool,
    bytes: &[u8],
    code: &mut dyn FnMut(u64) -> Option<String>,
) -> Vec<FormattedValue> {
    let shown = |(name, datum): (&str, Datum<'_>)| {
        let function = match datum {
            Datum::Pointer(address) => code(address),
            _ => None,
        };
        let text = function.clone().unwrap_or_else(|| one_line(&datum.to_string()).into_owned());
        let json = match datum {
            Datum::Unreadable | Datum::Null | Datum::Word(b"None", false) => Value::Null,
            Datum::Signed(number) => number.into(),
            Datum::Unsigned(number) => number.into(),
            Datum::Float(number) => number.into(),
            Datum::Bool(truth) => truth.into(),
            Datum::Text(text, _) => String::from_utf8_lossy(text).into(),
            Datum::Char(c) => char::from(c).to_string().into(),
            Datum::Callers(..) => return None,
            Datum::Hex(_) | Datum::Pointer(_) | Datum::Word(..) => text.clone().into(),
        };
        Some(FormattedValue { name: name.to_owned(), text, json })
    };
    captured.read(returns, bytes).filter_map(shown).collect()
}

/// Returns the results of a call that has returned without them: a tail call entered the function,
/// which returned for its caller, or there was no room for the values.
pub(crate) fn unknown_results(captured: &Captured) -> Vec<FormattedValue> {
    let unknown = |value: &calltap_trace::Value| FormattedValue {
        name: value.name.clone(),
        text: "?".to_owned(),
        json: Value::Null,
    };
    captured.results.iter().map(unknown).collect()
}

/// Decodes the values of an entry or a return of a site.
pub fn show(
    source: &dyn Source,
    site: SiteId,
    returns: bool,
    bytes: &[u8],
    code: &mut dyn FnMut(u64) -> Option<String>,
) -> Vec<FormattedValue> {
    if bytes.is_empty() && !returns {
        return Vec::new();
    }
    let captured = source.meta().sites.get(site.0 as usize).and_then(|site| site.captured.as_deref());
    match captured {
        Some(captured) if bytes.is_empty() => unknown_results(captured),
        Some(captured) => read(captured, returns, bytes, code),
        None => Vec::new(),
    }
}

/// Formats a call as `name(a=1, b=2)`, in place of the parameter list of a C++ name.
pub fn call(name: &str, arguments: &[FormattedValue]) -> String {
    if arguments.is_empty() {
        return name.to_owned();
    }
    format!("{}({})", without_parameters(name), list(arguments))
}

/// Formats arguments as `a=1, b=2`.
pub(crate) fn list(arguments: &[FormattedValue]) -> String {
    let one = |FormattedValue { name, text, .. }: &FormattedValue| format!("{name}={text}");
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats results as `ret=3`, with the value's name if it is not the return value.
pub(crate) fn results(results: &[FormattedValue]) -> String {
    let one = |FormattedValue { name, text, .. }: &FormattedValue| match name.as_str() {
        "retval" | "fpretval" => format!("ret={text}"),
        name => format!("{name}={text}"),
    };
    results.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns values as the members of a JSON object.
pub fn object(values: &[FormattedValue]) -> Value {
    let members: Map<String, Value> =
        values.iter().map(|value| (value.name.clone(), value.json.clone())).collect();
    members.into()
}

/// Returns the values of an entry or a return of a trace as the text of a JSON object; `None`
/// without values.
pub fn values_as_json(source: &dyn Source, site: SiteId, returns: bool, bytes: &[u8]) -> Option<String> {
    let values = show(source, site, returns, bytes, &mut |_| None);
    (!values.is_empty()).then(|| object(&values).to_string())
}

/// Returns a C++ name without its parameter list, and the qualifiers behind it.
pub(crate) fn without_parameters(name: &str) -> &str {
    const QUALIFIERS: [&str; 4] = [" const", " volatile", "&", " "];
    let mut plain = name;
    while let Some(shorter) = QUALIFIERS.iter().find_map(|end| plain.strip_suffix(end)) {
        plain = shorter;
    }
    if !plain.ends_with(')') {
        return name;
    }
    let mut depth = 0;
    for (at, c) in plain.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &plain[..at];
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::without_parameters;

    #[test]
    fn the_parameters_of_a_name_are_its_last_parentheses() {
        for (name, expected) in [
            ("f", "f"),
            ("f(int, char*)", "f"),
            ("A::operator()(int (*)(char)) const", "A::operator()"),
            ("A::f() const volatile &&", "A::f"),
            ("A::operator&", "A::operator&"),
            ("f)", "f)"),
        ] {
            assert_eq!(without_parameters(name), expected);
        }
    }
}
