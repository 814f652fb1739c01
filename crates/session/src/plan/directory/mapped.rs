//! Session directories that are found by a process's mappings.

use super::living::{OF, PREFIX, is_of_living, prefix_of};
use super::place::{Base, OpenDirectory};
use calltap_process::agent;
use calltap_process::memory::maps::{self, Region};
use calltap_process::target::Target;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the directory of a program that was started with the agent inside, or of a process that
/// has changed its root directory since calltap attached.
pub(super) fn of(target: &Target) -> Option<OpenDirectory> {
    let own = prefix_of(target);
    find(target, |name| name.starts_with(PREFIX) || name.starts_with(&own)).map(|(place, _)| place)
}

/// Returns the directory of the process from which this one was forked while calltap was attached,
/// with that process's id if it lives.
pub(super) fn inherited(target: &Target) -> Option<(OpenDirectory, Option<u32>)> {
    let own = prefix_of(target);
    let (place, name) = find(target, |name| name.starts_with(OF) && !name.starts_with(&own))?;
    let first = name.strip_prefix(OF).and_then(|name| name.split('.').next()?.parse().ok());
    Some((place, first.filter(|_| is_of_living(&name))))
}

/// Returns the directory whose control file is mapped, if its name is accepted, with its name.
fn find(target: &Target, accepts: impl Fn(&str) -> bool) -> Option<(OpenDirectory, String)> {
    let regions = maps::read(target.pid).ok()?;
    // A calltap that records another process maps the control file, too, but has no agent.
    if !regions.iter().any(agent::is_mapped) {
        return None;
    }
    let name_of = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let control = regions.iter().find(|region| {
        let directory = region.path.parent().and_then(name_of).unwrap_or_default();
        region.name() == "control" && accepts(&directory)
    })?;
    let directory = control.path.parent()?;
    let name = name_of(directory)?;
    // The path of a mapping leads nowhere if the program has unmounted its former root.
    let bases = directory.parent().into_iter().chain(["/dev/shm", "/tmp", "/var/tmp"].map(Path::new));
    let places = bases.filter_map(|base| OpenDirectory::open(Base::own(base.to_owned()), &name).ok());
    let has_inode =
        |place: &OpenDirectory| file_of(place, "control").is_some_and(|(_, inode)| inode == control.file.1);
    let mut own = places.filter(has_inode);
    let place = own.find(|place| is_owned_by(place, target) || runs(&regions, place))?;
    Some((place, name))
}

/// Whether a directory is calltap's own, or that of the user of a process.
fn is_owned_by(place: &OpenDirectory, target: &Target) -> bool {
    let trusted = [target.owner().map_or(0, |(uid, _)| uid), rustix::process::geteuid().as_raw()];
    place.directory.metadata().is_ok_and(|meta| trusted.contains(&meta.uid()))
}

/// Whether a directory can be trusted to be that of a process: it is its user's, or was when the
/// process mapped its stubs, which it executes. Their owner can make it execute anything.
pub(super) fn is_trusted(place: &OpenDirectory, target: &Target) -> bool {
    is_owned_by(place, target) || maps::code_and_files(target.pid).is_ok_and(|regions| runs(&regions, place))
}

/// Whether a mapping is executed whose file is a directory's own: it has no other name, and the
/// same owner.
fn runs(regions: &[Region], place: &OpenDirectory) -> bool {
    let metadata = || place.file("code").and_then(|file| file.metadata()).ok();
    let owner = || place.directory.metadata().ok().map(|metadata| metadata.uid());
    let is_own = metadata().is_some_and(|code| code.nlink() == 1 && Some(code.uid()) == owner());
    let Some(code) = file_of(place, "code").filter(|_| is_own) else { return false };
    regions.iter().any(|region| region.executable && region.file == code)
}

/// Returns device and inode of a file of a directory, as in a list of mappings.
fn file_of(place: &OpenDirectory, name: &str) -> Option<(String, u64)> {
    let metadata = place.file(name).and_then(|file| file.metadata()).ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    Some((format!("{major:02x}:{minor:02x}"), metadata.ino()))
}
