//! Streams to events. The bytes are nobody's friend: every length, index and number is checked.

use super::encode::Span;
use super::predictor::{FIRST, Predictor, RETURN, SECOND, SMALL_EVENTS};
use super::streams::{Cursor, unzigzag};
use super::symbol::*;
use super::{CHUNK_EVENTS, Damage, TICK_FAR, TICK_FAR_CODE, TICK_SHORT};
use crate::{Event, EventKind, SiteId};

/// Decodes chunks; keeps its tables from one to the next.
#[derive(Default)]
pub(crate) struct Decoder {
    predictor: Predictor,
    callers: Vec<u64>,
}

struct Streams<'a> {
    spelt: Cursor<'a>,
    details: Cursor<'a>,
    far: Cursor<'a>,
    max_site: u32,
}

impl Decoder {
    /// Replaces `out` by the events of one chunk.
    pub(crate) fn decode(&mut self, raw: &[u8], span: &Span, out: &mut Vec<Event>) -> Result<(), Damage> {
        out.clear();
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
        let mut streams = Streams { spelt, details, far, max_site: span.max_site };
        out.reserve(events);
        self.predictor.start();
        for (chunk, (ticks, tokens)) in ticks.chunks(4).zip(tokens).enumerate() {
            if chunk == SMALL_EVENTS / 4 {
                self.predictor.widen();
            }
            let mut tokens = *tokens;
            for &code in ticks {
                let delta = if u64::from(code) < TICK_SHORT { u64::from(code) } else { streams.far(code)? };
                now = now.wrapping_add(delta);
                let (site, kind) = self.event(tokens & 3, &mut streams)?;
                out.push(Event { ticks: now, site: SiteId(site), kind });
                tokens >>= 2;
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

    #[inline(always)]
    fn event(&mut self, token: u8, streams: &mut Streams) -> Result<(u32, EventKind), Damage> {
        let guesses = self.predictor.guesses();
        let symbol = match token {
            FIRST => guesses[0],
            SECOND => guesses[1],
            RETURN => EXIT_TOP,
            _ => match self.spelt(streams)? {
                Ok(symbol) => symbol,
                Err(event) => return Ok(event),
            },
        };
        self.predictor.learn(guesses, symbol);
        let (site, kind) = match kind_of(symbol) {
            ENTRY => {
                let site = site_of(symbol);
                self.predictor.advance(symbol, site);
                self.predictor.open(site);
                return Ok((site, EventKind::Entry));
            }
            EXIT | LOST => {
                let pops = aux_of(symbol) as u32;
                self.predictor.close(pops);
                (site_of(symbol), EventKind::Exit { pops })
            }
            CALL => (site_of(symbol), EventKind::Call { parent: self.caller(symbol)? }),
            TAIL_ENTRY => {
                self.predictor.open(site_of(symbol));
                (site_of(symbol), EventKind::TailEntry)
            }
            ENTRY_FROM => {
                self.predictor.open(site_of(symbol));
                (site_of(symbol), EventKind::EntryFrom { parent: self.caller(symbol)? })
            }
            TAIL_ENTRY_FROM => {
                self.predictor.open(site_of(symbol));
                (site_of(symbol), EventKind::TailEntryFrom { parent: self.caller(symbol)? })
            }
            _ => {
                let site = self.predictor.top();
                self.predictor.close(1);
                (site, EventKind::Exit { pops: 1 })
            }
        };
        self.predictor.advance(symbol, site);
        Ok((site, kind))
    }

    #[inline]
    fn caller(&self, symbol: Symbol) -> Result<u64, Damage> {
        self.callers.get(aux_of(symbol) as usize).copied().ok_or(Damage("a caller is not in the list"))
    }

    /// A symbol the encoder spelt out; `Err` is an event neither side learns from.
    #[inline(never)]
    fn spelt(&mut self, streams: &mut Streams) -> Result<Result<Symbol, (u32, EventKind)>, Damage> {
        let number = |value: u64| u32::try_from(value).map_err(|_| Damage("a number is too large"));
        let head = streams.spelt.varint()?;
        let (site, kind) = (number(head >> 3)?, head & 7);
        if site > streams.max_site {
            return Err(Damage("a site is above the greatest one it declares"));
        }
        let aux = match kind {
            ENTRY | TAIL_ENTRY => 0,
            EXIT => {
                let pops = number(streams.details.varint()?)?;
                if u64::from(pops) >= AUX_END {
                    self.predictor.close(pops);
                    return Ok(Err((site, EventKind::Exit { pops })));
                }
                u64::from(pops)
            }
            LOST => {
                let entries = number(streams.details.varint()?)?;
                let exits = number(streams.details.varint()?)?;
                return Ok(Err((site, EventKind::Lost { entries, exits })));
            }
            CALL | ENTRY_FROM | TAIL_ENTRY_FROM => {
                let at = streams.details.varint()?;
                if at >= self.callers.len() as u64 {
                    return Err(Damage("a caller is not in the list"));
                }
                at
            }
            _ => return Err(Damage("a symbol of no kind")),
        };
        Ok(Ok(symbol(site, kind, aux)))
    }
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
