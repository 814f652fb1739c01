use super::*;

/// Uniform noise in 0..1, the same in every run of the test.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mean call time in `number` recordings: each is slowed by some per cent, one of eight by up
    /// to half, as if other programs had the processor.
    fn recordings(&mut self, number: usize, ns: f64, load: f64) -> Mean {
        let values: Vec<f64> = (0..number)
            .map(|_| {
                let usual = (0..4).map(|_| self.next()).sum::<f64>() * 0.01;
                let seldom = if self.next() < 0.125 { self.next() * load } else { 0.0 };
                ns * (1.0 + usual + seldom)
            })
            .collect();
        Mean::of_values(&values)
    }
}

/// Returns in how many of 1,000 pairs of sides with five recordings B is proven to be more than
/// `ratio` times A, being `true_ratio` times A.
fn proven(true_ratio: f64, ratio: f64, load: f64) -> usize {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let is_proven = |_: &usize| {
        let a = noise.recordings(MIN_RECORDINGS, 1000.0, load);
        let b = noise.recordings(MIN_RECORDINGS, 1000.0 * true_ratio, load);
        let margin = margin(Measure::Avg, &a, &b, ratio, ERROR_RATE).unwrap();
        b.mean - margin > ratio * a.mean
    };
    (0..1000).filter(is_proven).count()
}

#[test]
fn noise_between_equal_programs_proves_no_difference() {
    for load in [0.0, 0.5, 5.0] {
        assert_eq!(proven(1.0, 1.05, load), 0, "load {load}");
        // Even a bound at A itself is exceeded no more often than the error rate allows.
        assert!(proven(1.0, 1.0, load) <= 1, "load {load}: {}", proven(1.0, 1.0, load));
    }
}

#[test]
fn a_tenth_more_is_found() {
    assert_eq!(proven(1.1, 1.03, 0.0), 1000);
    assert!(proven(1.1, 1.0, 0.0) == 1000 && proven(1.1, 1.15, 0.0) == 0);
}

#[test]
fn the_margin_is_that_of_welch_s_test() {
    // By hand: the variances are 2.5 and 10 of five recordings each, so 2.5 / 5 + 10 / 5 = 2.5,
    // with 6.25 / (0.25 / 4 + 4 / 4) = 5.88 degrees of freedom.
    let a = Mean::of_values(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let b = Mean::of_values(&[2.0, 4.0, 6.0, 8.0, 10.0]);
    let found = margin(Measure::Total, &a, &b, 1.0, 0.001).unwrap();
    // The degrees of freedom are rounded down to 5.
    assert!((found - 5.8934 * 2.5f64.sqrt()).abs() < 0.01, "{found}");
    let (low, high) = interval(Measure::Total, &a, &b, 1).unwrap();
    assert!((low + high) / 2.0 == 3.0 && high - low > 2.0 * found);
}

#[test]
fn the_quantiles_are_those_of_the_tables() {
    for (probability, freedom, quantile) in [
        (0.975, 1, 12.7062),
        (0.999, 2, 22.3271),
        (0.999, 4, 7.1732),
        (0.999, 8, 4.5008),
        (0.9995, 10, 4.5869),
        (0.999, 18, 3.6105),
        (0.999, 30, 3.3852),
    ] {
        let found = StudentsT::ppf(probability, freedom as f64);
        assert!((found / quantile - 1.0).abs() < 2e-3, "{probability}, {freedom}: {found}");
    }
    // Small error rates arise where many functions share the rate.
    for freedom in 1..60 {
        for error in [1e-3, 1e-5, 1e-7, 1e-9] {
            let quantile = StudentsT::ppf(1.0 - error, f64::from(freedom));
            let back = StudentsT::cdf(-quantile, f64::from(freedom));
            assert!((0.9..1.1).contains(&(back / error)), "{freedom}, {error}: {quantile}, {back}");
        }
    }
}

#[test]
fn one_recording_proves_nothing_of_times_and_the_number_of_its_calls() {
    let (one, several) = (Mean::of_values(&[7.0]), Mean::of_values(&[6.0, 7.0, 8.0]));
    assert_eq!(margin(Measure::Total, &one, &several, 1.0, 0.001), None);
    assert!(margin(Measure::Total, &one, &several, 0.0, 0.001).is_some(), "A is not looked at");
    assert_eq!(margin(Measure::Calls, &one, &one, 1.0, 0.001), Some(0.0));
}

#[test]
fn percentile_margins_include_bucket_width() {
    let (a, b) = (Mean::of_values(&[128.0; 5]), Mean::of_values(&[129.0; 5]));
    let margin = margin(Measure::P50, &a, &b, 1.0, 0.001).unwrap();
    assert!(margin > 1.0 && margin < 3.0, "{margin}");
}
