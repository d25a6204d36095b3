//! Numbers for people.

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a binary unit, with at most two digits after the point.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut unit, mut scale) = (0, 1u64);
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        (unit, scale) = (unit + 1, scale << 10);
    }
    let text = format!("{:.2}", bytes as f64 / scale as f64);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {}", UNITS[unit])
}

/// The share of a whole; a share too small for the digits is `<0.1%`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = share(part, whole) * 100.0;
    match part {
        0 => "0%".to_owned(),
        part if part == whole => "100%".to_owned(),
        _ if share < 0.1 => "<0.1%".to_owned(),
        _ if share > 99.9 => ">99.9%".to_owned(),
        _ => format!("{share:.1}%"),
    }
}

/// The share of a whole, from 0 to 1.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped).join(" "), "0 999 1,000 1,234,567");
        assert_eq!(
            [0, 1023, 1024, 1536, 1 << 44].map(size).join(" "),
            "0 B 1023 B 1 KiB 1.5 KiB 16 TiB"
        );
        assert_eq!(percent(1, 3000), "<0.1%");
        assert_eq!(percent(2999, 3000), ">99.9%");
        assert_eq!([percent(0, 0), percent(3, 3), percent(1, 8)].join(" "), "0% 100% 12.5%");
    }
}
