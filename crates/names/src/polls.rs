//! Names of functions that poll futures, in the forms of Rust's compiler: `path::{{closure}}` in
//! legacy mangling, `path::{closure#0}` in v0.

/// Kinds of functions that poll a future, recognized by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polled {
    /// A closure, or the body of an `async fn` or an `async` block.
    Closure,
    /// `Future::poll` of a type.
    Future,
    /// A function that a worker of tokio calls for a task.
    Task,
    /// A function that a task calls for the spawned future.
    Core,
}

const FUTURE: &str = " as core::future::future::Future>::poll";
const TASKS: &str = "tokio::runtime::task::";

/// Returns the kind of a polling function by its demangled name, and the polled type, if the name
/// has it.
pub fn poll(name: &str) -> Option<(Polled, Option<String>)> {
    if let Some(of) = name.strip_suffix(FUTURE) {
        return Some((Polled::Future, Some(of.strip_prefix('<')?.to_owned())));
    }
    let inner = name.strip_prefix('<').unwrap_or(name);
    if let Some(rest) = inner.strip_prefix(TASKS) {
        let of = || first_parameter(inner).filter(|of| of.len() > 1).map(str::to_owned);
        let is_poll = name.ends_with(">::poll");
        let what = match rest {
            _ if rest == "raw::poll" || rest.starts_with("raw::poll::<") => Polled::Task,
            _ if rest.starts_with("harness::Harness<") && is_poll => Polled::Task,
            _ if rest.starts_with("core::Core<") && is_poll => Polled::Core,
            _ if rest.starts_with("harness::poll_future") && !is_closure(rest) => Polled::Core,
            _ => return is_closure(name).then(|| (Polled::Closure, Some(name.to_owned()))),
        };
        return Some((what, of()));
    }
    is_closure(name).then(|| (Polled::Closure, Some(name.to_owned())))
}

fn is_closure(name: &str) -> bool {
    let last = name.rsplit_once("::").map_or(name, |(_, last)| last);
    last == "{{closure}}" || last.starts_with("{closure#") && last.ends_with('}')
}

/// Whether a function wakes the task of tokio that its first argument points to.
pub fn wakes(name: &str) -> bool {
    let by = name.strip_prefix(TASKS).and_then(|rest| rest.strip_prefix("waker::"));
    by.is_some_and(|by| ["wake_by_val", "wake_by_ref"].contains(&by.split("::<").next().unwrap_or(by)))
}

/// Returns the type that a function drops in place.
pub fn dropped(name: &str) -> Option<&str> {
    let of = name.strip_prefix("core::ptr::drop_in_place")?;
    of.strip_prefix("::").unwrap_or(of).strip_prefix('<')?.strip_suffix('>')
}

/// Whether both names are of one type. Legacy mangling has generic parameters instead of types:
/// `Timeout<T>`.
pub fn is_type(general: &str, one: &str) -> bool {
    general == one || without_parameters(general).is_some_and(|start| without_parameters(one) == Some(start))
}

/// Returns a type's name without its parameters, if it has any.
pub fn without_parameters(name: &str) -> Option<&str> {
    name.find('<').filter(|at| *at > 0).map(|at| &name[..at])
}

/// Returns the first parameter of the first type or function in a name.
pub fn first_parameter(name: &str) -> Option<&str> {
    let rest = &name[name.find('<')? + 1..];
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            ',' | '>' if depth == 0 => return Some(&rest[..at]),
            '>' if rest[..at].ends_with('-') => {}
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<(Polled, Option<&str>)>) {
        let found = poll(name);
        assert_eq!(found.as_ref().map(|(what, of)| (*what, of.as_deref())), expected, "{name}");
    }

    #[test]
    fn polling_functions_are_recognized_in_both_manglings() {
        use Polled::*;
        check("app::serve::{{closure}}", Some((Closure, Some("app::serve::{{closure}}"))));
        check("app::serve::{closure#0}", Some((Closure, Some("app::serve::{closure#0}"))));
        check("<app::Wait as core::future::future::Future>::poll", Some((Future, Some("app::Wait"))));
        check("tokio::runtime::task::raw::poll", Some((Task, None)));
        check(
            "tokio::runtime::task::raw::poll::<app::serve::{closure#0}, alloc::sync::Arc<S>>",
            Some((Task, Some("app::serve::{closure#0}"))),
        );
        check("tokio::runtime::task::harness::Harness<T,S>::poll", Some((Task, None)));
        check(
            "<tokio::runtime::task::core::Core<app::run<fn(u8) -> u8>::{closure#0}, S>>::poll",
            Some((Core, Some("app::run<fn(u8) -> u8>::{closure#0}"))),
        );
        let inner = "tokio::runtime::task::core::Core<T,S>::poll::{{closure}}";
        check(inner, Some((Closure, Some(inner))));
        check("app::closure", None);
        check("<app::Wait as core::fmt::Debug>::fmt", None);
    }

    #[test]
    fn waking_functions_are_recognized_by_name() {
        assert!(wakes("tokio::runtime::task::waker::wake_by_val"));
        assert!(wakes("tokio::runtime::task::waker::wake_by_ref::<T, S>"));
        assert!(!wakes("tokio::runtime::task::waker::clone_waker") && !wakes("app::waker::wake_by_val"));
    }

    #[test]
    fn dropped_type_is_read_from_name() {
        assert_eq!(dropped("core::ptr::drop_in_place<app::f::{{closure}}>"), Some("app::f::{{closure}}"));
        assert_eq!(dropped("core::ptr::drop_in_place::<app::W<u8>>"), Some("app::W<u8>"));
        assert_eq!(dropped("core::ptr::drop"), None);
        assert!(is_type("app::W<T>", "app::W<u8>") && is_type("app::W", "app::W"));
        assert!(!is_type("app::W<T>", "app::V<u8>") && !is_type("app::f", "app::g"));
    }
}
