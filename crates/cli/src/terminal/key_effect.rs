//! Effects of keys that a table or screen cannot have by itself.

use calltap_analysis::intervals::FunctionCalls;

/// The effect of a key outside the table or screen that took it.
#[derive(PartialEq, Eq, Debug)]
pub enum KeyEffect {
    /// End the display.
    Quit,
    /// Switch a function.
    Toggle(FunctionCalls),
    /// Show another process: the previous one if true, else the next.
    Turn(bool),
    /// None: the key was handled.
    Nothing,
}
