//! Formats modes and times for people.

use nextent::inodes::Attr;
use nextent::{DiskTime, FileType};
pub(crate) use nextent_image::escape::{component, line, name, path};
use nextent_num::{must_fit, to_usize};

/// A mode as ls shows it: `drwxr-xr-x`.
pub(crate) fn mode(attr: &Attr) -> String {
    let mut text = String::from(letter(attr.kind));
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, attr.mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn letter(kind: FileType) -> char {
    match kind {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        _ => '-',
    }
}

pub(crate) fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        _ => "regular file",
    }
}

/// Year, month, day, hour, minute, second in UTC.
fn civil(seconds: i64) -> (i64, u32, u32, i64, i64, i64) {
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = must_fit(day_of_year - (153 * shifted + 2) / 5 + 1);
    let month: u32 = must_fit(if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day, second / 3600, second / 60 % 60, second % 60)
}

/// `2026-01-31 23:59`, UTC.
pub(crate) fn minute(time: DiskTime) -> String {
    let (year, month, day, hour, minute, _) = civil(time.seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// `2026-01-31 23:59:59.123456789 +0000`.
pub(crate) fn full(time: DiskTime) -> String {
    let (year, month, day, hour, minute, second) = civil(time.seconds);
    let nanos = time.nanos;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{nanos:09} +0000")
}

/// `Sat Jan 31 23:59:59 2026`, UTC, as ctime(3).
pub(crate) fn calendar(time: DiskTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, hour, minute, second) = civil(time.seconds);
    let weekday: usize = must_fit(time.seconds.div_euclid(86_400).rem_euclid(7));
    let (weekday, month) = (DAYS[weekday], MONTHS[to_usize(month) - 1]);
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// Seconds and nanoseconds, for programs.
pub(crate) fn decimal(time: DiskTime) -> String {
    format!("{}.{:09}", time.seconds, time.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_calendar_dates() {
        assert_eq!(civil(0), (1970, 1, 1, 0, 0, 0));
        assert_eq!(civil(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(civil(-1), (1969, 12, 31, 23, 59, 59));
        assert_eq!(civil(15_032_385_535), (2446, 5, 10, 22, 38, 55));
    }
}
