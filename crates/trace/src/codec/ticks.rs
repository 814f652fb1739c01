//! Encodes times: one byte an event, and a few more for the few that need them.

/// Differences below this take one byte, of which the upper three bits are not all set.
pub(super) const TICK_SHORT: u64 = 224;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;
/// Number of codes for which the byte holds the high part of the difference, and one byte of the
/// far stream the low part.
const TICK_PAGES: u64 = 24;
/// First difference that needs two or more bytes of the far stream.
const TICK_LONG: u64 = TICK_SHORT + (TICK_PAGES << 8);
/// Number of bytes in the far stream for the codes from 248 on; the last one holds any difference,
/// backwards too.
pub(super) const TICK_FAR: [usize; 4] = [2, 3, 4, 8];
/// First code with two or more bytes in the far stream.
pub(super) const TICK_FAR_CODE: u8 = (TICK_SHORT + TICK_PAGES) as u8;

/// The times of one chunk.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Times {
    /// Begins a chunk.
    pub(super) fn start(&mut self, ticks: u64) {
        *self = Self { first: ticks, last: ticks, low: ticks, high: ticks };
    }

    /// Encodes the ticks of the next events to as many `codes`.
    pub(super) fn encode(&mut self, ticks: &[u64], codes: &mut [u8], far: &mut Vec<u8>) {
        let (eights, rest) = ticks.as_chunks::<8>();
        let (codes, codes_of_rest) = codes.as_chunks_mut::<8>();
        for (codes, ticks) in codes.iter_mut().zip(eights) {
            // Computes the codes as if all were short, without a branch.
            let (mut word, mut last) = (0, self.last);
            for (at, now) in ticks.iter().enumerate() {
                word |= now.wrapping_sub(last).min(255) << (8 * at);
                last = *now;
            }
            // A small step in which the clock wraps around is not short. If no other step is far,
            // `last` is less than before.
            if word & word << 1 & word << 2 & HIGHEST_BITS == 0 && last >= self.last {
                *codes = u64::to_le_bytes(word);
                self.last = last;
            } else {
                self.encode_each(ticks, codes, far);
            }
        }
        self.encode_each(rest, codes_of_rest, far);
    }

    #[inline(never)]
    fn encode_each(&mut self, ticks: &[u64], codes: &mut [u8], far: &mut Vec<u8>) {
        for (code, &now) in codes.iter_mut().zip(ticks) {
            *code = self.code(now, far);
            self.last = now;
        }
    }

    #[inline(always)]
    fn code(&mut self, now: u64, far: &mut Vec<u8>) -> u8 {
        if now < self.last {
            self.high = self.high.max(self.last);
            self.low = self.low.min(now);
        }
        match now.wrapping_sub(self.last) {
            delta if now < delta => put_far(far, 3, delta),
            delta @ 0..TICK_SHORT => delta as u8,
            delta @ TICK_SHORT..TICK_LONG => {
                let past = delta - TICK_SHORT;
                far.push(past as u8);
                (TICK_SHORT + (past >> 8)) as u8
            }
            delta @ TICK_LONG..=0xffff => put_far(far, 0, delta),
            delta @ 0x1_0000..=0xff_ffff => put_far(far, 1, delta),
            delta @ 0x100_0000..=0xffff_ffff => put_far(far, 2, delta),
            delta => put_far(far, 3, delta),
        }
    }
}

fn put_far(far: &mut Vec<u8>, code: u8, delta: u64) -> u8 {
    far.extend_from_slice(&delta.to_le_bytes()[..TICK_FAR[usize::from(code)]]);
    TICK_FAR_CODE + code
}
