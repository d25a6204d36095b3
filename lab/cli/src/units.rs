//! Sizes and times as people write them.

use nextent_sync::Duration;

/// Parses a size in bytes with an optional suffix k, m, g or t.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size: write a number, then k, m, g or t if needed");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| bad())?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "s" => 9,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// Parses a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("ns", 1), ("s", 1_000_000_000)];
    let parse = |(unit, nanos): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_nanos(number.checked_mul(nanos)?))
    };
    let found = units.into_iter().find_map(parse);
    found.ok_or_else(|| format!("'{text}' is not a time: write a number and ns, us, ms or s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_suffixes() {
        assert_eq!(bytes("12"), Ok(12));
        assert_eq!(bytes("4K"), Ok(4096));
        assert_eq!(bytes("2t"), Ok(2 << 40));
        for bad in ["", "k", "1x", "-1", "99999999999t", "1.5g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_units() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        assert!(time("100").is_err() && time("1h").is_err());
    }
}
