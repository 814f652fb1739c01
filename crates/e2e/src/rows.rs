//! The rows of tables in JSON.

use serde_json::Value;

/// Returns the rows of a table in JSON.
pub fn rows_of(text: &str) -> Vec<Value> {
    rows_in(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Returns the list in the object that a command writes for a table.
pub(crate) fn rows_in(mut table: Value) -> Vec<Value> {
    let list =
        ["functions", "nodes", "goroutines"].iter().find_map(|key| table.get_mut(key).map(Value::take));
    match list {
        Some(Value::Array(rows)) => rows,
        _ => panic!("no list of rows: {table}"),
    }
}
