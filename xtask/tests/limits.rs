//! The values in `docs/reference/limits.md` are those of the constants that it names.

use std::fs;
use std::path::Path;

/// Units of the values: bytes, and nanoseconds.
const UNITS: [(&str, u128); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("s", 1_000_000_000), ("ms", 1_000_000)];

/// An operator on two numbers; `None` beyond 128 bits.
type Operator = fn(u128, u128) -> Option<u128>;

/// Returns the number that a cell has, as in `64 MiB`.
fn written(cell: &str) -> Option<u128> {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let number: u128 = number.replace(',', "").parse().ok()?;
    match unit {
        "" => Some(number),
        unit => Some(number * UNITS.iter().find(|(name, _)| *name == unit)?.1),
    }
}

/// Returns the value of a constant of a source.
fn constant(source: &str, name: &str) -> Option<u128> {
    let start = source.find(&format!("const {name}: "))?;
    let (_, expression) = source[start..].split_once(" = ")?;
    value(source, expression.split_once(';')?.0)
}

/// Evaluates an expression of numbers and constants of the same source. Types are ignored, and all
/// operators bind as in Rust.
fn value(source: &str, expression: &str) -> Option<u128> {
    let expression = expression.trim();
    let operators: [(&str, Operator); 4] = [
        ("<<", |left, right| left.checked_shl(right as u32)),
        ("+", u128::checked_add),
        ("*", u128::checked_mul),
        ("/", u128::checked_div),
    ];
    for (sign, apply) in operators {
        if let Some(at) = outside(expression, sign) {
            let (left, right) = (&expression[..at], &expression[at + sign.len()..]);
            return apply(value(source, left)?, value(source, right)?);
        }
    }
    if let Some(at) = outside(expression, " as ") {
        return value(source, &expression[..at]);
    }
    if let Some(seconds) = expression.strip_prefix("Duration::from_secs(") {
        return Some(value(source, seconds.strip_suffix(')')?)? * 1_000_000_000);
    }
    if let Some(inner) = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return value(source, inner);
    }
    if expression.starts_with(|c: char| c.is_ascii_digit()) {
        return expression.replace('_', "").parse().ok();
    }
    constant(source, expression)
}

/// Returns the last position of an operator outside of parentheses.
fn outside(expression: &str, sign: &str) -> Option<usize> {
    let depth = |at: usize| {
        let before = expression[..at].bytes();
        before.fold(0, |depth, byte| depth + i32::from(byte == b'(') - i32::from(byte == b')'))
    };
    expression.match_indices(sign).map(|(at, _)| at).filter(|at| depth(*at) == 0).last()
}

/// Returns a row of the tables: limit, value, file, constant.
fn row(line: &str) -> Option<[&str; 4]> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [limit, value, _, constant] = cells[..] else { return None };
    let (name, file) = constant.strip_prefix('`')?.strip_suffix('`')?.split_once("` in `")?;
    Some([limit, value, file, name])
}

#[test]
fn documented_limits_are_those_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(root.join("docs/reference/limits.md")).expect("the page of limits");
    let tables =
        document.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| limit")).count();
    let rows: Vec<[&str; 4]> = document.lines().filter_map(row).collect();
    assert_eq!(rows.len(), tables, "each row names a constant in a file");
    for [limit, cell, file, name] in rows {
        let source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let actual = constant(&source, name);
        assert!(actual.is_some(), "{limit}: {file} has no {name} that can be evaluated");
        assert_eq!(written(cell), actual, "{limit}: {name} in {file}");
    }
}

#[test]
fn constants_are_evaluated() {
    let source = "const A: u64 = 3;\nconst B: u32 = (2 * A * 8) as u32;\npub const C: Duration = Duration::from_secs(2 + 1);";
    assert_eq!(constant(source, "B"), Some(48));
    assert_eq!(constant(source, "C"), Some(3_000_000_000));
    assert_eq!(constant("const D: u64 = 64 << 20;", "D"), written("64 MiB"));
    assert_eq!(constant("const E: u64 = size_of::<u8>();", "E"), None);
}
