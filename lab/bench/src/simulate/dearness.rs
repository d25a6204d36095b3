//! How much more a workload's operations take than what code costs in `handles` says, and what
//! cores rest between them (`crate::run`).
//!
//! Other code finds less of what it needs in caches, so each of its instructions is dearer; and an
//! operation takes something that is the same with every design: the program that calls, and memory
//! that it meets for the first time. Both are fitted to what one core takes for the designs of one
//! workload, of which the code differs by up to an order.

/// What is more in a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dearness {
    /// How many times as dear an instruction is.
    pub times: f64,
    /// Nanoseconds that each operation takes besides, where it meets nobody: half of it to one and
    /// a half, each time.
    pub besides: f64,
}

/// One design's operations on one core, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What is simulated of code, if that is as dear as in `handles`.
    pub(super) code: f64,
    /// What is simulated of all else.
    pub(super) rest: f64,
    /// What a real one takes.
    pub(super) real: f64,
}

impl Dearness {
    /// As in `handles`.
    pub(super) const NONE: Self = Self { times: 1.0, besides: 0.0 };
    /// Code was never as cheap as this.
    const LEAST: f64 = 0.1;
    /// The most code of any design by the least, from which on it is told from what is besides.
    const APART: f64 = 2.0;

    /// The same of `handles`, of which what code costs was found: more are only rests between
    /// operations. Where there were none, code may have been cheaper.
    pub(super) fn rests(samples: &[Sample]) -> Self {
        let (mut n, mut y1) = (0.0, 0.0);
        for Sample { code, rest, real } in samples {
            let (one, y) = (1.0 / real, (real - rest - code) / real);
            (n, y1) = (n + one * one, y1 + one * y);
        }
        if y1 > 0.0 { Self { besides: y1 / n, ..Self::NONE } } else { Self::fit(samples) }
    }

    /// What makes `samples` take what real ones take, as nearly as may be: by the least sum of
    /// squares of what is missing as a part of the whole.
    pub(super) fn fit(samples: &[Sample]) -> Self {
        let (mut cc, mut c1, mut n, mut cy, mut y1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for Sample { code, rest, real } in samples {
            let (c, one, y) = (code / real, 1.0 / real, (real - rest) / real);
            (cc, c1, n) = (cc + c * c, c1 + c * one, n + one * one);
            (cy, y1) = (cy + c * y, y1 + one * y);
        }
        let alone = Self { times: (cy / cc).max(Self::LEAST), besides: 0.0 };
        let all = || samples.iter().map(|sample| sample.code);
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        if most < Self::APART * least {
            return alone;
        }
        let (times, besides) = {
            let both = cc * n - c1 * c1;
            ((cy * n - c1 * y1) / both, (cc * y1 - c1 * cy) / both)
        };
        if times < Self::LEAST || besides < 0.0 { alone } else { Self { times, besides } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(code: f64, real: f64) -> Sample {
        Sample { code, rest: 50.0, real }
    }

    #[test]
    fn what_is_besides_is_told_from_dear_code() {
        let real = |code: f64| 50.0 + 300.0 + 1.5 * code;
        let samples = [100.0, 800.0, 2000.0].map(|code| sample(code, real(code)));
        let Dearness { times, besides } = Dearness::fit(&samples);
        assert!((times - 1.5).abs() < 1e-9 && (besides - 300.0).abs() < 1e-6);
        // Where all have as much code nothing is told apart.
        let Dearness { times, besides } = Dearness::fit(&[sample(800.0, real(800.0)); 2]);
        assert!((times - 1.875).abs() < 1e-9 && besides == 0.0);
    }

    #[test]
    fn what_handles_take_more_are_rests() {
        let sample = |code: f64, rests: f64| Sample { code, rest: 5.0, real: code + 5.0 + rests };
        let rested = [sample(15.0, 10.0), sample(20.0, 10.0), sample(24.0, 10.0)];
        let Dearness { times, besides } = Dearness::rests(&rested);
        assert!(times == 1.0 && (besides - 10.0).abs() < 1e-9);
        // Of one design that alone can be told, too; and where all are faster, code is cheaper.
        assert!((Dearness::rests(&rested[..1]).besides - 10.0).abs() < 1e-9);
        let Dearness { times, besides } = Dearness::rests(&[sample(20.0, -2.0); 2]);
        assert!((times - 0.9).abs() < 1e-9 && besides == 0.0);
    }

    #[test]
    fn nothing_takes_less_than_no_time() {
        let real = |code: f64| 50.0 - 20.0 + 1.5 * code;
        let samples = [100.0, 800.0, 2000.0].map(|code| sample(code, real(code)));
        let Dearness { times, besides } = Dearness::fit(&samples);
        assert!((1.3..1.5).contains(&times) && besides == 0.0);
        assert_eq!(Dearness::fit(&[sample(800.0, 20.0)]).times, 0.1);
    }
}
