//! The Gregorian calendar, proleptic, and time zones of fixed offsets.
//!
//! Days are counted from 1970-01-01. The conversions are those of Howard Hinnant ("chrono-compatible low-level
//! date algorithms"), whose eras of 400 years begin in March.

use crate::error::DocumentError;

pub(super) const DAY_MS: i64 = 86_400_000;

/// A date and a time of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// From 1.
    pub(super) month: i64,
    /// From 1.
    pub(super) day: i64,
    /// Since midnight.
    pub(super) millis: i64,
}

impl Civil {
    /// Divides milliseconds since 1970.
    pub(super) fn of(millis: i64) -> Civil {
        let (year, month, day) = civil(millis.div_euclid(DAY_MS));
        Civil { year, month, day, millis: millis.rem_euclid(DAY_MS) }
    }

    /// Milliseconds since 1970, if 64 bits hold them.
    pub(super) fn to_millis(self) -> Option<i64> {
        days(self.year, self.month, self.day).checked_mul(DAY_MS)?.checked_add(self.millis)
    }

    /// Days since 1970.
    pub(super) fn days(&self) -> i64 {
        days(self.year, self.month, self.day)
    }

    pub(super) fn hour(&self) -> i64 {
        self.millis / 3_600_000
    }

    pub(super) fn minute(&self) -> i64 {
        self.millis / 60_000 % 60
    }

    pub(super) fn second(&self) -> i64 {
        self.millis / 1000 % 60
    }

    pub(super) fn millisecond(&self) -> i64 {
        self.millis % 1000
    }

    /// From 1.
    pub(super) fn day_of_year(&self) -> i64 {
        self.days() - days(self.year, 1, 1) + 1
    }

    /// Sunday is 0.
    pub(super) fn day_of_week(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    /// Monday is 1.
    pub(super) fn iso_day_of_week(&self) -> i64 {
        (self.days() + 3).rem_euclid(7) + 1
    }

    /// Weeks begin on Sundays; days before the first one are in week 0.
    pub(super) fn week(&self) -> i64 {
        (self.day_of_year() - 1 + 7 - self.day_of_week()) / 7
    }

    /// Year and week of ISO 8601: a week belongs to the year that has its Thursday.
    pub(super) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days() - self.iso_day_of_week() + 4;
        let (year, ..) = civil(thursday);
        (year, (thursday - days(year, 1, 1)) / 7 + 1)
    }
}

/// Days since 1970 of a date; months and days beyond their ranges count on.
pub(super) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 + day - 1
}

/// Year, month and day of a number of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Days of a month.
pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    days(year, month + 1, 1) - days(year, month, 1)
}

/// Days since 1970 of a day of an ISO week.
pub(super) fn iso_days(year: i64, week: i64, day_of_week: i64) -> i64 {
    let fourth = days(year, 1, 4);
    let monday = fourth - (fourth + 3).rem_euclid(7);
    monday + (week - 1) * 7 + day_of_week - 1
}

/// A time zone: minutes to add to UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Zone(pub(super) i64);

impl Zone {
    /// `UTC`, `GMT`, `Z`, or an offset such as `+02:00`, `+0200` or `+02`. Names of places need a database of
    /// time zones, and are errors.
    pub(super) fn parse(text: &str) -> Result<Zone, DocumentError> {
        if matches!(text, "UTC" | "GMT" | "Z" | "Etc/UTC" | "Etc/GMT") {
            return Ok(Zone(0));
        }
        offset(text).map(Zone).ok_or_else(|| {
            let text = format!(
                "unrecognized time zone identifier: \"{text}\": only UTC and offsets are supported"
            );
            DocumentError::new(40485, text)
        })
    }

    pub(super) fn millis(self) -> i64 {
        self.0 * 60_000
    }

    /// The local time of a moment.
    pub(super) fn local(self, millis: i64) -> Civil {
        Civil::of(millis.saturating_add(self.millis()))
    }
}

/// `+hh`, `+hhmm` or `+hh:mm` in minutes.
fn offset(text: &str) -> Option<i64> {
    let (sign, digits) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(digits), _) => (1, digits),
        (_, Some(digits)) => (-1, digits),
        _ => return None,
    };
    let digits = digits.replacen(':', "", usize::from(digits.len() == 5));
    let is_number = matches!(digits.len(), 2 | 4) && digits.bytes().all(|of| of.is_ascii_digit());
    if !is_number {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits[2..].parse().unwrap_or(0);
    Some(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_days() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 3, 1), 11017);
        let date = Civil::of(days(2017, 1, 1) * DAY_MS);
        assert_eq!(date.iso_week(), (2016, 52));
        assert_eq!((date.day_of_week(), date.iso_day_of_week(), date.week()), (0, 7, 1));
        assert_eq!(days_in_month(2024, 2), 29);
        assert_eq!(days_in_month(1900, 2), 28);
        assert_eq!(iso_days(2016, 52, 7), days(2017, 1, 1));
    }

    #[test]
    fn zones() {
        assert_eq!(Zone::parse("+02:30").map(|zone| zone.0), Ok(150));
        assert_eq!(Zone::parse("-0430").map(|zone| zone.0), Ok(-270));
        assert_eq!(Zone::parse("+03").map(|zone| zone.0), Ok(180));
        assert!(Zone::parse("Europe/Paris").is_err());
        assert!(Zone::parse("+2").is_err());
        assert!(Zone::parse("+é1").is_err());
    }

    proptest! {
        #[test]
        fn all_moments_come_back(millis in any::<i64>()) {
            let civil = Civil::of(millis);
            prop_assert_eq!(i128::from(civil.days()) * i128::from(DAY_MS) + i128::from(civil.millis), i128::from(millis));
            prop_assert!((1..=12).contains(&civil.month));
            prop_assert!((1..=days_in_month(civil.year, civil.month)).contains(&civil.day));
            let (year, week) = civil.iso_week();
            prop_assert_eq!(iso_days(year, week, civil.iso_day_of_week()), civil.days());
        }
    }
}
