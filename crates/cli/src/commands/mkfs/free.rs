//! Parses `--free`.

use crate::size;
use nextent::mkfs::{Fit, Free};

/// Parses `10%`, `64m` or `0`.
pub(super) fn parse(text: &str) -> Result<Fit, String> {
    let free = match text.strip_suffix('%') {
        Some(percent) => match percent.parse() {
            Ok(percent) if (0.0..=99.0).contains(&percent) => Free::Percent(percent),
            _ => return Err(format!("'{text}' is not a percentage from 0% to 99%")),
        },
        None => Free::Bytes(size::bytes(text)?),
    };
    Ok(Fit::new(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_a_percentage_or_bytes() {
        assert_eq!(parse("12.5%"), Ok(Fit::new(Free::Percent(12.5))));
        assert_eq!(parse("64m"), Ok(Fit::new(Free::Bytes(64 << 20))));
        assert_eq!(parse("0"), Ok(Fit::new(Free::Bytes(0))));
        for bad in ["", "%", "100%", "-1%", "NaN%", "x", "1.5m"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
