//! Maps of ranges of user or group numbers.

use std::fmt;
use std::str::FromStr;

/// A range of numbers and where it goes: `FROM:TO:COUNT` as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first number in the source.
    pub from: u32,
    /// The number that the image has for it.
    pub to: u32,
    /// How many numbers there are, at least one.
    pub count: u32,
}

impl FromStr for IdRange {
    type Err = IdMapError;

    fn from_str(text: &str) -> Result<Self, IdMapError> {
        let form = || IdMapError::Form(text.to_owned());
        let numbers: Vec<u32> =
            text.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| form())?;
        let [from, to, count] = numbers[..] else { return Err(form()) };
        Ok(Self { from, to, count })
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.from, self.to, self.count)
    }
}

/// Why a map is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdMapError {
    /// The text is not three numbers with colons.
    #[error("'{0}' is not FROM:TO:COUNT, three numbers")]
    Form(String),
    /// A range without numbers.
    #[error("the range {0} is empty")]
    Empty(IdRange),
    /// A range that passes the largest number of a user, 4294967294.
    #[error("the range {0} passes 4294967294, the largest number")]
    TooLarge(IdRange),
    /// Two ranges have a number in common, in the source or in the image.
    #[error("the ranges {0} and {1} overlap")]
    Overlap(IdRange, IdRange),
}

/// Ranges of user or group numbers of the source, and the numbers that the image has for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// By `from`.
    ranges: Vec<IdRange>,
}

impl IdMap {
    /// A map of `ranges`; without any it keeps all numbers.
    ///
    /// # Errors
    ///
    /// [`IdMapError`]. Ranges may not overlap, in the source or in the image: two users of the
    /// source would become one.
    pub fn new(ranges: impl IntoIterator<Item = IdRange>) -> Result<Self, IdMapError> {
        let mut ranges: Vec<IdRange> = ranges.into_iter().collect();
        for range in &ranges {
            if range.count == 0 {
                return Err(IdMapError::Empty(*range));
            }
            // The number 4294967295 stands for "no change" in chown(2).
            if range.from.max(range.to).checked_add(range.count).is_none() {
                return Err(IdMapError::TooLarge(*range));
            }
        }
        for start in [|range: &IdRange| range.to, |range: &IdRange| range.from] {
            ranges.sort_by_key(start);
            for pair in ranges.windows(2) {
                if start(&pair[0]) + pair[0].count > start(&pair[1]) {
                    return Err(IdMapError::Overlap(pair[0], pair[1]));
                }
            }
        }
        Ok(Self { ranges })
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The image's number for `id`; none if no range has it.
    pub fn get(&self, id: u32) -> Option<u32> {
        if self.ranges.is_empty() {
            return Some(id);
        }
        let after = self.ranges.partition_point(|range| range.from <= id);
        let range = self.ranges[..after].last()?;
        let offset = id - range.from;
        (offset < range.count).then(|| range.to + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(texts: &[&str]) -> Result<IdMap, IdMapError> {
        let ranges: Result<Vec<IdRange>, _> = texts.iter().map(|text| text.parse()).collect();
        IdMap::new(ranges?)
    }

    #[test]
    fn numbers_are_mapped_by_range() {
        let some = map(&["1000:0:1", "100000:1:65535"]).unwrap();
        for (id, want) in [
            (1000, Some(0)),
            (999, None),
            (1001, None),
            (0, None),
            (100_000, Some(1)),
            (165_534, Some(65_535)),
            (165_535, None),
            (u32::MAX, None),
        ] {
            assert_eq!(some.get(id), want, "{id}");
        }
        assert_eq!(map(&[]).unwrap().get(7), Some(7));
        assert_eq!(map(&["0:5:4294967290"]).unwrap().get(4_294_967_289), Some(4_294_967_294));
    }

    #[test]
    fn bad_maps_are_refused() {
        for (texts, words) in [
            (&["1:2"][..], "is not FROM:TO:COUNT"),
            (&["1:2:3:4"], "is not FROM:TO:COUNT"),
            (&["a:2:3"], "is not FROM:TO:COUNT"),
            (&["1:2:-3"], "is not FROM:TO:COUNT"),
            (&["1:2:4294967296"], "is not FROM:TO:COUNT"),
            (&["1:2:0"], "is empty"),
            (&["0:1:4294967295"], "passes 4294967294"),
            (&["4294967295:1:1"], "passes 4294967294"),
            (&["0:10:5", "4:20:1"], "the ranges 0:10:5 and 4:20:1 overlap"),
            (&["0:10:5", "5:14:1"], "the ranges 0:10:5 and 5:14:1 overlap"),
        ] {
            let error = map(texts).unwrap_err().to_string();
            assert!(error.contains(words), "{texts:?}: {error}");
        }
        assert!(map(&["5:14:1", "0:9:5"]).is_ok());
    }
}
