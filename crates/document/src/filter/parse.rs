//! From a filter document to clauses.

use super::arguments::{in_list, modulus, size};
use super::bits::{self, Bits};
use super::expression::{Clause, Comparison, Predicate, Test, near};
use super::names::{
    REFERENCE, UNSUPPORTED, UNSUPPORTED_AT_TOP, has_no_field, is_expression, is_operator,
};
use super::pattern::Pattern;
use super::types::TypeSet;
use crate::error::{
    DocumentError, INVALID_BSON, OPTIONS_AFTER_REGEX, OPTIONS_BEFORE_REGEX, TYPE_MISMATCH,
};
use crate::expression::Expression;
use crate::geo::{Near, Region, Relation};
use crate::path::Path;
use crate::raw::{elements, fields};
use crate::schema::Schema;
use crate::validate::{Invalid, validate};
use crate::value::is_true;
use crate::variables::Variables;
use bson::RawBson;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use remora_layout::limits::{MAX_FILTER_CONDITIONS, MAX_FILTER_PATTERNS, MAX_FILTER_REGIONS};
use std::sync::Arc;

type Parsed<T> = Result<T, DocumentError>;

/// The clauses of a filter document. Its depth bounds the recursion.
pub(super) fn filter(document: &RawDocument, variables: &Variables) -> Parsed<(Vec<Clause>, bool)> {
    validate(document).map_err(|invalid| match invalid {
        Invalid::TooDeep => DocumentError::bad_value("exceeded maximum query tree depth"),
        Invalid::Malformed => DocumentError::new(INVALID_BSON, invalid.to_string()),
    })?;
    let mut parser = Parser {
        variables,
        conditions: 0,
        patterns: 0,
        elem_matches: 0,
        nears: 0,
        regions: 0,
        has_expression: false,
    };
    let clauses = parser.clauses(document)?;
    if parser.nears > 1 {
        return Err(DocumentError::bad_value("Too many geoNear expressions"));
    }
    if parser.nears == 1 && near(&clauses).is_none() {
        return Err(DocumentError::bad_value("geo $near must be top-level expr"));
    }
    Ok((clauses, parser.has_expression))
}

/// What one filter has so far.
struct Parser<'v> {
    variables: &'v Variables,
    has_expression: bool,
    conditions: usize,
    patterns: usize,
    /// How many `$elemMatch` are around.
    elem_matches: usize,
    /// How many `$near` it has.
    nears: usize,
    /// How many `$geoWithin` and `$geoIntersects`.
    regions: usize,
}

impl Parser<'_> {
    fn clauses(&mut self, document: &RawDocument) -> Parsed<Vec<Clause>> {
        let mut clauses = Vec::new();
        for (name, value) in fields(document) {
            if name == "$comment" {
                continue;
            }
            self.count()?;
            clauses.push(match name {
                "$and" => Clause::And(self.logical(name, value)?),
                "$or" => Clause::Or(self.logical(name, value)?),
                "$nor" => Clause::Nor(self.logical(name, value)?),
                "$expr" => Clause::Expression(self.expression(value)?),
                "$jsonSchema" => self.schema(value)?,
                "$alwaysTrue" => Clause::Always(true),
                "$alwaysFalse" => Clause::Always(false),
                _ if REFERENCE.contains(&name) => {
                    Clause::Field(path(name)?, vec![comparison(Comparison::Equal, name, value)?])
                }
                _ if name.starts_with('$') => return Err(unknown_at_top(name)),
                _ => {
                    let path = path(name)?;
                    let tests = self.field(&path, value)?;
                    Clause::Field(path, tests)
                }
            });
        }
        Ok(clauses)
    }

    fn expression(&mut self, value: RawBsonRef<'_>) -> Parsed<Expression> {
        if self.elem_matches > 0 {
            let text = "$expr can only be applied to the top-level document";
            return Err(DocumentError::bad_value(text));
        }
        self.has_expression = true;
        Expression::parse(value, self.variables)
    }

    fn schema(&mut self, value: RawBsonRef<'_>) -> Parsed<Clause> {
        let RawBsonRef::Document(schema) = value else {
            return Err(DocumentError::new(TYPE_MISMATCH, "$jsonSchema must be an object"));
        };
        Ok(Clause::Schema(Arc::new(Schema::parse(schema)?)))
    }

    /// The clauses of `$and`, `$or` or `$nor`.
    fn logical(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Vec<Clause>> {
        let RawBsonRef::Array(array) = value else {
            return Err(DocumentError::bad_value(format!("{name} must be an array")));
        };
        if array.is_empty() {
            return Err(DocumentError::bad_value("$and/$or/$nor must be a nonempty array"));
        }
        let mut clauses = Vec::new();
        for entry in elements(array) {
            let RawBsonRef::Document(entry) = entry else {
                let message = "$or/$and/$nor entries need to be full objects";
                return Err(DocumentError::bad_value(message));
            };
            self.count()?;
            clauses.push(Clause::And(self.clauses(entry)?));
        }
        Ok(clauses)
    }

    /// The tests of `{ path: value }`.
    fn field(&mut self, path: &Path, value: RawBsonRef<'_>) -> Parsed<Vec<Test>> {
        match value {
            RawBsonRef::Document(document) if is_expression(document, false) => {
                self.operators(path, document)
            }
            RawBsonRef::RegularExpression(regex) => {
                let pattern = self.pattern(regex.pattern.as_str(), regex.options.as_str())?;
                Ok(vec![Test::Any(Predicate::Pattern(pattern))])
            }
            _ => Ok(vec![comparison(Comparison::Equal, path.as_str(), value)?]),
        }
    }

    /// The tests of `{ $gt: 1, $lt: 2 }`.
    fn operators(&mut self, path: &Path, document: &RawDocument) -> Parsed<Vec<Test>> {
        let mut tests = Vec::new();
        for (name, value) in fields(document) {
            self.count()?;
            if let Some(comparison) = Comparison::of(name) {
                tests.push(self::comparison(comparison, path.as_str(), value)?);
                continue;
            }
            match name {
                "$near" | "$nearSphere" => {
                    self.nears += 1;
                    tests.push(Test::Any(Predicate::Near(Near::parse(path, document)?)));
                }
                "$geoWithin" | "$within" => tests.push(self.region(Relation::Within, value)?),
                "$geoIntersects" => tests.push(self.region(Relation::Intersects, value)?),
                "$minDistance" | "$maxDistance" => Near::parse(path, document).map(drop)?,
                "$ne" => tests.push(not_equal(path, value)?),
                "$in" => tests.push(Test::Any(self.in_list(name, value)?)),
                "$nin" => tests.push(Test::Not(vec![Test::Any(self.in_list(name, value)?)])),
                "$not" => tests.push(Test::Not(self.not(path, value)?)),
                "$all" => self.all(path, value, &mut tests)?,
                "$elemMatch" => tests.push(self.elem_match(path, value)?),
                "$regex" => tests.push(self.regex(document)?),
                "$options" => needs_regex(document)?,
                _ => tests.push(simple(name, value)?),
            }
        }
        Ok(tests)
    }

    fn in_list(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Predicate> {
        in_list(name, value, &mut |pattern, options| self.pattern(pattern, options))
    }

    fn not(&mut self, path: &Path, value: RawBsonRef<'_>) -> Parsed<Vec<Test>> {
        match value {
            RawBsonRef::RegularExpression(_) => self.field(path, value),
            RawBsonRef::Document(document) if document.is_empty() => {
                Err(DocumentError::bad_value("$not cannot be empty"))
            }
            RawBsonRef::Document(document) => self.operators(path, document),
            _ => Err(DocumentError::bad_value("$not needs a regex or a document")),
        }
    }

    fn all(&mut self, path: &Path, value: RawBsonRef<'_>, tests: &mut Vec<Test>) -> Parsed<()> {
        let RawBsonRef::Array(array) = value else {
            return Err(DocumentError::bad_value("$all needs an array"));
        };
        if elements(array).next().and_then(elem_match_argument).is_some() {
            return self.all_elem_match(path, array, tests);
        }
        if array.is_empty() {
            tests.push(Test::Never);
        }
        for value in elements(array) {
            self.count()?;
            match value {
                RawBsonRef::Document(document)
                    if fields(document).next().is_some_and(|(name, _)| is_operator(name)) =>
                {
                    return Err(DocumentError::bad_value("no $ expressions in $all"));
                }
                RawBsonRef::Document(_) => {
                    tests.push(comparison(Comparison::Equal, path.as_str(), value)?);
                }
                _ => tests.extend(self.field(path, value)?),
            }
        }
        Ok(())
    }

    /// `{ $all: [{ $elemMatch: ... }, ...] }`.
    fn all_elem_match(
        &mut self,
        path: &Path,
        array: &RawArray,
        tests: &mut Vec<Test>,
    ) -> Parsed<()> {
        for value in elements(array) {
            self.count()?;
            let Some(argument) = elem_match_argument(value) else {
                return Err(DocumentError::bad_value("$all/$elemMatch has to be consistent"));
            };
            tests.push(self.elem_match(path, argument)?);
        }
        Ok(())
    }

    fn elem_match(&mut self, path: &Path, value: RawBsonRef<'_>) -> Parsed<Test> {
        let RawBsonRef::Document(document) = value else {
            return Err(DocumentError::bad_value("$elemMatch needs an Object"));
        };
        if self.elem_matches > 0 && path.indexes() > 1 {
            let message = "$elemMatch in $elemMatch: the path has more than one number";
            return Err(DocumentError::bad_value(message));
        }
        self.elem_matches += 1;
        let is_value = is_expression(document, true)
            && fields(document).next().is_some_and(|(name, _)| !has_no_field(name));
        let predicate = if is_value {
            Predicate::ElemMatchValue(self.operators(&self::path("")?, document)?)
        } else {
            Predicate::ElemMatchDocument(self.clauses(document)?)
        };
        self.elem_matches -= 1;
        Ok(Test::Any(predicate))
    }

    /// `$regex`, with the `$options` beside it.
    fn regex(&mut self, document: &RawDocument) -> Parsed<Test> {
        let (mut pattern, mut options) = ("", "");
        for (name, value) in fields(document) {
            match (name, value) {
                ("$regex", RawBsonRef::String(text)) => pattern = text,
                ("$regex", RawBsonRef::RegularExpression(regex)) => {
                    pattern = regex.pattern.as_str();
                    let own = regex.options.as_str();
                    if !own.is_empty() && !options.is_empty() {
                        return Err(two_options(OPTIONS_BEFORE_REGEX));
                    }
                    options = if own.is_empty() { options } else { own };
                }
                ("$regex", _) => return Err(DocumentError::bad_value("$regex has to be a string")),
                ("$options", RawBsonRef::String(_)) if !options.is_empty() => {
                    return Err(two_options(OPTIONS_AFTER_REGEX));
                }
                ("$options", RawBsonRef::String(text)) => options = text,
                ("$options", _) => {
                    return Err(DocumentError::bad_value("$options has to be a string"));
                }
                _ => {}
            }
        }
        Ok(Test::Any(Predicate::Pattern(self.pattern(pattern, options)?)))
    }

    fn pattern(&mut self, pattern: &str, options: &str) -> Parsed<Pattern> {
        self.patterns += 1;
        if self.patterns > MAX_FILTER_PATTERNS {
            let message =
                format!("a filter has more than {MAX_FILTER_PATTERNS} regular expressions");
            return Err(DocumentError::bad_value(message));
        }
        Pattern::new(pattern, options)
    }

    fn region(&mut self, relation: Relation, value: RawBsonRef<'_>) -> Parsed<Test> {
        self.regions += 1;
        if self.regions > MAX_FILTER_REGIONS {
            let message = format!("a filter has more than {MAX_FILTER_REGIONS} regions");
            return Err(DocumentError::bad_value(message));
        }
        Ok(Test::Any(Predicate::Region(Region::parse(relation, value)?.into())))
    }

    fn count(&mut self) -> Parsed<()> {
        self.conditions += 1;
        if self.conditions > MAX_FILTER_CONDITIONS {
            let message = format!("a filter has more than {MAX_FILTER_CONDITIONS} conditions");
            return Err(DocumentError::bad_value(message));
        }
        Ok(())
    }
}

fn path(name: &str) -> Parsed<Path> {
    Path::parse(name).map_err(|error| DocumentError::bad_value(error.to_string()))
}

/// An operator whose argument has no other filter in it.
fn simple(name: &str, value: RawBsonRef<'_>) -> Parsed<Test> {
    let predicate = match name {
        "$exists" if is_true(value) => Predicate::Exists,
        "$exists" => return Ok(Test::Not(vec![Test::Any(Predicate::Exists)])),
        "$type" => Predicate::Type(TypeSet::parse(value)?),
        "$mod" => modulus(value)?,
        "$size" => Predicate::Size(size(value)?),
        "$bitsAllSet" => Predicate::Bits(Bits::parse(name, bits::Test::AllSet, value)?),
        "$bitsAnySet" => Predicate::Bits(Bits::parse(name, bits::Test::AnySet, value)?),
        "$bitsAllClear" => Predicate::Bits(Bits::parse(name, bits::Test::AllClear, value)?),
        "$bitsAnyClear" => Predicate::Bits(Bits::parse(name, bits::Test::AnyClear, value)?),
        "$where" => return Err(DocumentError::bad_value("$where cannot be applied to a field")),
        _ if UNSUPPORTED.contains(&name) => return Err(unsupported(name)),
        _ => return Err(DocumentError::bad_value(format!("unknown operator: {name}"))),
    };
    Ok(Test::Any(predicate))
}

fn comparison(comparison: Comparison, path: &str, value: RawBsonRef<'_>) -> Parsed<Test> {
    match value {
        RawBsonRef::Undefined => Err(DocumentError::bad_value("cannot compare to undefined")),
        RawBsonRef::RegularExpression(_) if comparison != Comparison::Equal => {
            let message = format!("Can't have RegEx as arg to predicate over field '{path}'.");
            Err(DocumentError::bad_value(message))
        }
        _ => Ok(Test::Any(Predicate::Compare(comparison, RawBson::from(value)))),
    }
}

fn not_equal(path: &Path, value: RawBsonRef<'_>) -> Parsed<Test> {
    if let RawBsonRef::RegularExpression(_) = value {
        return Err(DocumentError::bad_value("Can't have regex as arg to $ne."));
    }
    Ok(Test::Not(vec![comparison(Comparison::Equal, path.as_str(), value)?]))
}

fn needs_regex(document: &RawDocument) -> Parsed<()> {
    let has_regex = fields(document).any(|(name, _)| name == "$regex");
    has_regex.then_some(()).ok_or_else(|| DocumentError::bad_value("$options needs a $regex"))
}

fn two_options(code: i32) -> DocumentError {
    DocumentError::new(code, "options set in both $regex and $options")
}

fn unsupported(name: &str) -> DocumentError {
    DocumentError::bad_value(format!("{name} is not supported"))
}

fn unknown_at_top(name: &str) -> DocumentError {
    if UNSUPPORTED_AT_TOP.contains(&name) {
        return unsupported(name);
    }
    DocumentError::bad_value(format!(
        "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using $getField or $setField."
    ))
}

/// The argument of `{ $elemMatch: ... }`.
fn elem_match_argument(value: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    let first = fields(value.as_document()?).next();
    first.and_then(|(name, argument)| (name == "$elemMatch").then_some(argument))
}
