//! Times on the command line. Without an offset they are UTC.
//!
//! | form | meaning |
//! |---|---|
//! | `now` | the present time |
//! | `@SECONDS[.FRACTION]` | seconds since 1970, perhaps negative |
//! | `YYYY-MM-DD` | midnight |
//! | `YYYY-MM-DD`, `T` or a space, `HH:MM[:SS[.FRACTION]]`, then nothing, `Z`, `+HH:MM` or `-HH:MM` | ISO 8601; the colon of the offset, or its minutes, may be absent |
//! | `[[CC]YY]MMDDhhmm[.ss]` | a stamp as POSIX touch has it |

use nextent::DiskTime;
use nextent::inodes::SetTime;
use nextent_sync::unix_time;

const DAY: i64 = 86_400;

/// Parses a date; none if `text` is not one.
pub(super) fn date(text: &str) -> Option<SetTime> {
    let text = text.trim();
    if text == "now" {
        return Some(SetTime::Now);
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return since_1970(seconds).map(SetTime::At);
    }
    let (day, rest) = text.split_at_checked(10)?;
    let day = match day.as_bytes() {
        [_, _, _, _, b'-', _, _, b'-', _, _] => {
            days(digits(&day[..4])?, digits(&day[5..7])?, digits(&day[8..])?)? * DAY
        }
        _ => return None,
    };
    if rest.is_empty() {
        return Some(SetTime::At(DiskTime { seconds: day, nanos: 0 }));
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(at);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) if clock.len() == 8 => (clock, nanos(fraction)?),
        Some(_) => return None,
        None => (clock.trim_end(), 0),
    };
    let seconds = match clock.as_bytes() {
        [_, _, b':', _, _] => clock_time(&clock[..2], &clock[3..], "00")?,
        [_, _, b':', _, _, b':', _, _] => clock_time(&clock[..2], &clock[3..5], &clock[6..])?,
        _ => return None,
    };
    Some(SetTime::At(DiskTime { seconds: day + seconds - offset(zone)?, nanos: fraction }))
}

/// Parses a stamp; none if `text` is not one.
pub(super) fn stamp(text: &str) -> Option<SetTime> {
    let (text, seconds) = text.split_once('.').unwrap_or((text, "00"));
    digits(text)?;
    let (year, rest) = match text.len() {
        8 => (year_now(), text),
        10 => {
            let year = digits(&text[..2])?;
            (if year < 69 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        12 => (digits(&text[..4])?, &text[4..]),
        _ => return None,
    };
    let day = days(year, digits(&rest[..2])?, digits(&rest[2..4])?)? * DAY;
    // POSIX allows a leap second.
    let (seconds, leap) = if seconds == "60" { ("59", 1) } else { (seconds, 0) };
    let clock = clock_time(&rest[4..6], &rest[6..8], seconds)?;
    Some(SetTime::At(DiskTime { seconds: day + clock + leap, nanos: 0 }))
}

/// Seconds since 1970 with a fraction.
fn since_1970(text: &str) -> Option<DiskTime> {
    let (whole, fraction) = match text.split_once(['.', ',']) {
        Some((whole, fraction)) => (whole, nanos(fraction)?),
        None => (text, 0),
    };
    let seconds: i64 = whole.parse().ok()?;
    if !whole.starts_with('-') || fraction == 0 {
        return Some(DiskTime { seconds, nanos: fraction });
    }
    Some(DiskTime { seconds: seconds.checked_sub(1)?, nanos: 1_000_000_000 - fraction })
}

/// Nanoseconds of the digits behind a point. Digits behind the ninth are dropped.
fn nanos(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}")[..9].parse().ok()
}

/// A number without a sign.
fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

fn clock_time(hour: &str, minute: &str, second: &str) -> Option<i64> {
    let two = |text: &str| if text.len() == 2 { digits(text) } else { None };
    let (hour, minute, second) = (two(hour)?, two(minute)?, two(second)?);
    (hour < 24 && minute < 60 && second < 60).then_some((hour * 60 + minute) * 60 + second)
}

/// Seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.chars().next() {
        None | Some('Z' | 'z') => return (zone.len() < 2).then_some(0),
        Some('-') => -1,
        _ => 1,
    };
    let zone = &zone[1..];
    let seconds = match zone.as_bytes() {
        [_, _] => clock_time(zone, "00", "00"),
        [_, _, _, _] => clock_time(zone.get(..2)?, zone.get(2..)?, "00"),
        [_, _, b':', _, _] => clock_time(zone.get(..2)?, zone.get(3..)?, "00"),
        _ => None,
    };
    Some(sign * seconds?)
}

/// Days since 1970 of a date of the Gregorian calendar; none if there is no such day.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years begin with March, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// The present year.
fn year_now() -> i64 {
    let today = i64::try_from(unix_time().as_secs()).unwrap_or(0).div_euclid(DAY);
    let mut year = 1970 + today / 366;
    while days(year + 1, 1, 1).is_some_and(|day| day <= today) {
        year += 1;
    }
    year
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn at(seconds: i64, nanos: u32) -> Option<SetTime> {
        Some(SetTime::At(DiskTime { seconds, nanos }))
    }

    #[test]
    fn forms() {
        assert_eq!(date("now"), Some(SetTime::Now));
        assert_eq!(date("@0"), at(0, 0));
        assert_eq!(date("@-1.25"), at(-2, 750_000_000));
        assert_eq!(date("@1.0000000019"), at(1, 1));
        assert_eq!(date("1970-01-01"), at(0, 0));
        assert_eq!(date("1970-01-02T00:00:01.5Z"), at(DAY + 1, 500_000_000));
        assert_eq!(date("1970-01-02 01:30+01:30"), at(DAY, 0));
        assert_eq!(date("1970-01-02 00:00 -0100"), at(DAY + 3600, 0));
        assert_eq!(stamp("197001020003.04"), at(DAY + 184, 0));
        assert_eq!(stamp("7001020003"), at(DAY + 180, 0));
        assert_eq!(stamp("6801010000"), date("2068-01-01"));
        assert_eq!(stamp("199912312359.60"), date("2000-01-01"));
        assert!(stamp("01010000").is_some());
        for bad in [
            "",
            "1",
            "@",
            "@x",
            "2000-02-30",
            "2001-02-29",
            "2000-13-01",
            "2000-01-01T",
            "2000-01-01T24:00",
            "2000-01-01 1:00",
            "2000-01-01T00:00.5",
            "2000-01-01T00:00:00.",
            "2000-01-01T00:00+1",
            "20000101",
            "2000-01-01T\u{e4}",
            "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}-01-01",
        ] {
            assert_eq!(date(bad), None, "{bad}");
        }
        for bad in ["", "1", "200002300000", "20000101000", "200001010000.61", "2000010a0000"] {
            assert_eq!(stamp(bad), None, "{bad}");
        }
    }

    /// date(1) reads the same moments.
    #[test]
    fn dates_are_those_of_date() {
        for text in [
            "1601-01-01",
            "1969-12-31 23:59:59",
            "2000-02-29T12:34",
            "2026-11-29T14:20:43.5Z",
            "2026-11-29T14:20:43+02:00",
            "2446-05-10 22:38:55",
            "@12345.678",
            "2100-03-01 00:00-11",
        ] {
            let mut command = Command::new("date");
            command.env("TZ", "UTC").args(["-d", text, "+%s %N"]);
            let Ok(output) = command.output() else { return println!("skipped: no date") };
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let Some(SetTime::At(time)) = date(text) else { panic!("{text}") };
            assert_eq!(said.trim_end(), format!("{} {:09}", time.seconds, time.nanos), "{text}");
        }
    }
}
