//! Values read in functions that poll futures (`--async`).

use crate::steps::{DescribedFunction, WORD, register as argument, store};
use crate::words::Form;
use calltap_abi::values::{register, step, word};
use calltap_names::first_parameter;
use calltap_sites::types::Shape;
use calltap_sites::{Poll, PollKind};
use calltap_trace::{Captured, Future, FutureValues, Value};

/// Adds the steps that read which future is polled, and its state.
pub(crate) fn about_future(
    poll: &Poll,
    known: Option<&DescribedFunction>,
    captured: &mut Captured,
    entry: &mut Vec<u64>,
    exit: &mut Vec<u64>,
) {
    let value = |name: &str, form| Value { name: name.to_owned(), form };
    let whole = |values: &mut Vec<Value>, steps: &mut Vec<u64>, name: &str, from: Vec<u64>| {
        values.push(value(name, store(Form::Hex(WORD), from, steps)));
    };
    let is_of_task = matches!(poll.kind, PollKind::Task | PollKind::Wake);
    let first = if is_of_task { "task" } else { "future" };
    let values = match (poll.kind, poll.state) {
        (PollKind::Written | PollKind::Body | PollKind::Inlined, None) => {
            whole(&mut captured.arguments, entry, "arg1", argument(0));
            whole(&mut captured.arguments, entry, "arg2", argument(1));
            let result = vec![word(step::REGISTER, register::RESULTS[0], 0)];
            whole(&mut captured.results, exit, "retval", result);
            told(known, captured, exit).unwrap_or(FutureValues::Written)
        }
        (kind, Some(state)) => {
            whole(&mut captured.arguments, entry, first, argument(state.argument));
            let at = [argument(state.argument), vec![word(step::ADD, 0, state.offset)]].concat();
            let kept = [at, vec![word(step::REMEMBER, 0, 0), word(step::LOAD, 1, 0)]].concat();
            captured.arguments.push(value("state", store(Form::Unsigned(1), kept, entry)));
            match kind {
                PollKind::Task => FutureValues::TaskState,
                PollKind::Inlined => {
                    // If the result is written to memory, the future is the second argument.
                    if state.argument == 0 {
                        let result = vec![word(step::REGISTER, register::RESULTS[0], 0)];
                        whole(&mut captured.results, exit, "retval", result);
                    }
                    FutureValues::Inlined
                }
                _ => {
                    let now = vec![word(step::RECALL, 0, 0), word(step::LOAD, 1, 0)];
                    captured.results.push(value("state", store(Form::Unsigned(1), now, exit)));
                    FutureValues::State
                }
            }
        }
        (PollKind::Task, None) => {
            whole(&mut captured.arguments, entry, first, argument(0));
            FutureValues::Task
        }
        (PollKind::Wake, None) => {
            whole(&mut captured.arguments, entry, first, argument(0));
            FutureValues::Woken
        }
        (PollKind::Drop, None) => {
            whole(&mut captured.arguments, entry, first, argument(0));
            FutureValues::Dropped
        }
    };
    // The older mangling does not name the task's type.
    let is_generic = matches!(poll.kind, PollKind::Task | PollKind::Inlined);
    let name = known.filter(|_| is_generic).and_then(|known| known.name.as_deref());
    let name = name.and_then(first_parameter).map(without_numbers);
    captured.future = Some(Future { values, name });
}

/// Adds the steps that read the number in the result which distinguishes pending from ready, if it
/// is known.
fn told(
    known: Option<&DescribedFunction>,
    captured: &mut Captured,
    exit: &mut Vec<u64>,
) -> Option<FutureValues> {
    let known = known?;
    let result = known.signature.result?;
    let Shape::Other(size) = result.shape else { return None };
    let case = known.types.case(result, "Pending")?;
    let elsewhere = size > 2 * u64::from(WORD);
    let [first, second] = register::RESULTS.map(|register| word(step::REGISTER, register, 0));
    let steps = match (elsewhere, case.offset) {
        (true, offset) => vec![first, word(step::LOAD, case.size, i32::try_from(offset).ok()?)],
        (false, 0) => vec![first],
        (false, offset) if offset == u64::from(WORD) => vec![second],
        // The position of the value depends on the other parts of the result.
        _ => return None,
    };
    let form = store(Form::Unsigned(case.size), steps, exit);
    captured.results.push(Value { name: "poll".to_owned(), form });
    Some(FutureValues::Told { pending: case.value, equal: case.equal, elsewhere })
}

/// Replaces parts such as `{async_fn_env#0}` by `{{closure}}`, as the older mangling writes them.
fn without_numbers(name: &str) -> String {
    let mut parts = name.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((inner, rest)) if inner.contains('#') => text += &format!("{{{{closure}}}}{rest}"),
            _ => text += &format!("{{{part}"),
        }
    }
    text
}
