//! From a document to a tree of fields.

use super::shape::{Branch, Child, Mode, Shape};
use crate::error::DocumentError;
use crate::expression::{Expression, parse_path};
use crate::raw::fields;
use crate::validate::validate;
use crate::value::is_true;
use crate::variables::Variables;
use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::limits::MAX_EXPRESSION_PARTS;

impl Shape {
    /// Parses the argument of `$project`.
    pub(crate) fn project(
        argument: &RawDocument,
        variables: &Variables,
    ) -> Result<Shape, DocumentError> {
        self::project(argument, variables)
    }

    /// Parses the argument of `$addFields`.
    pub(crate) fn add_fields(
        argument: &RawDocument,
        variables: &Variables,
    ) -> Result<Shape, DocumentError> {
        self::add_fields(argument, variables)
    }

    /// The projection that leaves out fields, as `$unset` does.
    pub(crate) fn unset(paths: &[&str]) -> Result<Shape, DocumentError> {
        self::unset(paths)
    }
}

type Parsed<T> = Result<T, DocumentError>;

pub(super) fn fail<T>(code: i32, text: impl Into<String>) -> Parsed<T> {
    Err(DocumentError::new(code, text))
}

/// Makes a tree of fields.
pub(super) struct Maker<'v> {
    pub(super) variables: &'v Variables,
    pub(super) root: Branch,
    /// Whether fields are included or left out, once a field says so.
    pub(super) is_inclusion: Option<bool>,
    /// What `_id` says.
    pub(super) id: Option<bool>,
    pub(super) computes: bool,
    count: usize,
}

impl<'v> Maker<'v> {
    pub(super) fn new(variables: &'v Variables) -> Maker<'v> {
        Maker {
            variables,
            root: Branch::default(),
            is_inclusion: None,
            id: None,
            computes: false,
            count: 0,
        }
    }

    /// Adds what happens at a path.
    pub(super) fn add(&mut self, path: &str, child: Child) -> Parsed<()> {
        self.count += 1;
        if self.count > MAX_EXPRESSION_PARTS {
            let text = format!("a projection has more than {MAX_EXPRESSION_PARTS} fields");
            return Err(DocumentError::bad_value(text));
        }
        let names = parse_path(path)?;
        let computes = matches!(child, Child::Compute(_));
        self.computes |= computes;
        let mut branch = &mut self.root;
        for (depth, name) in names.iter().enumerate() {
            let is_last = depth + 1 == names.len();
            branch.computes |= computes;
            let known = branch.position(name);
            match known {
                Some(_) if is_last => {
                    return fail(31250, format!("Path collision at {path}"));
                }
                None if is_last => {
                    branch.push(name, child);
                    return Ok(());
                }
                _ => {}
            }
            let at = match known {
                Some(at) => at,
                None => branch.push(name, Child::Below(Branch::default())),
            };
            match &mut branch.children[at].1 {
                Child::Below(below) => branch = below,
                _ => {
                    let rest = names[depth + 1..].join(".");
                    let text = format!("Path collision at {path} remaining portion {rest}");
                    return fail(31249, text);
                }
            }
        }
        Ok(())
    }

    /// Adds an inclusion or an exclusion.
    pub(super) fn flag(&mut self, path: &str, includes: bool) -> Parsed<()> {
        if path == "_id" {
            self.id = Some(includes);
            return self.add(path, if includes { Child::Include } else { Child::Exclude });
        }
        match self.is_inclusion {
            Some(false) if includes => {
                let text = format!("Cannot do inclusion on field {path} in exclusion projection");
                return fail(31253, text);
            }
            Some(true) if !includes => {
                let text = format!("Cannot do exclusion on field {path} in inclusion projection");
                return fail(31254, text);
            }
            _ => self.is_inclusion = Some(includes),
        }
        self.add(path, if includes { Child::Include } else { Child::Exclude })
    }

    /// Adds a computed field.
    pub(super) fn compute(&mut self, path: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        if self.is_inclusion == Some(false) {
            return fail(31252, "Cannot use expression other than $meta in exclusion projection");
        }
        self.is_inclusion = Some(true);
        let expression = Expression::parse(value, self.variables)?;
        self.add(path, Child::Compute(expression))
    }

    /// Adds what a field of a projection says.
    pub(super) fn field(&mut self, path: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        match value {
            RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_) => self.flag(path, is_true(value)),
            RawBsonRef::Document(document) => match fields(document).next() {
                None => fail(
                    51270,
                    format!(
                        "An empty sub-projection is not a valid value. Found empty object at path {path}"
                    ),
                ),
                Some((name, _)) if name.starts_with('$') => self.compute(path, value),
                Some(_) => {
                    fields(document).try_for_each(|(name, value)| self.nested(path, name, value))
                }
            },
            _ => self.compute(path, value),
        }
    }

    /// A field of a document inside a projection. The depth of the document bounds the recursion.
    fn nested(&mut self, path: &str, name: &str, value: RawBsonRef<'_>) -> Parsed<()> {
        if name.starts_with('$') {
            let text = format!(
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.: {name}"
            );
            return fail(16410, text);
        }
        self.field(&format!("{path}.{name}"), value)
    }

    pub(super) fn done(mut self, default: bool) -> Shape {
        let includes = self.is_inclusion.or(self.id).unwrap_or(default);
        if includes && self.root.position("_id").is_none() {
            self.root.push("_id", Child::Include);
        }
        Shape {
            mode: if includes { Mode::Drop } else { Mode::Keep },
            root: self.root,
            computes: self.computes,
        }
    }
}

fn check(argument: &RawDocument) -> Parsed<()> {
    validate(argument).map_err(DocumentError::malformed)
}

pub(super) fn project(argument: &RawDocument, variables: &Variables) -> Parsed<Shape> {
    check(argument)?;
    if argument.is_empty() {
        return fail(
            51272,
            "Invalid $project :: caused by :: projection specification must have at least one field",
        );
    }
    let mut maker = Maker::new(variables);
    let made = fields(argument).try_for_each(|(name, value)| maker.field(name, value));
    made.map_err(|error| {
        let text = format!("Invalid $project :: caused by :: {}", error.message());
        DocumentError::new(error.code(), text)
    })?;
    Ok(maker.done(false))
}

pub(super) fn add_fields(argument: &RawDocument, variables: &Variables) -> Parsed<Shape> {
    check(argument)?;
    if argument.is_empty() {
        return fail(
            40177,
            "Invalid $addFields :: caused by :: specification must have at least one field",
        );
    }
    let mut maker = Maker::new(variables);
    for (name, value) in fields(argument) {
        add_field(&mut maker, name, value)?;
    }
    Ok(Shape { mode: Mode::Keep, root: maker.root, computes: true })
}

/// A field, or a document of fields. The depth of the document bounds the recursion.
fn add_field(maker: &mut Maker<'_>, path: &str, value: RawBsonRef<'_>) -> Parsed<()> {
    if let RawBsonRef::Document(document) = value
        && fields(document).next().is_some_and(|(name, _)| !name.starts_with('$'))
    {
        return fields(document)
            .try_for_each(|(name, value)| add_field(maker, &format!("{path}.{name}"), value));
    }
    let expression = Expression::parse(value, maker.variables)?;
    maker.add(path, Child::Compute(expression))
}

pub(super) fn unset(paths: &[&str]) -> Parsed<Shape> {
    let variables = Variables::default();
    let mut maker = Maker::new(&variables);
    for path in paths {
        maker.flag(path, false)?;
    }
    Ok(maker.done(false))
}
