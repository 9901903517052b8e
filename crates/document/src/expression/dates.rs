//! Operators on dates, in UTC and in zones of fixed offsets.

use super::arguments::Arguments;
use super::arithmetic::date_of;
use super::calendar::{Civil, DAY_MS, Zone, days, days_in_month, iso_days};
use super::time_format;
use crate::error::{DocumentError, FAILED_TO_PARSE, OVERFLOW};
use crate::number::Number;
use crate::value::Value;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

pub(super) use time_format::iso_text;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// The moment that a text names, as `$toDate` reads it.
pub(super) fn parse_text(text: &str) -> Result<i64, DocumentError> {
    time_format::parse_iso(text, Zone(0))
}

/// The moment that a value is: a date, a timestamp, or the time of an object id.
fn moment(value: &Value<'_>) -> Result<i64, DocumentError> {
    match value.get() {
        Some(RawBsonRef::DateTime(date)) => Ok(date.timestamp_millis()),
        Some(RawBsonRef::Timestamp(timestamp)) => Ok(i64::from(timestamp.time) * 1000),
        Some(RawBsonRef::ObjectId(id)) => Ok(id.timestamp().timestamp_millis()),
        _ => fail(16006, format!("can't convert from BSON type {} to Date", value.type_name())),
    }
}

/// A zone: UTC if none was given, nothing if it is null.
fn zone(value: &Value<'_>) -> Result<Option<Zone>, DocumentError> {
    match value.get() {
        None => Ok(Some(Zone(0))),
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
        Some(RawBsonRef::String(text)) => Zone::parse(text).map(Some),
        Some(_) => {
            let text = format!("timezone must evaluate to a string, found {}", value.type_name());
            fail(40517, text)
        }
    }
}

/// `$year` and its kin, by their names.
pub(super) fn part<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let date = arguments.get(0);
    if date.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(zone) = zone(arguments.get(1))? else { return Ok(Value::NULL) };
    let civil = zone.local(moment(date)?);
    let value = match arguments.name {
        "$dayOfMonth" => civil.day,
        "$dayOfWeek" => civil.day_of_week() + 1,
        "$dayOfYear" => civil.day_of_year(),
        "$hour" => civil.hour(),
        "$isoDayOfWeek" => civil.iso_day_of_week(),
        "$isoWeek" => civil.iso_week().1,
        "$isoWeekYear" => return Ok(Value::long(civil.iso_week().0)),
        "$millisecond" => civil.millisecond(),
        "$minute" => civil.minute(),
        "$month" => civil.month,
        "$second" => civil.second(),
        "$week" => civil.week(),
        _ => civil.year,
    };
    Ok(i32::try_from(value).map_or(Value::long(value), Value::int))
}

/// `$dateToString`.
pub(super) fn to_string<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.get(0).is_nullish() {
        // Without `onNull` its place is missing, and null stands for it.
        return Ok(match arguments.take(3) {
            Value::Missing => Value::NULL,
            given => given,
        });
    }
    let Some(zone) = zone(arguments.get(2))? else { return Ok(Value::NULL) };
    let format = match arguments.get(1).get() {
        None => None,
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
        Some(RawBsonRef::String(format)) => Some(format),
        Some(_) => return fail(18533, "$dateToString requires that 'format' be a string"),
    };
    arguments.env.spend(format.map_or(0, str::len))?;
    let text = time_format::to_string(format, moment(arguments.get(0))?, zone)?;
    arguments.env.spend_bytes(text.len())?;
    Ok(Value::string(text))
}

/// `$dateFromString`.
pub(super) fn from_string<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    if arguments.get(0).is_nullish() {
        return Ok(match arguments.take(4) {
            Value::Missing => Value::NULL,
            given => given,
        });
    }
    let Some(zone) = zone(arguments.get(2))? else { return Ok(Value::NULL) };
    let format = match arguments.get(1).get() {
        None => None,
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
        Some(RawBsonRef::String(format)) => Some(format),
        Some(_) => return fail(40684, "$dateFromString requires that 'format' be a string"),
    };
    let made = match arguments.get(0).as_str() {
        Some(text) => {
            arguments.env.spend(text.len() / 16 + format.map_or(0, str::len))?;
            match format {
                Some(format) => time_format::parse_format(text, format, zone),
                None => time_format::parse_iso(text, zone),
            }
        }
        None => {
            let text = format!(
                "$dateFromString requires that 'dateString' be a string, found: {}",
                arguments.get(0).type_name()
            );
            fail(crate::error::CONVERSION_FAILURE, text)
        }
    };
    match made {
        Ok(millis) => Ok(date_of(millis)),
        Err(error) => match arguments.take(3) {
            Value::Missing => Err(error),
            given => Ok(given),
        },
    }
}

/// The arguments of `$dateFromParts`.
pub(super) const PARTS: &[&str] = &[
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "timezone",
];

/// `$dateFromParts`: numbers beyond their ranges count on.
pub(super) fn from_parts<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (is_iso, is_civil) = (!arguments.get(7).is_missing(), !arguments.get(0).is_missing());
    if !is_iso && !is_civil {
        return fail(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present");
    }
    if is_iso && is_civil {
        return fail(40489, "$dateFromParts does not allow mixing natural dates with ISO dates");
    }
    let mut parts = [0i64; 10];
    for (at, part) in parts.iter_mut().enumerate() {
        let value = arguments.get(at);
        *part = match value.get() {
            None => i64::from(matches!(at, 0..=2 | 7..=9)),
            Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(_) => match value.number().and_then(Number::whole) {
                Some(number) => number,
                None => {
                    let text = format!(
                        "'{}' must evaluate to an integer, found {}",
                        PARTS[at],
                        value.type_name()
                    );
                    return fail(40515, text);
                }
            },
        };
        let is_year = matches!(at, 0 | 7);
        if is_year && !(1..=9999).contains(part) {
            let text = format!(
                "'{}' must evaluate to an integer in the range 1 to 9999, found {part}",
                PARTS[at]
            );
            return fail(40523, text);
        }
        // A number of this range cannot overflow what follows.
        if !(-(1i64 << 31)..1i64 << 31).contains(part) {
            return fail(31034, format!("'{}' is out of its range: {part}", PARTS[at]));
        }
    }
    let Some(zone) = zone(arguments.get(10))? else { return Ok(Value::NULL) };
    let [year, month, day, hour, minute, second, millisecond, iso_year, week, day_of_week] = parts;
    let days = match is_iso {
        true => iso_days(iso_year, week, day_of_week),
        false => days(year, month, day),
    };
    let time = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
    match days.checked_mul(DAY_MS).and_then(|date| date.checked_add(time - zone.millis())) {
        Some(millis) => Ok(date_of(millis)),
        None => fail(OVERFLOW, "$dateFromParts: the date is out of range"),
    }
}

/// `$dateToParts`.
pub(super) fn to_parts<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let date = arguments.get(0);
    if date.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(zone) = zone(arguments.get(1))? else { return Ok(Value::NULL) };
    let is_iso = match arguments.get(2).get() {
        None => false,
        Some(RawBsonRef::Boolean(value)) => value,
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
        Some(_) => return fail(40521, "iso8601 must evaluate to a bool"),
    };
    let civil = zone.local(moment(date)?);
    let mut made = RawDocumentBuf::new();
    let int = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
    if is_iso {
        let (year, week) = civil.iso_week();
        made.append(cstr!("isoWeekYear"), int(year));
        made.append(cstr!("isoWeek"), int(week));
        made.append(cstr!("isoDayOfWeek"), int(civil.iso_day_of_week()));
    } else {
        made.append(cstr!("year"), int(civil.year));
        made.append(cstr!("month"), int(civil.month));
        made.append(cstr!("day"), int(civil.day));
    }
    made.append(cstr!("hour"), int(civil.hour()));
    made.append(cstr!("minute"), int(civil.minute()));
    made.append(cstr!("second"), int(civil.second()));
    made.append(cstr!("millisecond"), int(civil.millisecond()));
    Ok(Value::document(made))
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many months.
    Months(i64),
    Week,
    /// So many milliseconds.
    Millis(i64),
}

/// A unit; nothing if it is null.
fn unit(name: &str, value: &Value<'_>) -> Result<Option<Unit>, DocumentError> {
    Ok(Some(match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(None),
        Some(RawBsonRef::String("year")) => Unit::Months(12),
        Some(RawBsonRef::String("quarter")) => Unit::Months(3),
        Some(RawBsonRef::String("month")) => Unit::Months(1),
        Some(RawBsonRef::String("week")) => Unit::Week,
        Some(RawBsonRef::String("day")) => Unit::Millis(DAY_MS),
        Some(RawBsonRef::String("hour")) => Unit::Millis(3_600_000),
        Some(RawBsonRef::String("minute")) => Unit::Millis(60_000),
        Some(RawBsonRef::String("second")) => Unit::Millis(1000),
        Some(RawBsonRef::String("millisecond")) => Unit::Millis(1),
        Some(RawBsonRef::String(other)) => {
            let text = format!(
                "{name} parameter 'unit' value cannot be recognized as a time unit: {other}"
            );
            return fail(FAILED_TO_PARSE, text);
        }
        Some(_) => {
            let text =
                format!("{name} requires 'unit' to be a string, but got {}", value.type_name());
            return fail(5_439_013, text);
        }
    }))
}

/// The day on which weeks begin, Sunday being 0; nothing if it is null.
fn week_start(value: &Value<'_>) -> Result<Option<i64>, DocumentError> {
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    const LONG: [&str; 7] =
        ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    match value.get() {
        None => Ok(Some(0)),
        Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
        Some(RawBsonRef::String(name)) => {
            let name = name.to_ascii_lowercase();
            let found =
                DAYS.iter().zip(LONG).position(|(short, long)| name == *short || name == long);
            match found {
                Some(at) => Ok(Some(at as i64)),
                None => fail(
                    FAILED_TO_PARSE,
                    format!(
                        "parameter 'startOfWeek' value cannot be recognized as a day of a week: {name}"
                    ),
                ),
            }
        }
        Some(_) => fail(5_439_015, "requires 'startOfWeek' to be a string"),
    }
}

/// Adds units to a moment. The day of a month that is too short is its last one.
fn plus(millis: i64, unit: Unit, amount: i64, zone: Zone) -> Option<i64> {
    match unit {
        Unit::Months(months) => {
            let local = zone.local(millis);
            let months = months.checked_mul(amount)?.checked_add(local.month - 1)?;
            let year = local.year.checked_add(months.div_euclid(12))?;
            (year.abs() < 300_000_000).then_some(())?;
            let month = months.rem_euclid(12) + 1;
            let day = local.day.min(days_in_month(year, month));
            Civil { year, month, day, ..local }.to_millis()?.checked_sub(zone.millis())
        }
        Unit::Week => millis.checked_add(amount.checked_mul(7 * DAY_MS)?),
        Unit::Millis(size) => millis.checked_add(amount.checked_mul(size)?),
    }
}

fn shift<'a>(arguments: &Arguments<'a, '_>, sign: i64) -> Evaluated<'a> {
    let (date, amount) = (arguments.get(0), arguments.get(2));
    let (Some(unit), Some(zone)) =
        (unit(arguments.name, arguments.get(1))?, zone(arguments.get(3))?)
    else {
        return Ok(Value::NULL);
    };
    if date.is_nullish() || amount.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(amount) = amount.number().and_then(Number::whole) else {
        let text = format!("{} expects integer amount of time units", arguments.name);
        return fail(5_166_405, text);
    };
    let moment = moment(date)?;
    match amount.checked_mul(sign).and_then(|amount| plus(moment, unit, amount, zone)) {
        Some(millis) => Ok(date_of(millis)),
        None => fail(5_166_406, format!("{} overflowed", arguments.name)),
    }
}

/// `$dateAdd`.
pub(super) fn add<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    shift(arguments, 1)
}

/// `$dateSubtract`.
pub(super) fn subtract<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    shift(arguments, -1)
}

/// `$dateDiff`: how many beginnings of the unit lie between two moments.
pub(super) fn difference<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (start, end) = (arguments.get(0), arguments.get(1));
    let unit = unit(arguments.name, arguments.get(2))?;
    let (zone, first) = (zone(arguments.get(3))?, week_start(arguments.get(4))?);
    let (Some(unit), Some(zone), Some(first)) = (unit, zone, first) else {
        return Ok(Value::NULL);
    };
    if start.is_nullish() || end.is_nullish() {
        return Ok(Value::NULL);
    }
    let (start, end) = (moment(start)?, moment(end)?);
    let number = |millis: i64| -> i64 {
        let local = zone.local(millis);
        match unit {
            Unit::Months(size) => (local.year * 12 + local.month - 1).div_euclid(size),
            // Day 0 was a Thursday.
            Unit::Week => (local.days() + 4 - first).div_euclid(7),
            Unit::Millis(size) => millis.saturating_add(zone.millis()).div_euclid(size),
        }
    };
    match number(end).checked_sub(number(start)) {
        Some(count) => Ok(Value::long(count)),
        None => fail(5_166_308, "dateDiff overflowed"),
    }
}

/// `$dateTrunc`: the beginning of the bin of a moment. Bins are counted from 2000-01-01.
pub(super) fn truncate<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let date = arguments.get(0);
    let unit = unit(arguments.name, arguments.get(1))?;
    let (zone, first) = (zone(arguments.get(3))?, week_start(arguments.get(4))?);
    let (Some(unit), Some(zone), Some(first)) = (unit, zone, first) else {
        return Ok(Value::NULL);
    };
    let size = match arguments.get(2) {
        Value::Missing => 1,
        size if size.is_nullish() => return Ok(Value::NULL),
        size => match size.number().and_then(Number::whole) {
            Some(size @ 1..) => size,
            _ => return fail(5_439_018, "$dateTrunc requires 'binSize' to be greater than 0"),
        },
    };
    if date.is_nullish() {
        return Ok(Value::NULL);
    }
    let moment = moment(date)?;
    let too_large = || DocumentError::new(5_439_006, "$dateTrunc: 'binSize' is too large");
    let start = days(2000, 1, 1);
    let local = match unit {
        Unit::Months(months) => {
            let bin = months.checked_mul(size).ok_or_else(too_large)?;
            let local = zone.local(moment);
            let since = (local.year - 2000) * 12 + local.month - 1;
            let at = since.div_euclid(bin).checked_mul(bin).ok_or_else(too_large)?;
            let first = Civil {
                year: 2000 + at.div_euclid(12),
                month: at.rem_euclid(12) + 1,
                day: 1,
                millis: 0,
            };
            (first.year.abs() < 300_000_000).then(|| first.to_millis()).flatten()
        }
        Unit::Week | Unit::Millis(_) => {
            let (unit, reference) = match unit {
                Unit::Millis(unit) => (unit, start),
                // The first such day of 2000, which began on a Saturday.
                _ => (7 * DAY_MS, start + (first - 6).rem_euclid(7)),
            };
            let bin = unit.checked_mul(size).ok_or_else(too_large)?;
            let reference = reference * DAY_MS;
            let local = moment.saturating_add(zone.millis());
            let since = local.checked_sub(reference).ok_or_else(too_large)?;
            since.div_euclid(bin).checked_mul(bin).and_then(|at| at.checked_add(reference))
        }
    };
    let made = local.and_then(|local| local.checked_sub(zone.millis()));
    Ok(date_of(made.ok_or_else(too_large)?))
}

/// `$tsSecond`.
pub(super) fn timestamp_second<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    of_timestamp(arguments, |timestamp| timestamp.time)
}

/// `$tsIncrement`.
pub(super) fn timestamp_increment<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    of_timestamp(arguments, |timestamp| timestamp.increment)
}

fn of_timestamp<'a>(
    arguments: &Arguments<'a, '_>,
    part: fn(bson::Timestamp) -> u32,
) -> Evaluated<'a> {
    match arguments.get(0).get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::Timestamp(timestamp)) => Ok(Value::long(i64::from(part(timestamp)))),
        Some(_) => {
            let text = format!("Argument to {} must be a timestamp", arguments.name);
            fail(5_687_301, text)
        }
    }
}
