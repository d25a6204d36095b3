//! Sizes as people write them: a number and k, m, g or t.

/// A number and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Without a suffix: the option defines the unit.
    Plain(u64),
    /// With a suffix: bytes.
    Bytes(u64),
}

impl Size {
    /// The size in bytes; a plain number counts units of `unit` bytes.
    pub(crate) fn bytes(self, unit: u64) -> Option<u64> {
        match self {
            Self::Plain(n) => n.checked_mul(unit),
            Self::Bytes(n) => Some(n),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("'{text}' is not a size: a number and optionally k, m, g or t");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| bad())?;
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" => return Ok(Self::Plain(number)),
            "s" => 9,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => return Err(bad()),
        };
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))?;
        Ok(Self::Bytes(bytes))
    }
}

/// Parses a size; a plain number counts bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let size: Size = text.parse()?;
    size.bytes(1).ok_or_else(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!("12".parse(), Ok(Size::Plain(12)));
        assert_eq!("4K".parse(), Ok(Size::Bytes(4096)));
        assert_eq!("2t".parse(), Ok(Size::Bytes(2 << 40)));
        for bad in ["", "k", "1x", "-1", "99999999999t", "1.5g"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
