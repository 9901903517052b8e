//! From a document to a schema.

use super::keywords::{Dependent, Elements, Keyword, Object, Others, Schema};
use crate::error::{BAD_VALUE, DocumentError, FAILED_TO_PARSE, TYPE_MISMATCH};
use crate::filter::{Pattern, TypeSet};
use crate::number::Number;
use crate::raw::{elements, fields};
use crate::validate::validate;
use bson::RawBson;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument};
use remora_layout::limits::{MAX_FILTER_PATTERNS, MAX_SCHEMA_PARTS};

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// As MongoDB: a keyword that is unknown, or has a wrong argument.
    pub(crate) fn parse(schema: &RawDocument) -> Result<Schema, DocumentError> {
        self::schema(schema)
    }
}

type Parsed<T> = Result<T, DocumentError>;

fn fail<T>(code: i32, text: String) -> Parsed<T> {
    Err(DocumentError::new(code, text))
}

/// Keywords of draft 4 that MongoDB does not have.
const UNSUPPORTED: &[&str] = &["$ref", "$schema", "default", "definitions", "format", "id"];

pub(super) fn schema(document: &RawDocument) -> Parsed<Schema> {
    validate(document).map_err(DocumentError::malformed)?;
    Parser { parts: 0, patterns: 0 }.schema(document)
}

struct Parser {
    parts: usize,
    patterns: usize,
}

impl Parser {
    /// The depth of the document bounds the recursion.
    fn schema(&mut self, document: &RawDocument) -> Parsed<Schema> {
        let get = |wanted: &str| fields(document).find(|(name, _)| *name == wanted);
        let value_of = |wanted: &str| get(wanted).map(|(_, value)| value);
        let mut made = Schema::default();
        let (mut object, mut array) = (Object::default(), Elements::default());
        let (mut has_object, mut has_array) = (false, false);
        if value_of("type").is_some() && value_of("bsonType").is_some() {
            let text = "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'";
            return fail(FAILED_TO_PARSE, text.to_owned());
        }
        for (name, value) in fields(document) {
            self.count()?;
            match name {
                "description" | "title" => {
                    if value.as_str().is_none() {
                        return wrong_type(name, "a string");
                    }
                }
                "properties" | "patternProperties" | "additionalProperties" => {
                    has_object = true;
                    self.object(&mut object, name, value)?;
                }
                "items" | "additionalItems" => {
                    has_array = true;
                    self.items(&mut array, name, value, value_of("items"))?;
                }
                "exclusiveMinimum" | "exclusiveMaximum" => {
                    let bound = if name == "exclusiveMinimum" { "minimum" } else { "maximum" };
                    if value_of(bound).is_none() {
                        let text = format!(
                            "$jsonSchema keyword '{bound}' must be a present if {name} is present"
                        );
                        return fail(FAILED_TO_PARSE, text);
                    }
                    if value.as_bool().is_none() {
                        return wrong_type(name, "a boolean");
                    }
                }
                "minimum" | "maximum" => {
                    let exclusive =
                        if name == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
                    let is_exclusive = value_of(exclusive).and_then(RawBsonRef::as_bool);
                    made.keywords.push(bound(name, value, is_exclusive.unwrap_or(false))?);
                }
                "dependencies" => self.dependencies(&mut made, value)?,
                _ => made.keywords.extend(self.keyword(name, value)?),
            }
        }
        if has_object {
            made.keywords.push(Keyword::Object(Box::new(object)));
        }
        if has_array {
            made.keywords.push(Keyword::Array(Box::new(array)));
        }
        Ok(made)
    }

    fn count(&mut self) -> Parsed<()> {
        self.parts += 1;
        match self.parts > MAX_SCHEMA_PARTS {
            true => {
                fail(BAD_VALUE, format!("a $jsonSchema has more than {MAX_SCHEMA_PARTS} keywords"))
            }
            false => Ok(()),
        }
    }

    /// A keyword that stands for itself.
    fn keyword(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Option<Keyword>> {
        let size = |most: bool| {
            let size = length(name, value)?;
            Ok::<(usize, usize), DocumentError>(if most { (0, size) } else { (size, usize::MAX) })
        };
        Ok(Some(match name {
            "type" => Keyword::Type(json_types(value)?),
            "bsonType" => Keyword::Type(bson_types(value)?),
            "enum" => Keyword::Enum(values(value)?),
            "allOf" => Keyword::AllOf(self.schemas(name, value)?),
            "anyOf" => Keyword::AnyOf(self.schemas(name, value)?),
            "oneOf" => Keyword::OneOf(self.schemas(name, value)?),
            "not" => Keyword::Not(Box::new(self.inner(name, value)?)),
            "multipleOf" => match Number::of(value) {
                Some(Number::Positive(_)) => Keyword::MultipleOf(value.into()),
                Some(_) => {
                    let text = "$jsonSchema keyword 'multipleOf' must have a positive value";
                    return fail(FAILED_TO_PARSE, text.to_owned());
                }
                None => return wrong_type(name, "a number"),
            },
            "minLength" | "maxLength" => {
                let (least, most) = size(name == "maxLength")?;
                Keyword::Length(least, most)
            }
            "minItems" | "maxItems" => {
                let (least, most) = size(name == "maxItems")?;
                Keyword::Items(least, most)
            }
            "minProperties" | "maxProperties" => {
                let (least, most) = size(name == "maxProperties")?;
                Keyword::Fields(least, most)
            }
            "pattern" => match value {
                RawBsonRef::String(source) => Keyword::Pattern(self.pattern(source)?),
                _ => return wrong_type(name, "a string"),
            },
            "uniqueItems" => match value {
                RawBsonRef::Boolean(true) => Keyword::UniqueItems,
                RawBsonRef::Boolean(false) => return Ok(None),
                _ => return wrong_type(name, "a boolean"),
            },
            "required" => Keyword::Required(self.names(name, value)?),
            _ if UNSUPPORTED.contains(&name) => {
                let text = format!("$jsonSchema keyword '{name}' is not currently supported");
                return fail(FAILED_TO_PARSE, text);
            }
            _ => {
                return fail(FAILED_TO_PARSE, format!("Unknown $jsonSchema keyword: {name}"));
            }
        }))
    }

    fn inner(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Schema> {
        match value {
            RawBsonRef::Document(document) => self.schema(document),
            _ => wrong_type(name, "an object"),
        }
    }

    fn schemas(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Vec<Schema>> {
        let all = not_empty(name, value)?;
        elements(all).map(|value| self.inner(name, value)).collect()
    }

    fn pattern(&mut self, source: &str) -> Parsed<Pattern> {
        self.patterns += 1;
        if self.patterns > MAX_FILTER_PATTERNS {
            let text =
                format!("a $jsonSchema has more than {MAX_FILTER_PATTERNS} regular expressions");
            return fail(BAD_VALUE, text);
        }
        Pattern::new(source, "")
    }

    /// Names of fields, each once.
    fn names(&mut self, keyword: &str, value: RawBsonRef<'_>) -> Parsed<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for value in elements(not_empty(keyword, value)?) {
            self.count()?;
            let Some(name) = value.as_str() else {
                return wrong_type(keyword, "an array of strings");
            };
            if names.iter().any(|known| known == name) {
                let text = format!(
                    "$jsonSchema keyword '{keyword}' array cannot contain duplicate values"
                );
                return fail(FAILED_TO_PARSE, text);
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    fn others(&mut self, name: &str, value: RawBsonRef<'_>) -> Parsed<Others> {
        Ok(match value {
            RawBsonRef::Boolean(true) => Others::Allowed,
            RawBsonRef::Boolean(false) => Others::Refused,
            RawBsonRef::Document(schema) => Others::Schema(self.schema(schema)?),
            _ => return wrong_type(name, "an object or a boolean"),
        })
    }

    fn object(&mut self, object: &mut Object, name: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        if name == "additionalProperties" {
            object.others = self.others(name, value)?;
            return Ok(());
        }
        let RawBsonRef::Document(all) = value else { return wrong_type(name, "an object") };
        for (field, value) in fields(all) {
            self.count()?;
            let schema = self.inner(name, value)?;
            if name == "properties" {
                object.properties.insert(field.to_owned(), schema);
            } else {
                object.patterns.push((self.pattern(field)?, schema));
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        array: &mut Elements,
        name: &str,
        value: RawBsonRef<'_>,
        items: Option<RawBsonRef<'_>>,
    ) -> Parsed<()> {
        match (name, value, items) {
            ("items", RawBsonRef::Array(all), _) => {
                array.each = elements(all)
                    .map(|value| self.inner(name, value))
                    .collect::<Parsed<Vec<Schema>>>()?;
            }
            ("items", value, _) => array.others = Others::Schema(self.inner(name, value)?),
            // It counts behind the positions of an array only.
            (_, value, Some(RawBsonRef::Array(_))) => array.others = self.others(name, value)?,
            (_, value, _) => {
                self.others(name, value)?;
            }
        }
        Ok(())
    }

    fn dependencies(&mut self, made: &mut Schema, value: RawBsonRef<'_>) -> Parsed<()> {
        let RawBsonRef::Document(all) = value else {
            return wrong_type("dependencies", "an object");
        };
        for (name, value) in fields(all) {
            self.count()?;
            let dependent = match value {
                RawBsonRef::Array(_) => Dependent::Fields(self.names("dependencies", value)?),
                value => Dependent::Schema(self.inner("dependencies", value)?),
            };
            made.keywords.push(Keyword::Dependency(name.to_owned(), dependent));
        }
        Ok(())
    }
}

fn wrong_type<T>(name: &str, wanted: &str) -> Parsed<T> {
    fail(TYPE_MISMATCH, format!("$jsonSchema keyword '{name}' must be {wanted}"))
}

fn not_empty<'d>(name: &str, value: RawBsonRef<'d>) -> Parsed<&'d RawArray> {
    match value {
        RawBsonRef::Array(all) if !all.is_empty() => Ok(all),
        RawBsonRef::Array(_) => {
            let text = format!("$jsonSchema keyword '{name}' must be a non-empty array");
            fail(FAILED_TO_PARSE, text)
        }
        _ => wrong_type(name, "an array"),
    }
}

fn bound(name: &str, value: RawBsonRef<'_>, is_exclusive: bool) -> Parsed<Keyword> {
    if Number::of(value).is_none() {
        return wrong_type(name, "a number");
    }
    let allowed = match name {
        "minimum" => [false, !is_exclusive, true],
        _ => [true, !is_exclusive, false],
    };
    Ok(Keyword::Bound { bound: value.into(), allowed })
}

fn length(name: &str, value: RawBsonRef<'_>) -> Parsed<usize> {
    let whole = Number::of(value).and_then(Number::whole);
    whole.and_then(|whole| usize::try_from(whole).ok()).ok_or_else(|| {
        let text =
            format!("Expected a non-negative number in: {name}: {}", crate::value::shown(value));
        DocumentError::new(FAILED_TO_PARSE, text)
    })
}

fn values(value: RawBsonRef<'_>) -> Parsed<Vec<RawBson>> {
    let all = not_empty("enum", value)?;
    let mut known: Vec<RawBsonRef<'_>> = elements(all).take(MAX_SCHEMA_PARTS + 1).collect();
    if known.len() > MAX_SCHEMA_PARTS {
        return fail(BAD_VALUE, format!("an enum has more than {MAX_SCHEMA_PARTS} values"));
    }
    known.sort_by(|one, other| crate::compare(*one, *other));
    if known.windows(2).any(|pair| crate::compare(pair[0], pair[1]).is_eq()) {
        let text = "$jsonSchema keyword 'enum' array cannot contain duplicate values.";
        return fail(FAILED_TO_PARSE, text.to_owned());
    }
    Ok(known.into_iter().map(RawBson::from).collect())
}

/// The names of a keyword about types: a string or an array of them.
fn names_of_types<'d>(keyword: &str, value: RawBsonRef<'d>) -> Parsed<Vec<&'d str>> {
    let wanted = "either a string or an array of strings";
    match value {
        RawBsonRef::String(name) => Ok(vec![name]),
        RawBsonRef::Array(_) => {
            let names = elements(not_empty(keyword, value)?).map(|name| name.as_str());
            match names.collect::<Option<Vec<&str>>>() {
                Some(names) => Ok(names),
                None => wrong_type(keyword, wanted),
            }
        }
        _ => wrong_type(keyword, wanted),
    }
}

fn type_set(names: &[&str]) -> Parsed<TypeSet> {
    let mut all = RawArrayBuf::new();
    names.iter().for_each(|name| all.push(*name));
    TypeSet::parse(RawBsonRef::Array(&all))
}

fn bson_types(value: RawBsonRef<'_>) -> Parsed<TypeSet> {
    type_set(&names_of_types("bsonType", value)?)
}

fn json_types(value: RawBsonRef<'_>) -> Parsed<TypeSet> {
    let mut names = names_of_types("type", value)?;
    for name in &mut names {
        *name = match *name {
            "object" | "array" | "number" | "string" | "null" => name,
            "boolean" => "bool",
            "integer" => {
                let text = "$jsonSchema type 'integer' is not currently supported.";
                return fail(FAILED_TO_PARSE, text.to_owned());
            }
            other => return fail(BAD_VALUE, format!("Unknown type name alias: {other}")),
        };
    }
    type_set(&names)
}
