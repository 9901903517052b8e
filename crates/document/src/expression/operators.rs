//! The operators whose arguments are evaluated first: their names, the shapes of their arguments, and their
//! functions.

use super::arguments::Arguments;
use super::{arithmetic, arrays, compare, convert, dates, objects, sets, strings};
use crate::error::DocumentError;
use crate::value::Value;
use std::fmt;

type Function = for<'a> fn(&mut Arguments<'a, '_>) -> Result<Value<'a>, DocumentError>;

/// How arguments are given.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Exactly(usize),
    Between(usize, usize),
    Any,
    /// A document of arguments, of which the first ones are required.
    Named(&'static [&'static str], usize),
    /// A date, or a document of a date and a time zone.
    Date,
    /// The argument of `$getField`.
    Field,
}

/// An operator.
pub(super) struct Operator {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) function: Function,
}

impl fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The operator of a name.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name)
}

const fn operator(name: &'static str, shape: Shape, function: Function) -> Operator {
    Operator { name, shape, function }
}

use Shape::{Any, Between, Date, Exactly, Field, Named};

static OPERATORS: &[Operator] = &[
    operator("$abs", Exactly(1), arithmetic::abs),
    operator("$acos", Exactly(1), arithmetic::acos),
    operator("$acosh", Exactly(1), arithmetic::acosh),
    operator("$add", Any, arithmetic::add),
    operator("$allElementsTrue", Exactly(1), sets::all_elements_true),
    operator("$anyElementTrue", Exactly(1), sets::any_element_true),
    operator("$arrayElemAt", Exactly(2), arrays::element_at),
    operator("$arrayToObject", Exactly(1), objects::array_to_object),
    operator("$asin", Exactly(1), arithmetic::asin),
    operator("$asinh", Exactly(1), arithmetic::asinh),
    operator("$atan", Exactly(1), arithmetic::atan),
    operator("$atan2", Exactly(2), arithmetic::atan2),
    operator("$atanh", Exactly(1), arithmetic::atanh),
    operator("$avg", Any, arithmetic::avg),
    operator("$binarySize", Exactly(1), strings::binary_size),
    operator("$bitAnd", Any, arithmetic::bit_and),
    operator("$bitNot", Exactly(1), arithmetic::bit_not),
    operator("$bitOr", Any, arithmetic::bit_or),
    operator("$bitXor", Any, arithmetic::bit_xor),
    operator("$bsonSize", Exactly(1), objects::bson_size),
    operator("$ceil", Exactly(1), arithmetic::ceil),
    operator("$cmp", Exactly(2), compare::cmp),
    operator("$concat", Any, strings::concat),
    operator("$concatArrays", Any, arrays::concat),
    operator("$cos", Exactly(1), arithmetic::cos),
    operator("$cosh", Exactly(1), arithmetic::cosh),
    operator("$dateAdd", Named(&["startDate", "unit", "amount", "timezone"], 3), dates::add),
    operator(
        "$dateDiff",
        Named(&["startDate", "endDate", "unit", "timezone", "startOfWeek"], 3),
        dates::difference,
    ),
    operator("$dateFromParts", Named(dates::PARTS, 0), dates::from_parts),
    operator(
        "$dateFromString",
        Named(&["dateString", "format", "timezone", "onError", "onNull"], 1),
        dates::from_string,
    ),
    operator(
        "$dateSubtract",
        Named(&["startDate", "unit", "amount", "timezone"], 3),
        dates::subtract,
    ),
    operator("$dateToParts", Named(&["date", "timezone", "iso8601"], 1), dates::to_parts),
    operator(
        "$dateToString",
        Named(&["date", "format", "timezone", "onNull"], 1),
        dates::to_string,
    ),
    operator(
        "$dateTrunc",
        Named(&["date", "unit", "binSize", "timezone", "startOfWeek"], 2),
        dates::truncate,
    ),
    operator("$dayOfMonth", Date, dates::part),
    operator("$dayOfWeek", Date, dates::part),
    operator("$dayOfYear", Date, dates::part),
    operator("$degreesToRadians", Exactly(1), arithmetic::to_radians),
    operator("$divide", Exactly(2), arithmetic::divide),
    operator("$eq", Exactly(2), compare::eq),
    operator("$exp", Exactly(1), arithmetic::exp),
    operator("$first", Exactly(1), arrays::first),
    operator("$firstN", Named(&["input", "n"], 2), arrays::first_n),
    operator("$floor", Exactly(1), arithmetic::floor),
    operator("$getField", Field, objects::get_field),
    operator("$gt", Exactly(2), compare::gt),
    operator("$gte", Exactly(2), compare::gte),
    operator("$hour", Date, dates::part),
    operator("$in", Exactly(2), arrays::contains),
    operator("$indexOfArray", Between(2, 4), arrays::index_of),
    operator("$indexOfBytes", Between(2, 4), strings::index_of_bytes),
    operator("$indexOfCP", Between(2, 4), strings::index_of_code_points),
    operator("$isArray", Exactly(1), arrays::is_array),
    operator("$isNumber", Exactly(1), compare::is_number),
    operator("$isoDayOfWeek", Date, dates::part),
    operator("$isoWeek", Date, dates::part),
    operator("$isoWeekYear", Date, dates::part),
    operator("$last", Exactly(1), arrays::last),
    operator("$lastN", Named(&["input", "n"], 2), arrays::last_n),
    operator("$ln", Exactly(1), arithmetic::ln),
    operator("$log", Exactly(2), arithmetic::log),
    operator("$log10", Exactly(1), arithmetic::log10),
    operator("$lt", Exactly(2), compare::lt),
    operator("$lte", Exactly(2), compare::lte),
    operator("$ltrim", Named(&["input", "chars"], 1), strings::trim),
    operator("$max", Any, arithmetic::max),
    operator("$maxN", Named(&["input", "n"], 2), arrays::max_n),
    operator("$mergeObjects", Any, objects::merge),
    operator("$millisecond", Date, dates::part),
    operator("$min", Any, arithmetic::min),
    operator("$minN", Named(&["input", "n"], 2), arrays::min_n),
    operator("$minute", Date, dates::part),
    operator("$mod", Exactly(2), arithmetic::modulo),
    operator("$month", Date, dates::part),
    operator("$multiply", Any, arithmetic::multiply),
    operator("$ne", Exactly(2), compare::ne),
    operator("$not", Exactly(1), compare::not),
    operator("$objectToArray", Exactly(1), objects::object_to_array),
    operator("$pow", Exactly(2), arithmetic::pow),
    operator("$radiansToDegrees", Exactly(1), arithmetic::to_degrees),
    operator("$rand", Any, arithmetic::rand),
    operator("$range", Between(2, 3), arrays::range),
    operator("$replaceAll", Named(&["input", "find", "replacement"], 3), strings::replace_all),
    operator("$replaceOne", Named(&["input", "find", "replacement"], 3), strings::replace_one),
    operator("$reverseArray", Exactly(1), arrays::reverse),
    operator("$round", Between(1, 2), arithmetic::round),
    operator("$rtrim", Named(&["input", "chars"], 1), strings::trim),
    operator("$second", Date, dates::part),
    operator("$setDifference", Exactly(2), sets::difference),
    operator("$setEquals", Any, sets::equals),
    operator("$setField", Named(&["field", "input", "value"], 3), objects::set_field),
    operator("$setIntersection", Any, sets::intersection),
    operator("$setIsSubset", Exactly(2), sets::is_subset),
    operator("$setUnion", Any, sets::union),
    operator("$sin", Exactly(1), arithmetic::sin),
    operator("$sinh", Exactly(1), arithmetic::sinh),
    operator("$size", Exactly(1), arrays::size),
    operator("$slice", Between(2, 3), arrays::slice),
    operator("$sortArray", Named(&["input", "sortBy"], 2), arrays::sort),
    operator("$split", Exactly(2), strings::split),
    operator("$sqrt", Exactly(1), arithmetic::sqrt),
    operator("$stdDevPop", Any, arithmetic::deviation_of_all),
    operator("$stdDevSamp", Any, arithmetic::deviation_of_sample),
    operator("$strLenBytes", Exactly(1), strings::length_bytes),
    operator("$strLenCP", Exactly(1), strings::length_code_points),
    operator("$strcasecmp", Exactly(2), strings::compare_cases),
    operator("$substr", Exactly(3), strings::substring_bytes),
    operator("$substrBytes", Exactly(3), strings::substring_bytes),
    operator("$substrCP", Exactly(3), strings::substring_code_points),
    operator("$subtract", Exactly(2), arithmetic::subtract),
    operator("$sum", Any, arithmetic::sum),
    operator("$tan", Exactly(1), arithmetic::tan),
    operator("$tanh", Exactly(1), arithmetic::tanh),
    operator("$toBool", Exactly(1), convert::to),
    operator("$toDate", Exactly(1), convert::to),
    operator("$toDecimal", Exactly(1), convert::to),
    operator("$toDouble", Exactly(1), convert::to),
    operator("$toInt", Exactly(1), convert::to),
    operator("$toLong", Exactly(1), convert::to),
    operator("$toLower", Exactly(1), strings::to_lower),
    operator("$toObjectId", Exactly(1), convert::to),
    operator("$toString", Exactly(1), convert::to),
    operator("$toUpper", Exactly(1), strings::to_upper),
    operator("$trim", Named(&["input", "chars"], 1), strings::trim),
    operator("$trunc", Between(1, 2), arithmetic::trunc),
    operator("$tsIncrement", Exactly(1), dates::timestamp_increment),
    operator("$tsSecond", Exactly(1), dates::timestamp_second),
    operator("$type", Exactly(1), compare::type_of),
    operator("$unsetField", Named(&["field", "input"], 2), objects::unset_field),
    operator("$week", Date, dates::part),
    operator("$year", Date, dates::part),
    operator("$zip", Named(&["inputs", "useLongestLength", "defaults"], 1), arrays::zip),
];
