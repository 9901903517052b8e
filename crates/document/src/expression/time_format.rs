//! Texts of dates: `$dateToString`, `$dateFromString`, and ISO 8601.

use super::calendar::{Civil, DAY_MS, Zone, days, days_in_month, iso_days};
use crate::error::{CONVERSION_FAILURE, DocumentError};
use std::fmt::Write;

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

/// The format without a zone.
const ISO: &str = "%Y-%m-%dT%H:%M:%S.%L";

/// ISO 8601 in UTC.
pub(super) fn iso_text(millis: i64) -> String {
    let civil = Civil::of(millis);
    write(ISO, &civil, Zone(0))
        .map_or_else(|_| format!("Date({millis})"), |text| format!("{text}Z"))
}

/// Writes a date by a format; without one, as ISO 8601, with `Z` if it is in UTC.
pub(super) fn to_string(
    format: Option<&str>,
    millis: i64,
    zone: Zone,
) -> Result<String, DocumentError> {
    let civil = zone.local(millis);
    match format {
        Some(format) => write(format, &civil, zone),
        None => {
            let mut text = write(ISO, &civil, zone)?;
            if zone.0 == 0 {
                text.push('Z');
            }
            Ok(text)
        }
    }
}

fn write(format: &str, civil: &Civil, zone: Zone) -> Result<String, DocumentError> {
    let (mut out, mut rest) = (String::new(), format.chars());
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(specifier) = rest.next() else {
            return Err(DocumentError::new(18535, "Unmatched '%' at end of format string"));
        };
        write_part(&mut out, specifier, civil, zone)?;
    }
    Ok(out)
}

fn write_part(
    out: &mut String,
    specifier: char,
    civil: &Civil,
    zone: Zone,
) -> Result<(), DocumentError> {
    let (hours, minutes) = (zone.0.abs() / 60, zone.0.abs() % 60);
    let sign = if zone.0 < 0 { '-' } else { '+' };
    let month = MONTHS[(civil.month - 1).clamp(0, 11) as usize];
    let written = match specifier {
        'd' => write!(out, "{:02}", civil.day),
        'G' => write!(out, "{:04}", year(civil.iso_week().0)?),
        'H' => write!(out, "{:02}", civil.hour()),
        'j' => write!(out, "{:03}", civil.day_of_year()),
        'L' => write!(out, "{:03}", civil.millisecond()),
        'm' => write!(out, "{:02}", civil.month),
        'M' => write!(out, "{:02}", civil.minute()),
        'S' => write!(out, "{:02}", civil.second()),
        'w' => write!(out, "{}", civil.day_of_week() + 1),
        'u' => write!(out, "{}", civil.iso_day_of_week()),
        'U' => write!(out, "{:02}", civil.week()),
        'V' => write!(out, "{:02}", civil.iso_week().1),
        'Y' => write!(out, "{:04}", year(civil.year)?),
        'z' => write!(out, "{sign}{hours:02}{minutes:02}"),
        'Z' => write!(out, "{sign}{}", zone.0.abs()),
        'b' => write!(out, "{}", &month[..3]),
        'B' => write!(out, "{month}"),
        '%' => write!(out, "%"),
        _ => return Err(unknown(specifier)),
    };
    // Writing to a string cannot fail.
    let _ = written;
    Ok(())
}

fn unknown(specifier: char) -> DocumentError {
    let text = format!("Invalid format character '%{specifier}' in format string");
    DocumentError::new(18536, text)
}

fn year(year: i64) -> Result<i64, DocumentError> {
    match (0..=9999).contains(&year) {
        true => Ok(year),
        false => {
            let text = format!(
                "Could not convert date to string: date component was outside the supported range of 0-9999: {year}"
            );
            Err(DocumentError::new(18537, text))
        }
    }
}

fn cannot_parse(text: &str, why: &str) -> DocumentError {
    DocumentError::new(CONVERSION_FAILURE, format!("Error parsing date string '{text}'; {why}"))
}

/// What a text says of a date.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
    zone: Option<Zone>,
}

impl Parts {
    fn millis(&self, zone: Zone) -> Option<i64> {
        let in_range = |value: i64, most: i64| (0..=most).contains(&value);
        let days = match (self.year, self.iso_year) {
            (_, Some(year)) => {
                iso_days(year, self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1))
            }
            (Some(year), None) => match self.day_of_year {
                Some(day) => days(year, 1, day),
                None => {
                    let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
                    let is_date = (1..=12).contains(&month)
                        && (1..=days_in_month(year, month)).contains(&day);
                    is_date.then(|| days(year, month, day))?
                }
            },
            (None, None) => return None,
        };
        let is_time = in_range(self.hour, 24)
            && in_range(self.minute, 59)
            && in_range(self.second, 60)
            && in_range(self.millisecond, 999);
        is_time.then_some(())?;
        let time = ((self.hour * 60 + self.minute) * 60 + self.second) * 1000 + self.millisecond;
        let local = days.checked_mul(DAY_MS)?.checked_add(time)?;
        local.checked_sub(self.zone.unwrap_or(zone).millis())
    }
}

/// A text, of which the front is taken away.
struct Reader<'t>(&'t str);

impl<'t> Reader<'t> {
    fn take(&mut self, c: char) -> bool {
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// From one digit to so many.
    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        (count >= least).then_some(())?;
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        digits.parse().ok()
    }

    /// A fraction of a second in milliseconds; more digits are dropped.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
        (1..=9).contains(&count).then_some(())?;
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        format!("{digits:0<3}").get(..3)?.parse().ok()
    }

    /// `Z` or an offset.
    fn zone(&mut self) -> Option<Zone> {
        let length = match self.0.as_bytes() {
            [b'Z', ..] => 1,
            [b'+' | b'-', _, _, b':', ..] => 6,
            [b'+' | b'-', _, _, digit, ..] if digit.is_ascii_digit() => 5,
            [b'+' | b'-', ..] => 3,
            _ => return None,
        };
        let (zone, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Zone::parse(zone).ok()
    }
}

/// Reads a date of ISO 8601: a date, then a time behind `T` or a space, then a zone.
pub(super) fn parse_iso(text: &str, zone: Zone) -> Result<i64, DocumentError> {
    iso(text.trim())
        .and_then(|parts| parts.millis(zone))
        .ok_or_else(|| cannot_parse(text, "only dates of ISO 8601 are supported without a format"))
}

fn iso(text: &str) -> Option<Parts> {
    let mut reader = Reader(text);
    let mut parts = Parts { year: Some(reader.number(4, 4)?), ..Parts::default() };
    let separator = if reader.take('/') {
        '/'
    } else if reader.take('-') {
        '-'
    } else {
        return None;
    };
    parts.month = Some(reader.number(1, 2)?);
    reader.take(separator).then_some(())?;
    parts.day = Some(reader.number(1, 2)?);
    if reader.take('T') || reader.take('t') || reader.take(' ') {
        parts.hour = reader.number(1, 2)?;
        reader.take(':').then_some(())?;
        parts.minute = reader.number(2, 2)?;
        if reader.take(':') {
            parts.second = reader.number(2, 2)?;
            if reader.take('.') {
                parts.millisecond = reader.fraction()?;
            }
        }
        let _ = reader.take(' ');
        parts.zone = reader.zone();
    }
    reader.0.is_empty().then_some(parts)
}

/// Reads a date by a format.
pub(super) fn parse_format(text: &str, format: &str, zone: Zone) -> Result<i64, DocumentError> {
    let (mut reader, mut parts) = (Reader(text), Parts::default());
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        let is_read = match (c, (c == '%').then(|| rest.next()).flatten()) {
            ('%', Some(specifier)) => read_part(&mut reader, specifier, &mut parts)?,
            ('%', None) => {
                return Err(DocumentError::new(18535, "Unmatched '%' at end of format string"));
            }
            _ => reader.take(c),
        };
        if !is_read {
            return Err(cannot_parse(text, &format!("it does not follow the format '{format}'")));
        }
    }
    if !reader.0.is_empty() {
        return Err(cannot_parse(text, "Trailing data"));
    }
    parts.millis(zone).ok_or_else(|| {
        cannot_parse(text, "an incomplete date/time string has been found, with elements missing")
    })
}

fn read_part(
    reader: &mut Reader<'_>,
    specifier: char,
    parts: &mut Parts,
) -> Result<bool, DocumentError> {
    let read = |place: &mut Option<i64>, number: Option<i64>| {
        *place = number;
        number.is_some()
    };
    let set = |place: &mut i64, number: Option<i64>| {
        *place = number.unwrap_or(0);
        number.is_some()
    };
    Ok(match specifier {
        'd' => read(&mut parts.day, reader.number(1, 2)),
        'G' => read(&mut parts.iso_year, reader.number(1, 4)),
        'H' => set(&mut parts.hour, reader.number(1, 2)),
        'j' => read(&mut parts.day_of_year, reader.number(1, 3)),
        'L' => set(&mut parts.millisecond, reader.fraction()),
        'm' => read(&mut parts.month, reader.number(1, 2)),
        'M' => set(&mut parts.minute, reader.number(1, 2)),
        'S' => set(&mut parts.second, reader.number(1, 2)),
        'u' => read(&mut parts.iso_day, reader.number(1, 1)),
        'V' => read(&mut parts.iso_week, reader.number(1, 2)),
        'Y' => read(&mut parts.year, reader.number(4, 4)),
        'z' => {
            parts.zone = reader.zone();
            parts.zone.is_some()
        }
        'b' | 'B' => {
            let found = MONTHS.iter().position(|month| {
                let name = if specifier == 'b' { &month[..3] } else { month };
                let start = reader.0.get(..name.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(name))
            });
            if let Some(at) = found {
                let length = if specifier == 'b' { 3 } else { MONTHS[at].len() };
                reader.0 = &reader.0[length..];
                parts.month = Some(at as i64 + 1);
            }
            found.is_some()
        }
        '%' => reader.take('%'),
        _ => return Err(unknown(specifier)),
    })
}
