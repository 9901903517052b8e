//! Arithmetic of MongoDB: the result has the widest type of the operands, and 64-bit integers that overflow
//! become doubles.

use super::arguments::Arguments;
use crate::error::{BAD_VALUE, COMMAND_NOT_SUPPORTED, DocumentError, TYPE_MISMATCH};
use crate::value::{Value, to_double};
use bson::DateTime;
use bson::raw::RawBsonRef;

type Evaluated<'a> = Result<Value<'a>, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

/// Decimal128 has no arithmetic here: a rounded result would be wrong without a word.
fn no_decimals<T>(name: &str) -> Result<T, DocumentError> {
    fail(COMMAND_NOT_SUPPORTED, format!("{name} of Decimal128 is not supported"))
}

fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(i64::from(value)),
        RawBsonRef::Int64(value) => Some(value),
        _ => None,
    }
}

fn is_decimal(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Decimal128(_))
}

/// An exact sum of integers and a compensated sum of doubles (Neumaier 1974).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    integers: i128,
    doubles: f64,
    compensation: f64,
    has_long: bool,
    has_double: bool,
    pub(crate) count: u64,
}

impl Sum {
    /// Adds a number; whether it is one.
    pub(crate) fn add(&mut self, value: RawBsonRef<'_>, name: &str) -> Result<bool, DocumentError> {
        match value {
            RawBsonRef::Int32(value) => self.integers += i128::from(value),
            RawBsonRef::Int64(value) => {
                self.has_long = true;
                self.integers += i128::from(value);
            }
            RawBsonRef::Double(value) => {
                self.has_double = true;
                self.add_double(value);
            }
            RawBsonRef::Decimal128(_) => return no_decimals(name),
            _ => return Ok(false),
        }
        self.count += 1;
        Ok(true)
    }

    fn add_double(&mut self, value: f64) {
        let sum = self.doubles + value;
        let lost = match self.doubles.abs() >= value.abs() {
            true => (self.doubles - sum) + value,
            false => (value - sum) + self.doubles,
        };
        self.compensation += lost;
        self.doubles = sum;
    }

    /// The sum as a double.
    pub(crate) fn double(&self) -> f64 {
        let mut all = *self;
        // The high part of the integers is exact in a double, and so is the rest.
        let high = all.integers as f64;
        all.add_double(high);
        all.add_double((all.integers - high as i128) as f64);
        match all.doubles.is_finite() {
            true => all.doubles + all.compensation,
            false => all.doubles,
        }
    }

    /// The sum in the widest type of what was added.
    pub(crate) fn total<'a>(&self) -> Value<'a> {
        if self.has_double {
            return Value::double(self.double());
        }
        match (i32::try_from(self.integers), i64::try_from(self.integers)) {
            (Ok(value), _) if !self.has_long => Value::int(value),
            (_, Ok(value)) => Value::long(value),
            _ => Value::double(self.double()),
        }
    }

    /// The sum as whole milliseconds.
    fn millis(&self) -> Option<i64> {
        match self.has_double {
            true => {
                let value = self.double().round();
                (value.abs() < 9.2e18).then_some(value as i64)
            }
            false => i64::try_from(self.integers).ok(),
        }
    }
}

/// `$add`.
pub(super) fn add<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (mut sum, mut date) = (Sum::default(), None);
    for value in &arguments.values {
        match value.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(RawBsonRef::DateTime(_)) if date.is_some() => {
                return fail(16612, "only one date allowed in an $add expression");
            }
            Some(RawBsonRef::DateTime(value)) => date = Some(value.timestamp_millis()),
            Some(number) => {
                if !sum.add(number, "$add")? {
                    let text = format!(
                        "$add only supports numeric or date types, not {}",
                        value.type_name()
                    );
                    return fail(TYPE_MISMATCH, text);
                }
            }
        }
    }
    match date {
        None => Ok(sum.total()),
        Some(date) => match sum.millis().and_then(|millis| date.checked_add(millis)) {
            Some(millis) => Ok(date_of(millis)),
            None => fail(crate::error::OVERFLOW, "date overflow in $add"),
        },
    }
}

pub(super) fn date_of<'a>(millis: i64) -> Value<'a> {
    Value::Raw(RawBsonRef::DateTime(DateTime::from_millis(millis)))
}

/// The two arguments, unless one of them is null.
fn pair<'s>(arguments: &'s Arguments<'_, '_>) -> Option<(RawBsonRef<'s>, RawBsonRef<'s>)> {
    let [one, other] = &arguments.values[..] else { return None };
    if one.is_nullish() || other.is_nullish() {
        return None;
    }
    Some((one.get()?, other.get()?))
}

/// An integer in the type of its operands: a double if it overflows.
fn narrow<'a>(exact: i128, is_short: bool) -> Value<'a> {
    match (i32::try_from(exact), i64::try_from(exact)) {
        (Ok(value), _) if is_short => Value::int(value),
        (_, Ok(value)) => Value::long(value),
        _ => Value::double(exact as f64),
    }
}

fn are_short(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    matches!((one, other), (RawBsonRef::Int32(_), RawBsonRef::Int32(_)))
}

/// `$subtract`.
pub(super) fn subtract<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((one, other)) = pair(arguments) else { return Ok(Value::NULL) };
    if let RawBsonRef::DateTime(date) = one {
        let date = date.timestamp_millis();
        if let RawBsonRef::DateTime(other) = other {
            return Ok(Value::long(date.saturating_sub(other.timestamp_millis())));
        }
        let mut sum = Sum::default();
        if sum.add(other, "$subtract")? {
            return match sum.millis().and_then(|millis| date.checked_sub(millis)) {
                Some(millis) => Ok(date_of(millis)),
                None => fail(crate::error::OVERFLOW, "date overflow in $subtract"),
            };
        }
    }
    if let (Some(x), Some(y)) = (integer(one), integer(other)) {
        return Ok(narrow(i128::from(x) - i128::from(y), are_short(one, other)));
    }
    let Some((x, y)) = doubles("$subtract", one, other)? else {
        let [one, other] = [&arguments.values[0], &arguments.values[1]].map(Value::type_name);
        return fail(TYPE_MISMATCH, format!("can't $subtract {other} from {one}"));
    };
    Ok(Value::double(x - y))
}

/// Both as doubles, if they are numbers.
fn doubles(
    name: &str,
    one: RawBsonRef<'_>,
    other: RawBsonRef<'_>,
) -> Result<Option<(f64, f64)>, DocumentError> {
    let (Some(x), Some(y)) = (to_double(one), to_double(other)) else { return Ok(None) };
    if is_decimal(one) || is_decimal(other) {
        return no_decimals(name);
    }
    Ok(Some((x, y)))
}

/// `$multiply`.
pub(super) fn multiply<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let (mut exact, mut product) = (Some(1i64), 1f64);
    let (mut has_long, mut has_double) = (false, false);
    for value in &arguments.values {
        let Some(number) = value.get().filter(|_| !value.is_nullish()) else {
            return Ok(Value::NULL);
        };
        match number {
            RawBsonRef::Decimal128(_) => return no_decimals("$multiply"),
            RawBsonRef::Double(_) => has_double = true,
            RawBsonRef::Int64(_) => has_long = true,
            RawBsonRef::Int32(_) => {}
            _ => {
                let text =
                    format!("$multiply only supports numeric types, not {}", value.type_name());
                return fail(TYPE_MISMATCH, text);
            }
        }
        product *= to_double(number).unwrap_or(f64::NAN);
        exact = exact.zip(integer(number)).and_then(|(exact, value)| exact.checked_mul(value));
    }
    Ok(match exact {
        Some(exact) if !has_double => narrow(i128::from(exact), !has_long),
        _ => Value::double(product),
    })
}

/// `$divide`.
pub(super) fn divide<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((one, other)) = pair(arguments) else { return Ok(Value::NULL) };
    let Some((x, y)) = doubles("$divide", one, other)? else {
        let [one, other] = [&arguments.values[0], &arguments.values[1]].map(Value::type_name);
        let text = format!("$divide only supports numeric types, not {one} and {other}");
        return fail(TYPE_MISMATCH, text);
    };
    if y == 0.0 {
        return fail(BAD_VALUE, "can't $divide by zero");
    }
    Ok(Value::double(x / y))
}

/// `$mod`.
pub(super) fn modulo<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((one, other)) = pair(arguments) else { return Ok(Value::NULL) };
    if let (Some(x), Some(y)) = (integer(one), integer(other)) {
        if y == 0 {
            return fail(16610, "can't $mod by zero");
        }
        return Ok(narrow(i128::from(x) % i128::from(y), are_short(one, other)));
    }
    let Some((x, y)) = doubles("$mod", one, other)? else {
        let [one, other] = [&arguments.values[0], &arguments.values[1]].map(Value::type_name);
        return fail(16611, format!("$mod only supports numeric types, not {one} and {other}"));
    };
    if y == 0.0 {
        return fail(16610, "can't $mod by zero");
    }
    Ok(Value::double(x % y))
}

/// The number that the one argument is, unless it is null.
fn single<'s>(arguments: &'s Arguments<'_, '_>) -> Result<Option<RawBsonRef<'s>>, DocumentError> {
    let value = &arguments.values[0];
    if value.is_nullish() {
        return Ok(None);
    }
    match value.get() {
        Some(number) if value.number().is_some() => Ok(Some(number)),
        _ => {
            let text = format!(
                "{} only supports numeric types, not {}",
                arguments.name,
                value.type_name()
            );
            fail(28765, text)
        }
    }
}

/// `$abs`.
pub(super) fn abs<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(match single(arguments)? {
        None => Value::NULL,
        Some(RawBsonRef::Int32(value)) => narrow(i128::from(value).abs(), true),
        Some(RawBsonRef::Int64(i64::MIN)) => {
            return fail(28680, "can't take $abs of long long min");
        }
        Some(RawBsonRef::Int64(value)) => Value::long(value.abs()),
        Some(RawBsonRef::Decimal128(value)) => {
            let bits = u128::from_le_bytes(value.bytes()) & !(1 << 127);
            let value = bson::Decimal128::from_bytes(bits.to_le_bytes());
            Value::Raw(RawBsonRef::Decimal128(value))
        }
        Some(value) => Value::double(to_double(value).unwrap_or(f64::NAN).abs()),
    })
}

/// A function of doubles.
fn of_double<'a>(arguments: &Arguments<'a, '_>, function: impl Fn(f64) -> f64) -> Evaluated<'a> {
    match single(arguments)? {
        None => Ok(Value::NULL),
        Some(value) if is_decimal(value) => no_decimals(arguments.name),
        Some(value) => Ok(Value::double(function(to_double(value).unwrap_or(f64::NAN)))),
    }
}

/// `$ceil`, `$floor`: integers stay as they are.
fn whole<'a>(arguments: &mut Arguments<'a, '_>, function: fn(f64) -> f64) -> Evaluated<'a> {
    match single(arguments)? {
        Some(RawBsonRef::Int32(value)) => Ok(Value::int(value)),
        Some(RawBsonRef::Int64(value)) => Ok(Value::long(value)),
        _ => of_double(arguments, function),
    }
}

pub(super) fn ceil<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    whole(arguments, f64::ceil)
}

pub(super) fn floor<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    whole(arguments, f64::floor)
}

pub(super) fn exp<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    of_double(arguments, f64::exp)
}

/// A function that is not defined for all numbers.
fn partial<'a>(
    arguments: &mut Arguments<'a, '_>,
    is_defined: fn(f64) -> bool,
    (code, must): (i32, &str),
    function: fn(f64) -> f64,
) -> Evaluated<'a> {
    if let Some(value) = single(arguments)?.and_then(to_double)
        && !value.is_nan()
        && !is_defined(value)
    {
        return fail(code, format!("{}'s argument must be {must}, but is {value}", arguments.name));
    }
    of_double(arguments, function)
}

pub(super) fn sqrt<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    partial(arguments, |x| x >= 0.0, (28714, "greater than or equal to 0"), f64::sqrt)
}

pub(super) fn ln<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    partial(arguments, |x| x > 0.0, (28766, "a positive number"), f64::ln)
}

pub(super) fn log10<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    partial(arguments, |x| x > 0.0, (28761, "a positive number"), f64::log10)
}

/// `$log`.
pub(super) fn log<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((one, base)) = pair(arguments) else { return Ok(Value::NULL) };
    let [one_type, base_type] = [&arguments.values[0], &arguments.values[1]].map(Value::type_name);
    let Some(x) = to_double(one) else {
        return fail(28756, format!("$log's argument must be numeric, not {one_type}"));
    };
    let Some(y) = to_double(base) else {
        return fail(28757, format!("$log's base must be numeric, not {base_type}"));
    };
    if is_decimal(one) || is_decimal(base) {
        return no_decimals("$log");
    }
    if x <= 0.0 {
        return fail(28758, format!("$log's argument must be a positive number, but is {x}"));
    }
    if y <= 0.0 || y == 1.0 {
        let text = format!("$log's base must be a positive number not equal to 1, but is {y}");
        return fail(28759, text);
    }
    Ok(Value::double(x.ln() / y.ln()))
}

/// `$pow`.
pub(super) fn pow<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((base, exponent)) = pair(arguments) else { return Ok(Value::NULL) };
    let [base_type, exponent_type] =
        [&arguments.values[0], &arguments.values[1]].map(Value::type_name);
    let Some(x) = to_double(base) else {
        return fail(28762, format!("$pow's base must be numeric, not {base_type}"));
    };
    let Some(y) = to_double(exponent) else {
        return fail(28763, format!("$pow's exponent must be numeric, not {exponent_type}"));
    };
    if is_decimal(base) || is_decimal(exponent) {
        return no_decimals("$pow");
    }
    if x == 0.0 && y < 0.0 {
        return fail(28764, "$pow cannot take a base of 0 and a negative exponent");
    }
    if let (Some(base_of), Some(power)) = (integer(base), integer(exponent))
        && let Some(exact) = u32::try_from(power).ok().and_then(|power| base_of.checked_pow(power))
    {
        return Ok(narrow(i128::from(exact), are_short(base, exponent)));
    }
    Ok(Value::double(x.powf(y)))
}

/// `$round` and `$trunc`: to a number of digits behind the point, or before it.
fn to_place<'a>(arguments: &Arguments<'a, '_>, rounds: bool) -> Evaluated<'a> {
    let Some(number) = single(arguments)? else { return Ok(Value::NULL) };
    let place = match arguments.values.get(1) {
        None | Some(Value::Missing) if arguments.values.len() < 2 => 0,
        Some(value) if value.is_nullish() => return Ok(Value::NULL),
        place => match place.and_then(Value::as_int) {
            Some(place @ -20..=100) => place,
            _ => {
                let text = format!(
                    "cannot apply {} with precision value outside of -20 to 100",
                    arguments.name
                );
                return fail(51083, text);
            }
        },
    };
    if let Some(value) = integer(number) {
        let made = integer_to_place(i128::from(value), place, rounds);
        return Ok(narrow(made, matches!(number, RawBsonRef::Int32(_))));
    }
    if is_decimal(number) {
        return no_decimals(arguments.name);
    }
    Ok(Value::double(double_to_place(to_double(number).unwrap_or(f64::NAN), place, rounds)))
}

fn integer_to_place(value: i128, place: i32, rounds: bool) -> i128 {
    if place >= 0 {
        return value;
    }
    let unit = 10i128.pow(place.unsigned_abs());
    let (down, rest) = (value / unit, (value % unit).abs() * 2);
    let away = rounds && (rest > unit || (rest == unit && down % 2 != 0));
    (down + if away { value.signum() } else { 0 }) * unit
}

fn double_to_place(value: f64, place: i32, rounds: bool) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(place.abs());
    let scaled = if place >= 0 { value * scale } else { value / scale };
    if !scaled.is_finite() {
        return value;
    }
    let made = if rounds { scaled.round_ties_even() } else { scaled.trunc() };
    if place >= 0 { made / scale } else { made * scale }
}

pub(super) fn round<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    to_place(arguments, true)
}

pub(super) fn trunc<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    to_place(arguments, false)
}

macro_rules! of_doubles {
    ($($name:ident $function:expr;)*) => {
        $(pub(super) fn $name<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
            of_double(arguments, $function)
        })*
    };
}

of_doubles! {
    sin f64::sin;
    cos f64::cos;
    tan f64::tan;
    asin f64::asin;
    acos f64::acos;
    atan f64::atan;
    sinh f64::sinh;
    cosh f64::cosh;
    tanh f64::tanh;
    asinh f64::asinh;
    acosh f64::acosh;
    atanh f64::atanh;
    to_degrees f64::to_degrees;
    to_radians f64::to_radians;
}

/// `$atan2`.
pub(super) fn atan2<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let Some((one, other)) = pair(arguments) else { return Ok(Value::NULL) };
    match doubles("$atan2", one, other)? {
        Some((y, x)) => Ok(Value::double(y.atan2(x))),
        None => fail(51044, "$atan2 only supports numeric types"),
    }
}

/// `$bitAnd`, `$bitOr` and `$bitXor`.
fn bits<'a>(
    arguments: &Arguments<'a, '_>,
    first: i64,
    function: fn(i64, i64) -> i64,
) -> Evaluated<'a> {
    let (mut made, mut is_short) = (first, true);
    for value in &arguments.values {
        match value.get() {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(Value::NULL),
            Some(number) => {
                let Some(integer) = integer(number) else {
                    let text = format!("{} only supports int and long operands.", arguments.name);
                    return fail(TYPE_MISMATCH, text);
                };
                is_short &= matches!(number, RawBsonRef::Int32(_));
                made = function(made, integer);
            }
        }
    }
    Ok(narrow(i128::from(made), is_short))
}

pub(super) fn bit_and<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    bits(arguments, -1, |one, other| one & other)
}

pub(super) fn bit_or<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    bits(arguments, 0, |one, other| one | other)
}

pub(super) fn bit_xor<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    bits(arguments, 0, |one, other| one ^ other)
}

/// `$bitNot`.
pub(super) fn bit_not<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    match arguments.values[0].get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(Value::NULL),
        Some(RawBsonRef::Int32(value)) => Ok(Value::int(!value)),
        Some(RawBsonRef::Int64(value)) => Ok(Value::long(!value)),
        Some(_) => {
            let text = format!(
                "$bitNot only supports int and long, not: {}.",
                arguments.values[0].type_name()
            );
            fail(28765, text)
        }
    }
}

/// `$rand`.
pub(super) fn rand<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(Value::double(arguments.env.random()))
}

/// The numbers of the arguments: of the one argument's elements if it is an array.
fn numbers<'s>(arguments: &'s Arguments<'_, '_>) -> Vec<Option<RawBsonRef<'s>>> {
    match &arguments.values[..] {
        [one] if one.as_array().is_some() => one
            .as_array()
            .map(|array| crate::raw::elements(array).map(Some).collect())
            .unwrap_or_default(),
        all => all.iter().map(Value::get).collect(),
    }
}

fn sum_of(arguments: &Arguments<'_, '_>) -> Result<Sum, DocumentError> {
    let mut sum = Sum::default();
    for value in numbers(arguments).into_iter().flatten() {
        arguments.env.spend(1)?;
        sum.add(value, arguments.name)?;
    }
    Ok(sum)
}

/// `$sum` of the numbers in its arguments.
pub(super) fn sum<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    Ok(sum_of(arguments)?.total())
}

/// `$avg` of the numbers in its arguments.
pub(super) fn avg<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    let sum = sum_of(arguments)?;
    Ok(match sum.count {
        0 => Value::NULL,
        count => Value::double(sum.double() / count as f64),
    })
}

/// The values whose difference from the others is least or greatest; null if there is none.
fn extreme<'a>(arguments: &Arguments<'a, '_>, wanted: std::cmp::Ordering) -> Evaluated<'a> {
    let mut extreme: Option<RawBsonRef<'_>> = None;
    for value in numbers(arguments).into_iter().flatten() {
        arguments.env.spend(1 + crate::value::byte_length(value) / 64)?;
        let is_null = matches!(value, RawBsonRef::Null | RawBsonRef::Undefined);
        if !is_null && extreme.is_none_or(|of| crate::order::compare(value, of) == wanted) {
            extreme = Some(value);
        }
    }
    Ok(extreme.map_or(Value::NULL, |value| Value::Owned(value.into())))
}

pub(super) fn min<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    extreme(arguments, std::cmp::Ordering::Less)
}

pub(super) fn max<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    extreme(arguments, std::cmp::Ordering::Greater)
}

/// Mean and sum of squared differences (Welford 1962).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deviation {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Deviation {
    pub(crate) fn add(&mut self, value: RawBsonRef<'_>) {
        let Some(value) = to_double(value) else { return };
        self.count += 1;
        let difference = value - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (value - self.mean);
    }

    /// The standard deviation, of a sample or of all.
    pub(crate) fn total<'a>(&self, is_sample: bool) -> Value<'a> {
        let by = self.count.saturating_sub(u64::from(is_sample));
        match by {
            0 => Value::NULL,
            by => Value::double((self.squares / by as f64).sqrt()),
        }
    }
}

fn deviation<'a>(arguments: &Arguments<'a, '_>, is_sample: bool) -> Evaluated<'a> {
    let mut deviation = Deviation::default();
    for value in numbers(arguments).into_iter().flatten() {
        arguments.env.spend(1)?;
        deviation.add(value);
    }
    Ok(deviation.total(is_sample))
}

pub(super) fn deviation_of_all<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    deviation(arguments, false)
}

pub(super) fn deviation_of_sample<'a>(arguments: &mut Arguments<'a, '_>) -> Evaluated<'a> {
    deviation(arguments, true)
}
