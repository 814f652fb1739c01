//! Compresses packets in blocks, as Perfetto's own writers do (`compressed_packets`). A separate
//! thread compresses while the next packets are made.

use crate::proto::message;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::Scope;

/// Field of Trace.packet.
const PACKET: u32 = 1;
const COMPRESSED_PACKETS: u32 = 50;
/// Minimum number of bytes compressed together.
const TOGETHER: usize = 256 << 10;
/// Maximum number of blocks that are being compressed or wait for it.
const AHEAD: usize = 4;
/// Compression level; the packets of calls are so alike that a higher one gains little.
const LEVEL: u32 = 1;

/// Takes packets, compresses and writes them.
pub(super) struct Packed<'a> {
    out: &'a mut dyn Write,
    blocks: SyncSender<Vec<u8>>,
    packed: Receiver<io::Result<Vec<u8>>>,
    /// Number of blocks that are not written yet.
    under_way: usize,
}

impl<'a> Packed<'a> {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn new<'scope>(scope: &'scope Scope<'scope, '_>, out: &'a mut dyn Write) -> Packed<'a> {
        let (blocks, full) = sync_channel::<Vec<u8>>(AHEAD);
        let (done, packed) = channel();
        scope.spawn(move || {
            for block in full {
                if done.send(pack(&block)).is_err() {
                    return;
                }
            }
        });
        Packed { out, blocks, packed, under_way: 0 }
    }

    /// Takes the packets once there are enough of them, or at the end all that are left and waits
    /// until they are written.
    pub(super) fn add(&mut self, packets: &mut Vec<u8>, is_end: bool) -> io::Result<()> {
        let ended = || io::Error::other("compressing the packets failed");
        if packets.len() >= TOGETHER || is_end && !packets.is_empty() {
            let block = std::mem::replace(packets, Vec::with_capacity(packets.capacity()));
            self.blocks.send(block).map_err(|_| ended())?;
            self.under_way += 1;
        }
        let may_wait = if is_end { 0 } else { AHEAD };
        while self.under_way > may_wait {
            let block = self.packed.recv().map_err(|_| ended())??;
            self.under_way -= 1;
            self.out.write_all(&block)?;
        }
        Ok(())
    }
}

/// Returns a packet that contains the compressed packets.
fn pack(packets: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflate = ZlibEncoder::new(Vec::with_capacity(packets.len() / 4), Compression::new(LEVEL));
    deflate.write_all(packets)?;
    let compressed = deflate.finish()?;
    let mut packet = Vec::with_capacity(compressed.len() + 16);
    message(&mut packet, PACKET, |packet| {
        crate::proto::bytes(packet, COMPRESSED_PACKETS, &compressed);
    });
    Ok(packet)
}
