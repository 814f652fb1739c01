//! The tree of directories and files, and making and removing instances.

use super::Tracefs;
use crate::clocks::Stretch;
use crate::instance::Instance;
use crate::nodes::{Dir, Entry, Node, entries, mode};
use rustix::io::Errno;

/// Maximum number of instances, the first included: each has up to three tracers, stacks have two,
/// and a site has 32 bits for them.
const INSTANCES: usize = 10;

/// Attributes of a file or directory, for `stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Inode number.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Permissions.
    pub mode: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Number of links.
    pub links: u32,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Name of the entry.
    pub name: String,
    /// Inode number.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

impl Tracefs {
    pub(super) fn inode(&mut self, node: Node) -> u64 {
        *self.inodes.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u64
        })
    }

    pub(super) fn node(&self, inode: u64) -> Result<Node, Errno> {
        let place = usize::try_from(inode).ok().and_then(|inode| inode.checked_sub(1));
        let node = place.and_then(|place| self.nodes.get(place)).copied().ok_or(Errno::NOENT)?;
        if self.instances.iter().any(|instance| instance.id == node.instance) {
            Ok(node)
        } else {
            Err(Errno::NOENT)
        }
    }

    pub(super) fn place(&self, id: u32) -> Result<usize, Errno> {
        self.instances.iter().position(|instance| instance.id == id).ok_or(Errno::NODEV)
    }

    /// Returns the entries of a directory.
    fn children(&self, node: Node) -> Result<Vec<(String, Node)>, Errno> {
        let Entry::Dir(dir) = node.entry else { return Err(Errno::NOTDIR) };
        if dir == Dir::Instances {
            let others = self.instances.iter().filter(|instance| !instance.is_top());
            let root = |instance: &Instance| Node { instance: instance.id, entry: Entry::Dir(Dir::Root) };
            return Ok(others.map(|instance| (instance.name.clone(), root(instance))).collect());
        }
        let all = entries(dir, node.instance == 0, self.processors).into_iter();
        Ok(all.map(|(name, entry)| (name, Node { instance: node.instance, entry })).collect())
    }

    /// Returns the attributes of a directory's entry by its name.
    pub fn lookup(&mut self, parent: u64, name: &str) -> Result<Attributes, Errno> {
        let children = self.children(self.node(parent)?)?;
        let (_, node) = children.into_iter().find(|(own, _)| own == name).ok_or(Errno::NOENT)?;
        let inode = self.inode(node);
        self.attributes(inode)
    }

    /// Returns the attributes of a file or directory.
    pub fn attributes(&self, inode: u64) -> Result<Attributes, Errno> {
        let node = self.node(inode)?;
        let (mode, owner) = self.changed.get(&node).copied().unwrap_or((mode(node.entry), self.owner));
        let is_dir = matches!(node.entry, Entry::Dir(_));
        let below = |(_, child): &(String, Node)| matches!(child.entry, Entry::Dir(_));
        let links = if is_dir {
            2 + self.children(node)?.iter().filter(|child| below(child)).count() as u32
        } else {
            1
        };
        Ok(Attributes { inode, is_dir, mode, owner, links })
    }

    /// Changes permissions or owner. A new size changes nothing, as in the kernel.
    pub fn set_attributes(
        &mut self,
        inode: u64,
        mode: Option<u16>,
        owner: (Option<u32>, Option<u32>),
    ) -> Result<Attributes, Errno> {
        let old = self.attributes(inode)?;
        let owner = (owner.0.unwrap_or(old.owner.0), owner.1.unwrap_or(old.owner.1));
        let node = self.node(inode)?;
        self.changed.insert(node, (mode.unwrap_or(old.mode), owner));
        self.attributes(inode)
    }

    /// Returns the listing of a directory.
    pub fn list(&mut self, inode: u64) -> Result<Vec<Listing>, Errno> {
        let children = self.children(self.node(inode)?)?;
        let listing = |(name, node): (String, Node)| Listing {
            name,
            inode: self.inode(node),
            is_dir: matches!(node.entry, Entry::Dir(_)),
        };
        Ok(children.into_iter().map(listing).collect())
    }

    /// Makes an instance.
    pub fn make_directory(&mut self, parent: u64, name: &str) -> Result<Attributes, Errno> {
        if self.node(parent)?.entry != Entry::Dir(Dir::Instances) {
            return Err(Errno::PERM);
        }
        if self.instances.iter().any(|instance| !instance.is_top() && instance.name == name) {
            return Err(Errno::EXIST);
        }
        if self.instances.len() == INSTANCES {
            return Err(Errno::NOSPC);
        }
        let id = self.next_instance;
        self.next_instance += 1;
        let options = self.instances[0].options.clone();
        let mut instance = Instance::new(id, name, options, self.processors);
        instance.reach(Stretch { from: self.last, to: self.last });
        instance.clear();
        self.instances.push(instance);
        self.chosen = false;
        self.lookup(parent, name)
    }

    /// Removes an instance.
    pub fn remove_directory(&mut self, parent: u64, name: &str) -> Result<(), Errno> {
        let inode = self.lookup(parent, name)?.inode;
        let node = self.node(inode)?;
        if node.entry != Entry::Dir(Dir::Root) || node.instance == 0 {
            return Err(Errno::PERM);
        }
        let place = self.place(node.instance)?;
        if self.instances[place].open > 0 {
            return Err(Errno::BUSY);
        }
        self.effects.selects = true;
        // Events are not interpreted by the former numbers of instances.
        self.chosen = false;
        self.ingest.forget(place);
        self.instances.remove(place);
        self.inodes.retain(|known, _| known.instance != node.instance);
        self.changed.retain(|known, _| known.instance != node.instance);
        Ok(())
    }
}
