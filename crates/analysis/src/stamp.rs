//! The form in which times are written: seconds since some beginning, or the time of day.

use calltap_trace::Session;

const SECOND: i64 = 1_000_000_000;

/// The form of written times; their source is CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Seconds since this time of CLOCK_MONOTONIC, nanoseconds; 0: of the clock itself.
    Since(u64),
    /// The time of day, `14:03:21.500000`; the value is its offset from CLOCK_MONOTONIC,
    /// nanoseconds.
    Wall(i64),
}

impl Stamp {
    /// Makes the time of day of a recording, for a time zone that is `ahead_of_utc` seconds ahead
    /// of UTC.
    pub fn wall(session: &Session, ahead_of_utc: i32) -> Stamp {
        let apart = session.start_realtime_ns.wrapping_sub(session.start_monotonic_ns).cast_signed();
        Stamp::Wall(apart.wrapping_add(i64::from(ahead_of_utc) * SECOND))
    }

    /// Formats the time at `ns` of CLOCK_MONOTONIC, cut to the microsecond.
    pub fn at(self, ns: u64) -> String {
        match self {
            Stamp::Since(start) => {
                let us = ns.saturating_sub(start) / 1000;
                format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
            }
            Stamp::Wall(shift) => {
                let of_day = ns.cast_signed().wrapping_add(shift).rem_euclid(24 * 3600 * SECOND);
                let (s, us) = (of_day / SECOND, of_day % SECOND / 1000);
                format!("{:02}:{:02}:{:02}.{us:06}", s / 3600, s / 60 % 60, s % 60)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_to_the_microsecond() {
        assert_eq!(Stamp::Since(1_000).at(2_500_001_999), "2.500000");
        assert_eq!(Stamp::Since(5).at(1), "0.000000");
        assert_eq!(Stamp::Wall(86_399 * SECOND).at(1_999_999_999), "00:00:00.999999");
        assert_eq!(Stamp::Wall(-SECOND).at(500), "23:59:59.000000");
    }
}
