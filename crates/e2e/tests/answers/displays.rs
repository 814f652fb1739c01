//! Views on a terminal and in a browser, during and after a program's run.

mod colours;
mod compare;
mod disabled;
mod long_names;
mod terminal;
mod top;
mod tui;
mod values;
mod view;
