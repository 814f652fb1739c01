//! The reason why a process has no session that this user may open.

use super::Directory;
use super::living::prefix_of;
use super::place::Base;
use calltap_process::Reason;
use calltap_process::target::Target;
use std::fs;
use std::os::unix::fs::MetadataExt;

impl Directory {
    /// Returns why a process without a [directory](Directory::open_for) has no session that this
    /// user may open.
    pub(crate) fn why_none(target: &Target) -> Reason {
        let (prefix, own) = (prefix_of(target), rustix::process::geteuid().as_raw());
        let mut owners = Base::of(target).flat_map(|base| {
            let entries = fs::read_dir(&base.via).into_iter().flatten().flatten();
            let prefix = &prefix;
            let is_named =
                move |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
            entries
                .filter(is_named)
                .filter_map(|entry| Some(entry.metadata().ok()?.uid()))
                .collect::<Vec<_>>()
        });
        match owners.find(|owner| *owner != own) {
            Some(user) => Reason::AnothersSession { user },
            None => Reason::NotAttached,
        }
    }
}
