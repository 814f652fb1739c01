//! Views on a terminal and in a browser, during and after a program's run.

mod colours;
mod compare;
mod limited;
mod long_names;
mod terminal;
mod top;
mod tui;
mod values;
mod view;
