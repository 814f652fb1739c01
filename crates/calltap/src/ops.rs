//! Ops: a callback with a name and filters, registered.

use crate::call::Call;
use crate::callee::SendCallee;
use crate::control::Registered;
use crate::error::Error;
use crate::lock::{self, ABANDONED};
use crate::returns::{self, Return, Returned};
use calltap_names::Glob;
use std::sync::atomic::Ordering::SeqCst;

/// A callback, the functions that it is for, and a name.
///
/// Filters are globs as in ftrace (`net_*`, `*alloc*`, `[!_]*`), compared with the names of functions, demangled and not. Without a filter all functions are meant; those in
/// `notrace` never are.
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
    /// Ops for all functions.
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

    /// Only functions that match one of these.
    pub fn filter<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Ops<F> {
        self.filter = globs(words);
        self
    }

    /// No function that matches one of these.
    pub fn notrace<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Ops<F> {
        self.notrace = globs(words);
        self
    }

    /// A callback for returns, too: how long each call took.
    ///
    /// It runs when a function of these ops returns to its caller, or ends by a panic if it has the [`traced`](crate::traced) attribute, for calls whose entry these ops were
    /// told of. A call that longjmp or an exception leaves has no return; nor has one that was entered by a tail call out of another whose return is watched: that one returns.
    pub fn on_return<R: Fn(&Return) + Send + Sync + 'static>(mut self, callback: R) -> Ops<F> {
        self.returned = Some(Box::new(returns::Callback::new(callback)));
        self
    }

    /// Without it, a filter that matches no function is an error of [`register`]. Functions may be meant that are not loaded yet.
    pub fn may_match_nothing(mut self) -> Ops<F> {
        self.may_match_nothing = true;
        self
    }
}

/// Turns ops on: from now on the callback runs at every call of its functions, in every thread.
///
/// Functions are those of the program and of what it has loaded by now; see [`rescan`](crate::rescan) for what is loaded later. See [the crate](crate) for what
/// a callback may do.
pub fn register<F: Fn(&Call) + Send + Sync + 'static>(ops: Ops<F>) -> Result<Registration, Error> {
    let Ops { name, filter, notrace, callback, returned, may_match_nothing } = ops;
    let callback = Box::new(callback);
    let callee = SendCallee::new(&*callback);
    let make = |id| Registered { id, name, filter, notrace, callee, callback, returned };
    lock::with(|control| control.add(make, may_match_nothing)).map(|(number, id)| Registration { number, id })
}

/// Ops that are on. Dropping it turns them off, as [`unregister`](Registration::unregister) does.
#[derive(Debug)]
#[must_use = "dropped at once, the ops are off at once"]
pub struct Registration {
    number: usize,
    id: u64,
}

impl Registration {
    /// A number that no other ops of this process get.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its bit in [`Call::mask`]. It may be another's after this one was unregistered.
    pub fn mask(&self) -> u32 {
        1 << self.number
    }

    /// How many functions are on for it.
    pub fn functions(&self) -> Result<usize, Error> {
        lock::with(|control| Ok(control.count(self.mask())))
    }

    /// Other functions, at once: only sites that differ are changed. An empty list means all. Returns how many functions are on now; 0 if nothing matches.
    pub fn set_filter<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Result<usize, Error> {
        let filter = globs(words);
        lock::with(|control| control.change(self.number, |ops| ops.filter = filter))
    }

    /// Other exceptions, at once. An empty list means none. Returns how many functions are on now.
    pub fn set_notrace<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Result<usize, Error> {
        let notrace = globs(words);
        lock::with(|control| control.change(self.number, |ops| ops.notrace = notrace))
    }

    /// Turns the ops off. **When this returns, the callback does not run and will not run again**, in any thread, and is dropped.
    ///
    /// It waits for callbacks that are running, those of other ops included, so they must not wait for the caller. From inside a callback it is an
    /// error, as it would wait for itself; the ops then run on until the next call of this library from outside.
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
