//! Ops: a callback with a name and filters, and its registration.

use crate::call::Call;
use crate::callee::SendCallee;
use crate::control::Registered;
use crate::error::Error;
use crate::lock::{self, ABANDONED};
use crate::returns::{self, Return, Returned};
use calltap_names::Glob;
use std::sync::atomic::Ordering::SeqCst;

/// A callback with a name and filters for its functions.
///
/// Filters are globs as in ftrace (`net_*`, `*alloc*`, `[!_]*`), compared with the names of
/// functions, demangled and not. Without a filter the ops are for all functions, except those that
/// match `notrace`.
pub struct Ops<F> {
    name: String,
    filter: Vec<Glob>,
    notrace: Vec<Glob>,
    callback: F,
    returned: Option<Box<dyn Returned>>,
    may_match_nothing: bool,
}

fn globs<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Vec<Glob> {
    words.into_iter().map(|word| Glob::new(word.as_ref())).collect()
}

impl<F: Fn(&Call) + Send + Sync + 'static> Ops<F> {
    /// Creates ops for all functions.
    pub fn new(name: &str, callback: F) -> Ops<F> {
        Ops {
            name: name.to_owned(),
            filter: Vec::new(),
            notrace: Vec::new(),
            callback,
            returned: None,
            may_match_nothing: false,
        }
    }

    /// Restricts the ops to functions that match one of these globs.
    pub fn filter<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Ops<F> {
        self.filter = globs(words);
        self
    }

    /// Leaves out functions that match one of these globs.
    pub fn notrace<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Ops<F> {
        self.notrace = globs(words);
        self
    }

    /// Adds a callback for returns, which gets the duration of each call.
    ///
    /// It runs when a function of these ops returns to its caller, or ends by a panic if it has the
    /// [`traced`](crate::traced) attribute, for calls whose entry was reported to these ops. A call
    /// that longjmp or an exception leaves has no return; nor has one that was entered by a tail
    /// call out of another call whose return is watched: that other call returns.
    pub fn on_return<R: Fn(&Return) + Send + Sync + 'static>(mut self, callback: R) -> Ops<F> {
        self.returned = Some(Box::new(returns::Callback::new(callback)));
        self
    }

    /// Allows a filter that matches no function, which else is an error of [`register`]: its
    /// functions may not be loaded yet.
    pub fn may_match_nothing(mut self) -> Ops<F> {
        self.may_match_nothing = true;
        self
    }
}

/// Registers ops: from now on the callback runs at every call of its functions, in every thread.
///
/// The functions are those of the program and of the objects it has loaded by now; see
/// [`rescan`](crate::rescan) for objects that are loaded later. See [the crate](crate) for what a
/// callback may do.
pub fn register<F: Fn(&Call) + Send + Sync + 'static>(ops: Ops<F>) -> Result<Registration, Error> {
    let Ops { name, filter, notrace, callback, returned, may_match_nothing } = ops;
    let callback = Box::new(callback);
    let callee = SendCallee::new(&*callback);
    let make = |id| Registered { id, name, filter, notrace, callee, callback, returned };
    lock::with(|control| control.add(make, may_match_nothing)).map(|(number, id)| Registration { number, id })
}

/// Registered ops. Dropping this unregisters them, as [`unregister`](Registration::unregister)
/// does.
#[derive(Debug)]
#[must_use = "dropped at once, the ops are off at once"]
pub struct Registration {
    number: usize,
    id: u64,
}

impl Registration {
    /// Returns the ops' number, which no other ops of this process get.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the ops' bit in [`Call::mask`]. Other ops may get it after these were unregistered.
    pub fn mask(&self) -> u32 {
        1 << self.number
    }

    /// Returns how many functions are enabled for the ops.
    pub fn functions(&self) -> Result<usize, Error> {
        lock::with(|control| Ok(control.count(self.mask())))
    }

    /// Replaces the filter, at once: only sites that differ are changed. An empty list means all
    /// functions. Returns how many functions are enabled now; 0 if none match.
    pub fn set_filter<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Result<usize, Error> {
        let filter = globs(words);
        lock::with(|control| control.change(self.number, |ops| ops.filter = filter))
    }

    /// Replaces the `notrace` list, at once. An empty list means no exceptions. Returns how many
    /// functions are enabled now.
    pub fn set_notrace<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Result<usize, Error> {
        let notrace = globs(words);
        lock::with(|control| control.change(self.number, |ops| ops.notrace = notrace))
    }

    /// Unregisters the ops. **When this returns, the callback does not run and will not run
    /// again**, in any thread, and is dropped.
    ///
    /// It waits for callbacks that are running, even those of other ops, so they must not wait for
    /// the caller. From inside a callback it is an error, as it would wait for itself; the ops then
    /// stay registered until the next call of this library from outside.
    pub fn unregister(self) -> Result<(), Error> {
        let result = self.take_off();
        std::mem::forget(self);
        result
    }

    fn take_off(&self) -> Result<(), Error> {
        match lock::with(|control| control.remove(self.number)) {
            Ok(registered) => {
                drop(registered);
                Ok(())
            }
            Err(error) => {
                ABANDONED.fetch_or(self.mask(), SeqCst);
                Err(error)
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = self.take_off();
    }
}
