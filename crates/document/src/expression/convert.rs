//! `$convert`, and `$toInt` and its kin.

use super::arguments::Arguments;
use super::dates;
use crate::error::{BAD_VALUE, CONVERSION_FAILURE, DocumentError, FAILED_TO_PARSE};
use crate::number::Number;
use crate::value::{Value, is_true, shown, to_double};
use bson::oid::ObjectId;
use bson::raw::RawBsonRef;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

/// A type to which values are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
}

impl Target {
    /// The type that an argument names.
    pub(super) fn of(value: RawBsonRef<'_>) -> Result<Target, DocumentError> {
        let unknown = |text: String| Err(DocumentError::new(BAD_VALUE, text));
        match value {
            RawBsonRef::String(name) => match Target::of_name(name) {
                Some(target) => Ok(target),
                None => unknown(format!("Unknown type name: {name}")),
            },
            _ => match Number::of(value).and_then(Number::whole) {
                Some(1) => Ok(Target::Double),
                Some(2) => Ok(Target::String),
                Some(7) => Ok(Target::ObjectId),
                Some(8) => Ok(Target::Bool),
                Some(9) => Ok(Target::Date),
                Some(16) => Ok(Target::Int),
                Some(18) => Ok(Target::Long),
                Some(19) => Ok(Target::Decimal),
                Some(code) => unknown(format!(
                    "In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"
                )),
                None => Err(DocumentError::new(
                    FAILED_TO_PARSE,
                    "$convert's 'to' argument must be a string or number",
                )),
            },
        }
    }

    fn of_name(name: &str) -> Option<Target> {
        Some(match name {
            "double" => Target::Double,
            "string" => Target::String,
            "objectId" => Target::ObjectId,
            "bool" => Target::Bool,
            "date" => Target::Date,
            "int" => Target::Int,
            "long" => Target::Long,
            "decimal" => Target::Decimal,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Target::Double => "double",
            Target::String => "string",
            Target::ObjectId => "objectId",
            Target::Bool => "bool",
            Target::Date => "date",
            Target::Int => "int",
            Target::Long => "long",
            Target::Decimal => "decimal",
        }
    }
}

/// `$toInt` and its kin, by their names.
pub(super) fn to<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let input = arguments.take(0);
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    arguments.env.spend(input.bytes() / 64)?;
    let target = match arguments.name {
        "$toBool" => Target::Bool,
        "$toDate" => Target::Date,
        "$toDecimal" => Target::Decimal,
        "$toDouble" => Target::Double,
        "$toInt" => Target::Int,
        "$toLong" => Target::Long,
        "$toObjectId" => Target::ObjectId,
        _ => Target::String,
    };
    convert(input, target)
}

const NO_ON_ERROR: &str = "in $convert with no onError value";

fn failed<T>(text: String) -> Result<T, DocumentError> {
    Err(DocumentError::new(CONVERSION_FAILURE, text))
}

fn overflow<T>(value: RawBsonRef<'_>) -> Result<T, DocumentError> {
    failed(format!("Conversion would overflow target type {NO_ON_ERROR}: {}", shown(value)))
}

/// The value as one of the type.
pub(super) fn convert<'a>(input: Value<'a>, target: Target) -> Evaluated<'a> {
    let Some(value) = input.get() else { return Ok(Value::NULL) };
    let made = match (target, value) {
        (Target::Bool, RawBsonRef::Boolean(_)) => None,
        (Target::Bool, value) => Some(Value::bool(is_true(value))),
        (Target::Int | Target::Long, value) => Some(integer(value, target)?),
        (Target::Double, value) => Some(double(value)?),
        (Target::Decimal, RawBsonRef::Decimal128(_)) => None,
        (Target::Decimal, value) => Some(decimal(value)?),
        (Target::String, RawBsonRef::String(_)) => None,
        (Target::String, value) => match to_text(value) {
            Some(text) => Some(Value::string(text)),
            None => return unsupported(value, target),
        },
        (Target::ObjectId, RawBsonRef::ObjectId(_)) => None,
        (Target::ObjectId, RawBsonRef::String(text)) => match ObjectId::parse_str(text) {
            Ok(id) => Some(Value::Raw(RawBsonRef::ObjectId(id))),
            Err(_) => {
                return failed(format!("Failed to parse objectId '{text}' {NO_ON_ERROR}"));
            }
        },
        (Target::Date, RawBsonRef::DateTime(_)) => None,
        (Target::Date, value) => Some(date(value)?),
        (Target::ObjectId, value) => return unsupported(value, target),
    };
    Ok(match made {
        Some(made) => made,
        None => input,
    })
}

fn unsupported<T>(value: RawBsonRef<'_>, target: Target) -> Result<T, DocumentError> {
    failed(format!(
        "Unsupported conversion from {} to {} {NO_ON_ERROR}",
        crate::filter::name_of_type(value.element_type()),
        target.name()
    ))
}

fn not_a_number<T>(text: &str) -> Result<T, DocumentError> {
    failed(format!("Failed to parse number '{text}' {NO_ON_ERROR}"))
}

/// An int or a long.
fn integer<'a>(value: RawBsonRef<'_>, target: Target) -> Evaluated<'a> {
    let whole = match value {
        RawBsonRef::Boolean(value) => i64::from(value),
        RawBsonRef::DateTime(value) if target == Target::Long => value.timestamp_millis(),
        RawBsonRef::String(text) => match text.parse() {
            Ok(whole) => whole,
            Err(_) => return not_a_number(text),
        },
        _ => match Number::of(value) {
            None => return unsupported(value, target),
            Some(Number::Nan) => {
                return failed(format!(
                    "Attempt to convert NaN value to integer type {NO_ON_ERROR}"
                ));
            }
            Some(Number::Infinity | Number::NegativeInfinity) => {
                return failed(format!(
                    "Attempt to convert infinity value to integer type {NO_ON_ERROR}"
                ));
            }
            Some(number) => match number.integer_part() {
                Some((whole, _)) => whole,
                None => return overflow(value),
            },
        },
    };
    match (target, i32::try_from(whole)) {
        (Target::Int, Ok(whole)) => Ok(Value::int(whole)),
        (Target::Int, Err(_)) => overflow(value),
        _ => Ok(Value::long(whole)),
    }
}

fn double<'a>(value: RawBsonRef<'_>) -> Evaluated<'a> {
    Ok(Value::double(match value {
        RawBsonRef::Boolean(value) => f64::from(u8::from(value)),
        RawBsonRef::DateTime(value) => value.timestamp_millis() as f64,
        RawBsonRef::String(text) => match text.parse() {
            Ok(double) => double,
            Err(_) => return not_a_number(text),
        },
        _ => match to_double(value) {
            Some(double) => {
                let is_finite = !matches!(
                    Number::of(value),
                    Some(Number::Infinity | Number::NegativeInfinity | Number::Nan)
                );
                if is_finite && double.is_infinite() {
                    return overflow(value);
                }
                double
            }
            None => return unsupported(value, Target::Double),
        },
    }))
}

fn decimal<'a>(value: RawBsonRef<'_>) -> Evaluated<'a> {
    let text = match value {
        RawBsonRef::Boolean(value) => u8::from(value).to_string(),
        RawBsonRef::DateTime(value) => value.timestamp_millis().to_string(),
        RawBsonRef::Int32(value) => value.to_string(),
        RawBsonRef::Int64(value) => value.to_string(),
        // A double has 15 digits that are sure.
        RawBsonRef::Double(value) if value.is_finite() => fifteen_digits(value),
        RawBsonRef::Double(value) => match value.is_nan() {
            true => "NaN".to_owned(),
            false if value > 0.0 => "Infinity".to_owned(),
            false => "-Infinity".to_owned(),
        },
        RawBsonRef::String(text) => text.to_owned(),
        _ => return unsupported(value, Target::Decimal),
    };
    match text.parse() {
        Ok(decimal) => Ok(Value::Raw(RawBsonRef::Decimal128(decimal))),
        Err(_) => not_a_number(&text),
    }
}

/// A finite double as a decimal text of 15 digits: what a Decimal128 is parsed from.
fn fifteen_digits(value: f64) -> String {
    let text = format!("{value:.14e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{}E{}", digits.replace('.', ""), exponent - 14)
}

fn date<'a>(value: RawBsonRef<'_>) -> Evaluated<'a> {
    let millis = match value {
        RawBsonRef::ObjectId(id) => id.timestamp().timestamp_millis(),
        RawBsonRef::Timestamp(timestamp) => i64::from(timestamp.time) * 1000,
        RawBsonRef::String(text) => dates::parse_text(text)?,
        RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
            match Number::of(value).and_then(Number::integer_part) {
                Some((millis, _)) => millis,
                None => return overflow(value),
            }
        }
        _ => return unsupported(value, Target::Date),
    };
    Ok(super::arithmetic::date_of(millis))
}

/// A value as MongoDB writes it in a string; nothing if it has no such form.
pub(super) fn to_text(value: RawBsonRef<'_>) -> Option<String> {
    Some(match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
            text.to_owned()
        }
        RawBsonRef::Boolean(value) => value.to_string(),
        RawBsonRef::Int32(value) => value.to_string(),
        RawBsonRef::Int64(value) => value.to_string(),
        RawBsonRef::Double(value) => double_text(value),
        RawBsonRef::Decimal128(value) => value.to_string(),
        RawBsonRef::ObjectId(id) => id.to_hex(),
        RawBsonRef::DateTime(date) => dates::iso_text(date.timestamp_millis()),
        RawBsonRef::Timestamp(value) => format!("Timestamp({}, {})", value.time, value.increment),
        _ => return None,
    })
}

/// A double with 16 digits at most, as C's `%.16g`.
fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let text = format!("{value:.15e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", short(digits), exponent.abs());
    }
    let places = usize::try_from(15 - exponent).unwrap_or(0);
    short(&format!("{value:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_have_the_text_of_printf() {
        for (value, text) in [
            (2.5, "2.5"),
            (1.0, "1"),
            (0.1 + 0.2, "0.3"),
            (1e20, "1e+20"),
            (-1.5e-7, "-1.5e-07"),
            (123_456_789.0, "123456789"),
            (1e15, "1000000000000000"),
            (0.0001, "0.0001"),
        ] {
            assert_eq!(double_text(value), text);
        }
        assert_eq!(fifteen_digits(2.5), "250000000000000E-14");
    }
}
