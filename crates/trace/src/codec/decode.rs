//! Streams to events. The bytes are nobody's friend: every length, index and number is checked.

use super::encode::Span;
use super::predictor::{Predictor, SMALL_EVENTS, SPELT, Tables, is_graph};
use super::streams::{Cursor, unzigzag};
use super::symbol::*;
use super::{CHUNK_EVENTS, Damage, TICK_FAR, TICK_FAR_CODE, TICK_SHORT};
use crate::{Event, EventKind, SiteId};

/// Decodes chunks; keeps its tables from one to the next.
#[derive(Default)]
pub(crate) struct Decoder {
    tables: Tables,
    callers: Vec<u64>,
    usual: Vec<Symbol>,
}

struct Streams<'a> {
    spelt: Cursor<'a>,
    details: Cursor<'a>,
    far: Cursor<'a>,
    callers: &'a [u64],
    usual: &'a mut [Symbol],
    max_site: u32,
}

impl Decoder {
    /// Replaces `out` by the events of one chunk.
    pub(crate) fn decode(&mut self, raw: &[u8], span: &Span, out: &mut Vec<Event>) -> Result<(), Damage> {
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
        // Not cleared: a buffer that is used again is not filled twice.
        out.resize(events, Event { ticks: 0, site: SiteId(0), kind: EventKind::Entry });
        for (round, (out, ticks)) in out.chunks_mut(SMALL_EVENTS).zip(ticks.chunks(SMALL_EVENTS)).enumerate()
        {
            if round == 1 {
                self.tables.widen();
            }
            let mut predictor = self.tables.predictor();
            let tokens = &tokens[round * (SMALL_EVENTS / 4)..];
            for ((out, ticks), &tokens) in out.chunks_mut(4).zip(ticks.chunks(4)).zip(tokens) {
                let mut tokens = tokens;
                for (out, &code) in out.iter_mut().zip(ticks) {
                    let delta =
                        if u64::from(code) < TICK_SHORT { u64::from(code) } else { streams.far(code)? };
                    now = now.wrapping_add(delta);
                    let (site, kind) = event(tokens & 3, &mut predictor, &mut streams)?;
                    *out = Event { ticks: now, site: SiteId(site), kind };
                    tokens >>= 2;
                }
            }
        }
        if streams.spelt.0.is_empty()
            && streams.details.0.is_empty()
            && streams.far.0.is_empty()
            && head.0.is_empty()
        {
            Ok(())
        } else {
            Err(Damage("a stream is too long"))
        }
    }
}

#[inline(always)]
fn event(token: u8, predictor: &mut Predictor, streams: &mut Streams) -> Result<(u32, EventKind), Damage> {
    if token == SPELT {
        return spelt(predictor, streams);
    }
    let symbol = predictor.hear(token);
    let enters = symbol >> 32 == ENTRY;
    if enters | (symbol == EXIT_TOP) {
        // One way for both: which of the two it is, is just what the processor cannot guess either.
        let site = if enters { site_of(symbol) } else { predictor.top() };
        predictor.step(symbol, site, !enters);
        return Ok((site, if enters { EventKind::Entry } else { EventKind::Exit { pops: 1 } }));
    }
    predictor.step_other(symbol);
    meaning(symbol, streams.callers)
}

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

/// A symbol the encoder spelt out.
#[inline(never)]
fn spelt(predictor: &mut Predictor, streams: &mut Streams) -> Result<(u32, EventKind), Damage> {
    let number = |value: u64| u32::try_from(value).map_err(|_| Damage("a number is too large"));
    let head = streams.spelt.varint()?;
    let symbol = if head & 7 == USUAL {
        let usual = usize::try_from(head >> 3).ok().and_then(|caller| streams.usual.get(caller));
        *usual.filter(|symbol| **symbol != 0).ok_or(Damage("a caller is not in the list"))?
    } else {
        let (site, kind) = (number(head >> 3)?, head & 7);
        if site > streams.max_site {
            return Err(Damage("a site is above the greatest one it declares"));
        }
        let aux = match kind {
            ENTRY | TAIL_ENTRY => 0,
            EXIT => {
                let pops = number(streams.details.varint()?)?;
                if u64::from(pops) >= AUX_END {
                    predictor.close(pops);
                    return Ok((site, EventKind::Exit { pops }));
                }
                u64::from(pops)
            }
            LOST => {
                let entries = number(streams.details.varint()?)?;
                let exits = number(streams.details.varint()?)?;
                return Ok((site, EventKind::Lost { entries, exits }));
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
    predictor.learn(symbol);
    if is_graph(symbol) {
        predictor.step(symbol, site_of(symbol), symbol >> 32 != ENTRY);
    } else {
        predictor.step_other(symbol);
    }
    meaning(symbol, streams.callers)
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
