//! The values that are read of calls: their names, and the meaning of the bytes that come with an
//! event.

use serde::{Deserialize, Serialize};

/// The values that are read of a function's calls: the meaning of the bytes that come with its
/// events.
///
/// The bytes of an event begin with two that have a bit for each value that could not be read, in
/// order; the other values follow in the widths of their forms.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Captured {
    /// Values of entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Value>,
    /// Values of returns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Value>,
    /// The future that the first values are about, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub future: Option<Future>,
}

/// A poll of a future.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Future {
    /// Meaning of the values.
    pub values: FutureValues,
    /// Type of the future, where debugging information has it and the function's name does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The way in which the values of a call identify a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FutureValues {
    /// A poll of an async body: its address; its state before and, as result, after the poll.
    State,
    /// A poll of a future by a hand-written function: the first two arguments and the result. If
    /// the result equals the first argument, the future is the second one, as a larger result is
    /// written to the address in the first.
    Written,
    /// A poll like [`FutureValues::Written`], with a second result that tells whether the future
    /// waits: it does if that is equal to `pending`, or, if not `equal`, different from it.
    Told {
        /// Number to compare with.
        pending: u64,
        /// Whether the future waits if the numbers are equal.
        equal: bool,
        /// Whether the result is written to the address in the first argument.
        elsewhere: bool,
    },
    /// A poll of an async body inlined in a function of tokio: address and state before it; as
    /// result what that function returns, if that is in a register.
    Inlined,
    /// A poll of a task of tokio: its address.
    Task,
    /// A poll of a task of tokio: its address, and the state of its future before that.
    TaskState,
    /// A drop of a future: its address.
    Dropped,
    /// A waking of a task of tokio: its address.
    Woken,
    /// A run of a Python coroutine: its address, and flags (1: it has run before, 2: no other
    /// coroutine resumed it); as result 1 if it returned, 2 if it raised an exception, 3 if it
    /// waits.
    Coroutine,
}

/// A value of a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Name of the value, from debugging information or from the user.
    pub name: String,
    /// Encoding of the value, which decides how it is shown.
    pub form: ValueForm,
}

/// The encoding of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueForm {
    /// A signed integer of this many bytes.
    Signed(u8),
    /// An unsigned integer of this many bytes.
    Unsigned(u8),
    /// An integer of this many bytes that is shown in hexadecimal.
    Hex(u8),
    /// An address, shown as a function where it is one.
    Pointer,
    /// A floating-point number of this many bytes.
    Float(u8),
    /// A boolean of one byte, false if 0.
    Bool,
    /// A character of one byte.
    Char,
    /// A text: a byte with its length, of which the top bit tells that it was cut off (alone: that
    /// its address is 0), then as many bytes.
    Text,
    /// A Python object: its [kind](crate::object_kind), and the value in the form of that kind.
    Object,
    /// The callers ([`crate::Callers`]), behind all other values: two bytes with their number and,
    /// in the lowest bit, whether they are all of them; then eight bytes for each, innermost first.
    Callers,
}
