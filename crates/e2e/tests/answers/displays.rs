//! What is shown on a terminal and in a browser, while programs run and afterwards.

mod terminal;
mod top;
mod tui;
mod values;
mod view;
