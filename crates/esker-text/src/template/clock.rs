//! `strftime_now`: the date in a prompt. UTC, so that it does not depend on the machine.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Longest format, in bytes.
const MAX_FORMAT: usize = 1024;

/// A point in time, taken apart. Month and day from 1, weekday from Sunday = 0.
struct Civil {
    year: i64,
    month: u32,
    day: u32,
    day_of_year: u32,
    weekday: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Civil {
    fn new(time: SystemTime) -> Civil {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_secs() as i64,
            Err(before) => -(before.duration().as_secs() as i64),
        };
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as u32);
        // Count years from 1 March, so that the leap day is the last of its year: then months are 30.6 days on
        // average from March on. 719_468 days lie between 0000-03-01 and 1970-01-01, 146_097 in 400 years.
        let shifted = days + 719_468;
        let (era, in_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
        let from_march = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let day = (from_march - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        Civil {
            year,
            month,
            day,
            day_of_year: before + day + u32::from(leap && month > 2),
            weekday: (days + 4).rem_euclid(7) as u32,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

/// `time` as `strftime` with the C locale; an error names the directive that is not known.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, String> {
    if format.len() > MAX_FORMAT {
        return Err(format!(
            "strftime_now: the format has {} bytes, at most {MAX_FORMAT} are supported",
            format.len()
        ));
    }
    let t = Civil::new(time);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // `%-d`: no leading zero.
        let pad = directive != Some('-');
        if !pad {
            directive = chars.next();
        }
        let hour12 = if t.hour.is_multiple_of(12) { 12 } else { t.hour % 12 };
        let mut number = |n: u32, width: usize| {
            let _ = if pad { write!(out, "{n:0width$}") } else { write!(out, "{n}") };
        };
        match directive {
            Some('d') => number(t.day, 2),
            Some('m') => number(t.month, 2),
            Some('H') => number(t.hour, 2),
            Some('I') => number(hour12, 2),
            Some('M') => number(t.minute, 2),
            Some('S') => number(t.second, 2),
            Some('j') => number(t.day_of_year, 3),
            Some('y') => number(t.year.rem_euclid(100) as u32, 2),
            Some('Y') => out.push_str(&t.year.to_string()),
            Some('B') => out.push_str(MONTHS[t.month as usize - 1]),
            Some('b' | 'h') => out.push_str(&MONTHS[t.month as usize - 1][..3]),
            Some('A') => out.push_str(DAYS[t.weekday as usize]),
            Some('a') => out.push_str(&DAYS[t.weekday as usize][..3]),
            Some('p') => out.push_str(if t.hour < 12 { "AM" } else { "PM" }),
            Some('w') => number(t.weekday, 1),
            Some('u') => number((t.weekday + 6) % 7 + 1, 1),
            Some('e') if pad => out.push_str(&format!("{:2}", t.day)),
            Some('F') => out.push_str(&format!("{}-{:02}-{:02}", t.year, t.month, t.day)),
            Some('T') => out.push_str(&format!("{:02}:{:02}:{:02}", t.hour, t.minute, t.second)),
            Some('R') => out.push_str(&format!("{:02}:{:02}", t.hour, t.minute)),
            Some('D') => out.push_str(&format!("{:02}/{:02}/{:02}", t.month, t.day, t.year.rem_euclid(100))),
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            Some(c) => return Err(format!("strftime_now: directive `%{c}` is not supported")),
            None => out.push('%'),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn check(seconds: u64, spec: &str, expect: &str) {
        assert_eq!(format(UNIX_EPOCH + Duration::from_secs(seconds), spec).as_deref(), Ok(expect));
    }

    #[test]
    fn dates() {
        check(0, "%Y-%m-%d %H:%M:%S %A %j", "1970-01-01 00:00:00 Thursday 001");
        check(951_782_400, "%d %B %Y, %a, day %j", "29 February 2000, Tue, day 060");
        check(1_735_689_599, "%d %b %Y %I:%M %p", "31 Dec 2024 11:59 PM");
        check(1_735_689_599, "%j %y %F %T", "366 24 2024-12-31 23:59:59");
        check(1_709_251_200, "%-d/%-m/%y|%e|100%%", "1/3/24| 1|100%");
        check(4_107_542_400, "%F %j %u", "2100-03-01 060 1");
    }

    #[test]
    fn unknown_directives_are_named() {
        assert!(format(UNIX_EPOCH, "%Q").unwrap_err().contains("%Q"));
        assert!(format(UNIX_EPOCH, &"x".repeat(MAX_FORMAT + 1)).is_err());
    }
}
