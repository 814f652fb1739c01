//! Decodes streams to events. The bytes are not trusted: every length, index and number is checked.

use super::predictor::{FULL_SLOTS, Predictor, SMALL_EVENTS, SMALL_SLOTS, SPELT, Tables};
use super::sealed::Span;
use super::streams::{Cursor, narrow, unzigzag};
use super::symbol::*;
use super::ticks::{TICK_FAR, TICK_FAR_CODE, TICK_SHORT};
use super::{CHUNK_EVENTS, Damage};
use crate::event::{Batch, Event, EventKind, Values};
use crate::meta::SiteId;

/// Decoder of chunks; it keeps its tables from one to the next.
#[derive(Default)]
pub(crate) struct Decoder {
    tables: Tables,
    callers: Vec<u64>,
    usual: Vec<Symbol>,
}

/// The streams of a chunk that are read irregularly, and its callers.
struct Streams<'a> {
    spelt: Cursor<'a>,
    details: Cursor<'a>,
    far: Cursor<'a>,
    callers: &'a [u64],
    usual: &'a mut [Symbol],
    max_site: u32,
}

impl Decoder {
    /// Replaces the contents of `batch` by the events of one chunk.
    pub(crate) fn decode(&mut self, raw: &[u8], span: &Span, batch: &mut Batch) -> Result<(), Damage> {
        let out = &mut batch.events;
        batch.values.clear();
        let events = span.events as usize;
        let structure = raw.len().checked_sub(events).ok_or(Damage("it is too short for its events"))?;
        let (structure, ticks) = raw.split_at(structure);
        let mut head = Cursor(structure);
        let mut now = span.low.wrapping_add(head.varint()?);
        let callers = head.varint()?;
        let lengths = [head.varint()?, head.varint()?, head.varint()?];
        if events > CHUNK_EVENTS || callers > CHUNK_EVENTS as u64 {
            return Err(Damage("it claims too many events"));
        }
        self.callers.clear();
        let mut caller = 0_u64;
        for _ in 0..callers {
            caller = caller.wrapping_add(unzigzag(head.varint()?));
            self.callers.push(caller);
        }
        let tokens = head.take(events.div_ceil(4))?;
        let mut part = |length: u64| head.take(usize::try_from(length).unwrap_or(usize::MAX)).map(Cursor);
        let [spelt, details, far] = [part(lengths[0])?, part(lengths[1])?, part(lengths[2])?];
        values(head, events, &mut batch.values)?;
        self.usual.clear();
        self.usual.resize(self.callers.len(), 0);
        let mut streams = Streams {
            spelt,
            details,
            far,
            callers: &self.callers,
            usual: &mut self.usual,
            max_site: span.max_site,
        };
        self.tables.start();
        // The buffer is not cleared, so that a reused one is not filled twice.
        out.resize(events, Event { ticks: 0, site: SiteId(0), kind: EventKind::Entry });
        let (small, full) = out.split_at_mut(events.min(SMALL_EVENTS));
        let (tokens, more_tokens) = tokens.split_at(small.len().div_ceil(4));
        let (ticks, more_ticks) = ticks.split_at(small.len());
        run::<SMALL_SLOTS>(self.tables.predictor(), &mut streams, tokens, ticks, &mut now, small)?;
        if !full.is_empty() {
            self.tables.widen();
            run::<FULL_SLOTS>(
                self.tables.predictor(),
                &mut streams,
                more_tokens,
                more_ticks,
                &mut now,
                full,
            )?;
        }
        if streams.spelt.0.is_empty() && streams.details.0.is_empty() && streams.far.0.is_empty() {
            Ok(())
        } else {
            Err(Damage("a stream is too long"))
        }
    }
}

/// Decodes the values, which are the rest of the structure.
fn values(mut rest: Cursor<'_>, events: usize, values: &mut Values) -> Result<(), Damage> {
    let mut next = 0_usize;
    while !rest.0.is_empty() {
        let skipped = usize::try_from(rest.varint()?).unwrap_or(usize::MAX);
        let length = usize::try_from(rest.varint()?).unwrap_or(usize::MAX);
        let event = next.saturating_add(skipped);
        if event >= events {
            return Err(Damage("values of an event that is not there"));
        }
        values.add(event, rest.take(length)?);
        next = event + 1;
    }
    Ok(())
}

/// Decodes as many events as `out` has room for.
fn run<const SLOTS: usize>(
    mut predictor: Predictor<'_, SLOTS>,
    streams: &mut Streams,
    tokens: &[u8],
    ticks: &[u8],
    now: &mut u64,
    out: &mut [Event],
) -> Result<(), Damage> {
    let mut last = *now;
    for ((out, ticks), &tokens) in out.chunks_mut(4).zip(ticks.chunks(4)).zip(tokens) {
        let mut tokens = tokens;
        for (out, &code) in out.iter_mut().zip(ticks) {
            let delta = if u64::from(code) < TICK_SHORT { u64::from(code) } else { streams.far(code)? };
            last = last.wrapping_add(delta);
            out.ticks = last;
            event(tokens & 3, &mut predictor, streams, out)?;
            tokens >>= 2;
        }
    }
    *now = last;
    Ok(())
}

/// Decodes kind and function of an event into `out`.
#[inline(always)]
fn event<const SLOTS: usize>(
    token: u8,
    predictor: &mut Predictor<'_, SLOTS>,
    streams: &mut Streams,
    out: &mut Event,
) -> Result<(), Damage> {
    let symbol = if token == SPELT {
        match spelt(streams)? {
            Spelt::Symbol(symbol) => predictor.learn(symbol),
            Spelt::Alone(site, kind) => {
                if let EventKind::Exit { pops } | EventKind::Left { pops } | EventKind::Outside { pops } =
                    kind
                {
                    predictor.close(pops);
                }
                (out.site, out.kind) = (SiteId(site), kind);
                return Ok(());
            }
        }
    } else {
        predictor.hear(token)
    };
    let enters = symbol >> 32 == ENTRY;
    if enters | (symbol == EXIT_TOP) {
        // A single branch for both: the processor cannot predict which of the two comes.
        let site = if enters { site_of(symbol) } else { predictor.top() };
        predictor.step(symbol, site, !enters);
        out.site = SiteId(site);
        out.kind = if enters { EventKind::Entry } else { EventKind::Exit { pops: 1 } };
        return Ok(());
    }
    predictor.step_other(symbol);
    let (site, kind) = meaning(symbol, streams.callers)?;
    (out.site, out.kind) = (SiteId(site), kind);
    Ok(())
}

/// Returns function and kind of an event for a symbol.
fn meaning(symbol: Symbol, callers: &[u64]) -> Result<(u32, EventKind), Damage> {
    let caller =
        || callers.get(aux_of(symbol) as usize).copied().ok_or(Damage("a caller is not in the list"));
    let kind = match kind_of(symbol) {
        ENTRY => EventKind::Entry,
        TAIL_ENTRY => EventKind::TailEntry,
        CALL => EventKind::Call { parent: caller()? },
        ENTRY_FROM => EventKind::EntryFrom { parent: caller()? },
        TAIL_ENTRY_FROM => EventKind::TailEntryFrom { parent: caller()? },
        _ => EventKind::Exit { pops: aux_of(symbol) as u32 },
    };
    Ok((site_of(symbol), kind))
}

/// An event that was spelt out.
enum Spelt {
    Symbol(Symbol),
    /// An event from which neither side learns.
    Alone(u32, EventKind),
}

/// Reads an event that the encoder spelt out.
#[inline(never)]
fn spelt(streams: &mut Streams) -> Result<Spelt, Damage> {
    let head = streams.spelt.varint()?;
    let symbol = if head & 7 == USUAL {
        let usual = usize::try_from(head >> 3).ok().and_then(|caller| streams.usual.get(caller));
        *usual.filter(|symbol| **symbol != 0).ok_or(Damage("a caller is not in the list"))?
    } else {
        let (site, kind) = (narrow(head >> 3)?, head & 7);
        if site > streams.max_site {
            return Err(Damage("a site is above the greatest one it declares"));
        }
        let aux = match kind {
            ENTRY | TAIL_ENTRY => 0,
            EXIT => {
                let pops = narrow(streams.details.varint()?)?;
                if u64::from(pops) >= AUX_END {
                    return Ok(Spelt::Alone(site, EventKind::Exit { pops }));
                }
                u64::from(pops)
            }
            LOST => {
                let entries = narrow(streams.details.varint()?)?;
                let exits = narrow(streams.details.varint()?)?;
                let kind = match (entries, exits) {
                    (0, 0) => match streams.details.varint()? {
                        NOTHING_LOST => EventKind::Lost { entries, exits },
                        SWITCHED_OFF => EventKind::SwitchedOff,
                        THREAD_ENDED => EventKind::ThreadEnded,
                        RESUMED => EventKind::Resumed,
                        outside if outside >= FIRST_OUTSIDE => {
                            EventKind::Outside { pops: narrow(outside - FIRST_OUTSIDE)? }
                        }
                        left => EventKind::Left { pops: narrow(left - FIRST_LEFT)? },
                    },
                    _ => EventKind::Lost { entries, exits },
                };
                return Ok(Spelt::Alone(site, kind));
            }
            _ => {
                let caller = streams.details.varint()?;
                let usual = usize::try_from(caller).ok().and_then(|caller| streams.usual.get_mut(caller));
                *usual.ok_or(Damage("a caller is not in the list"))? = symbol(site, kind, caller);
                caller
            }
        };
        symbol(site, kind, aux)
    };
    Ok(Spelt::Symbol(symbol))
}

impl Streams<'_> {
    #[inline(never)]
    fn far(&mut self, code: u8) -> Result<u64, Damage> {
        if code < TICK_FAR_CODE {
            let page = u64::from(code) - TICK_SHORT;
            return Ok(TICK_SHORT + (page << 8) + self.far.little(1)?);
        }
        let bytes =
            TICK_FAR.get(usize::from(code - TICK_FAR_CODE)).ok_or(Damage("a tick code of no meaning"))?;
        self.far.little(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn try_decode(raw: &[u8], events: u32, max_site: u32) {
        let span = Span { events, low: 0, high: 0, max_site };
        let mut out = Batch::default();
        if Decoder::default().decode(raw, &span, &mut out).is_ok() {
            assert_eq!(out.events.len(), events as usize);
            let site = |event: &Event| event.site.0;
            assert!(out.events.iter().all(|event| site(event) <= max_site));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checksums protect against accidents; these are bytes with a deliberately valid checksum.
        #[test]
        fn decoder_rejects_arbitrary_bytes(raw in vec(any::<u8>(), 0..300), events in 0..400_u32, max_site in 0..9_u32) {
            try_decode(&raw, events, max_site);
        }

        /// Arbitrary streams behind a head whose lengths add up, so that the streams themselves are
        /// read.
        #[test]
        fn decoder_rejects_arbitrary_streams(
            callers in vec(0..128_u8, 0..4),
            streams in [60, 9, 9_usize].map(|most| vec(prop_oneof![0..16_u8, any::<u8>()], 0..most)),
            tokens in vec(any::<u8>(), 75),
            ticks in vec(prop_oneof![9 => 0..224_u8, 1 => any::<u8>()], 300),
        ) {
            let mut raw = vec![0, callers.len() as u8];
            raw.extend(streams.each_ref().map(|stream| stream.len() as u8));
            raw.extend([callers, tokens].into_iter().chain(streams).flatten().chain(ticks));
            try_decode(&raw, 300, 1);
        }
    }
}
