//! Updates of documents, as MongoDB has them: a replacement, or operators on fields.
//!
//! ```text
//!   {$set: {"a.b": 1}, $inc: {"a.c": 2}}   -->   a --+-- b: set 1
//!                                                    '-- c: add 2
//! ```
//! The operators of one update form a tree of fields, in which no two meet. It is applied from the root
//! downwards, fields in order of their names, those that are numbers in order of these: so fields that are
//! new are appended in that order.
//!
//! Invariant: an update that fails leaves its document in an unknown state: it is applied to a copy. Time and
//! all else that differs from one call to the next come with [`UpdateContext`].

mod array;
mod bits;
mod context;
mod number;
mod operator;
mod path;
mod pipeline;
mod same;
mod tree;

pub use context::UpdateContext;

use crate::error::{
    BAD_VALUE, DOLLAR_PREFIXED_FIELD_NAME, DocumentError, FAILED_TO_PARSE, IMMUTABLE_FIELD,
    PATH_NOT_VIABLE,
};
use crate::filter::Filter;
use crate::variables::Variables;
use bson::raw::RawArray;
use bson::{Bson, Document, RawDocument};
use context::Beside;
use operator::Operator;
use path::{Part, UpdatePath};
use pipeline::PipelineUpdate;
use remora_layout::limits::{MAX_ARRAY_FILTERS, MAX_UPDATE_OPERATORS};
use same::{is_identical, is_identical_document};
use std::collections::{BTreeMap, BTreeSet};
use tree::Node;

/// An update that was parsed.
#[derive(Clone, Debug)]
pub struct Update(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Replacement(Document),
    Operators(Operators),
    Pipeline(Box<PipelineUpdate>),
}

#[derive(Clone, Debug)]
struct Operators {
    tree: Node,
    /// Old and new paths, without positions of arrays.
    renames: Vec<(UpdatePath, UpdatePath)>,
    /// By the identifier of `$[identifier]`; each filter is about one field of that name.
    filters: BTreeMap<String, Filter>,
}

impl Update {
    /// Parses an update, with the filters of array elements that its paths name.
    ///
    /// # Errors
    /// As MongoDB: an unknown operator, two operators about one field, a path or an argument that is none, a
    /// filter that is missing or not used.
    pub fn parse(
        update: &RawDocument,
        array_filters: &[&RawDocument],
    ) -> Result<Self, DocumentError> {
        let is_operators = match update.iter().next() {
            None => false,
            Some(first) => first.map_err(DocumentError::malformed)?.0.as_str().starts_with('$'),
        };
        let update = Document::try_from(update).map_err(DocumentError::malformed)?;
        if !is_operators {
            return Self::replacement(update, array_filters);
        }
        let filters = parse_filters(array_filters)?;
        let (mut tree, mut renames) = (Node::default(), Vec::new());
        let (mut count, mut used) = (0, BTreeSet::new());
        for (name, fields) in &update {
            let Bson::Document(fields) = fields else {
                return Err(DocumentError::new(
                    FAILED_TO_PARSE,
                    format!(
                        "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} not {{{name}: {fields}}}",
                        crate::type_name(fields)
                    ),
                ));
            };
            for (path, argument) in fields {
                count += 1;
                if count > MAX_UPDATE_OPERATORS {
                    let text = format!("more than {MAX_UPDATE_OPERATORS} fields in one update");
                    return Err(DocumentError::new(BAD_VALUE, text));
                }
                for (path, operator) in Operator::parse(name, path, argument)? {
                    used.extend(path.identifiers().map(str::to_owned));
                    if let Operator::RenamedFrom(to) = &operator {
                        renames.push((path.clone(), to.clone()));
                    }
                    tree.add(&path, operator)?;
                }
            }
        }
        if let Some(missing) = used.iter().find(|name| !filters.contains_key(*name)) {
            let text = format!("No array filter found for identifier '{missing}'");
            return Err(DocumentError::new(BAD_VALUE, text));
        }
        if let Some(unused) = filters.keys().find(|name| !used.contains(*name)) {
            let text = format!(
                "The array filter for identifier '{unused}' was not used in the update {update}"
            );
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        }
        Ok(Self(Kind::Operators(Operators { tree, renames, filters })))
    }

    /// Parses an update by a pipeline. Its stages can be `$addFields`, `$set`, `$project`, `$unset`,
    /// `$replaceRoot` and `$replaceWith`.
    ///
    /// # Errors
    /// As MongoDB: another stage, or a wrong argument of one.
    ///
    /// ```
    /// use bson::{doc, raw::RawArrayBuf, rawdoc};
    /// use remora_document::{Update, UpdateContext, Variables};
    ///
    /// let mut stages = RawArrayBuf::new();
    /// stages.push(rawdoc! { "$set": { "sum": { "$add": ["$a", "$b"] } } });
    /// let update = Update::parse_pipeline(&stages, &Variables::default())?;
    /// let mut document = doc! { "_id": 1, "a": 2, "b": 3 };
    /// assert!(update.apply(&mut document, &UpdateContext::default())?);
    /// assert_eq!(document, doc! { "_id": 1, "a": 2, "b": 3, "sum": 5 });
    /// # Ok::<(), remora_document::DocumentError>(())
    /// ```
    pub fn parse_pipeline(stages: &RawArray, variables: &Variables) -> Result<Self, DocumentError> {
        let update = PipelineUpdate::parse(stages, variables)?;
        Ok(Self(Kind::Pipeline(Box::new(update))))
    }

    fn replacement(
        update: Document,
        array_filters: &[&RawDocument],
    ) -> Result<Self, DocumentError> {
        if let Some(name) = update.keys().find(|name| name.starts_with('$')) {
            let text = format!(
                "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith."
            );
            return Err(DocumentError::new(DOLLAR_PREFIXED_FIELD_NAME, text));
        }
        if !array_filters.is_empty() {
            let text = "Cannot specify arrayFilters with a replacement".to_owned();
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        }
        Ok(Self(Kind::Replacement(update)))
    }

    /// Whether it is a whole new document.
    pub const fn is_replacement(&self) -> bool {
        matches!(self.0, Kind::Replacement(_))
    }

    /// Changes a document; whether that made a difference.
    ///
    /// # Errors
    /// As MongoDB: a path that leads through a value, an operator on a value of another type, a sum that is
    /// too large, a change of `_id`.
    pub fn apply(
        &self,
        document: &mut Document,
        context: &UpdateContext,
    ) -> Result<bool, DocumentError> {
        let id = document.get("_id").cloned();
        let changed = match &self.0 {
            Kind::Replacement(new) => replace(document, new),
            Kind::Pipeline(pipeline) => {
                let made = pipeline.apply(document)?;
                let changed = !is_identical_document(&made, document);
                *document = made;
                changed
            }
            Kind::Operators(Operators { tree, renames, filters }) => {
                let mut changed = false;
                for (from, to) in renames {
                    changed |= rename(document, (from, to), (context, filters))?;
                }
                tree.apply(document, (context, filters))? || changed
            }
        };
        let is_same_id = |id: &Bson| document.get("_id").is_some_and(|now| is_identical(id, now));
        if id.as_ref().is_some_and(|id| !is_same_id(id)) {
            let (code, text) = match !matches!(self.0, Kind::Operators(_)) {
                true => (
                    IMMUTABLE_FIELD,
                    "After applying the update, the (immutable) field '_id' was found to have been altered",
                ),
                false => (
                    IMMUTABLE_FIELD,
                    "Performing an update on the path '_id' would modify the immutable field '_id'",
                ),
            };
            return Err(DocumentError::new(code, text.to_owned()));
        }
        Ok(changed)
    }
}

/// Moves the value of a field, if it is there, to another path.
fn rename(
    document: &mut Document,
    (from, to): (&UpdatePath, &UpdatePath),
    beside: Beside<'_>,
) -> Result<bool, DocumentError> {
    let Some(value) = take(document, from)? else { return Ok(false) };
    let mut tree = Node::default();
    tree.add(to, Operator::Set(value))?;
    if let Some(array) = array_on_the_way(document, to) {
        let text = format!(
            "The destination field cannot be an array element, '{}' goes through the array '{array}'",
            to.text
        );
        return Err(DocumentError::new(BAD_VALUE, text));
    }
    tree.apply(document, beside)?;
    Ok(true)
}

/// Takes the value of a path out of a document, if it is there. A path through a value without such fields is an
/// error, as in MongoDB: only `$unset` passes over it.
fn take(document: &mut Document, path: &UpdatePath) -> Result<Option<Bson>, DocumentError> {
    if !is_there(document, path)? {
        return Ok(None);
    }
    if let Some(array) = array_on_the_way(document, path) {
        let text = format!(
            "The source field cannot be an array element, '{}' goes through the array '{array}'",
            path.text
        );
        return Err(DocumentError::new(BAD_VALUE, text));
    }
    let mut names: Vec<&str> = path.text.split('.').collect();
    let Some(last) = names.pop() else { return Ok(None) };
    let mut at = document;
    for name in names {
        let Some(Bson::Document(next)) = at.get_mut(name) else { return Ok(None) };
        at = next;
    }
    Ok(at.remove(last))
}

/// Whether a path of fields and positions leads to a value.
fn is_there(document: &Document, path: &UpdatePath) -> Result<bool, DocumentError> {
    let mut names = path.parts.iter().filter_map(|part| match part {
        Part::Field(name) => Some(name),
        Part::Found | Part::Elements(_) => None,
    });
    let Some(mut parent) = names.next() else { return Ok(false) };
    let mut found = document.get(&parent.0);
    for name in names {
        found = match (found, name.position()) {
            (None, _) => return Ok(false),
            (Some(Bson::Document(of)), _) => of.get(&name.0),
            (Some(Bson::Array(of)), Some(position)) => of.get(position),
            (Some(value), _) => {
                let (name, path, parent) = (&name.0, &path.text, &parent.0);
                let text = format!(
                    "Cannot use the part ({name}) of ({path}) to traverse the element ({{{parent}: {value}}})"
                );
                return Err(DocumentError::new(PATH_NOT_VIABLE, text));
            }
        };
        parent = name;
    }
    Ok(found.is_some())
}

/// The first array through which a path goes.
fn array_on_the_way(document: &Document, path: &UpdatePath) -> Option<String> {
    let names: Vec<&str> = path.text.split('.').collect();
    let mut at = document;
    for (depth, name) in names[..names.len() - 1].iter().enumerate() {
        match at.get(*name)? {
            Bson::Array(_) => return Some(names[..=depth].join(".")),
            Bson::Document(next) => at = next,
            _ => return None,
        }
    }
    None
}

/// Puts `new` in place of a document, whose `_id` stays, and stands first.
fn replace(document: &mut Document, new: &Document) -> bool {
    let mut made = Document::new();
    if let Some(id) = new.get("_id").or_else(|| document.get("_id")) {
        made.insert("_id", id.clone());
    }
    let others = new.iter().filter(|(name, _)| *name != "_id");
    made.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    let changed = !is_identical_document(&made, document);
    *document = made;
    changed
}

/// Filters of array elements, by the identifier with which their fields begin.
fn parse_filters(filters: &[&RawDocument]) -> Result<BTreeMap<String, Filter>, DocumentError> {
    if filters.len() > MAX_ARRAY_FILTERS {
        let text = format!("more than {MAX_ARRAY_FILTERS} array filters in one update");
        return Err(DocumentError::new(BAD_VALUE, text));
    }
    let mut parsed = BTreeMap::new();
    for filter in filters {
        let document = Document::try_from(*filter).map_err(DocumentError::malformed)?;
        let mut names = BTreeSet::new();
        identifiers(&document, &mut names);
        let mut names = names.into_iter();
        let (Some(name), None) = (names.next(), names.next()) else {
            let text = match document.is_empty() {
                true => "Cannot use an expression without a top-level field name in arrayFilters",
                false => "Error parsing array filter: Expected a single top-level field name",
            };
            return Err(DocumentError::new(FAILED_TO_PARSE, text.to_owned()));
        };
        let is_named = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_named {
            let text = format!(
                "Error parsing array filter: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '{name}'"
            );
            return Err(DocumentError::new(BAD_VALUE, text));
        }
        if parsed.insert(name.clone(), Filter::parse(filter)?).is_some() {
            let text =
                format!("Found multiple array filters with the same top-level field name {name}");
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        }
    }
    Ok(parsed)
}

/// The first parts of the fields that a filter is about.
fn identifiers(filter: &Document, names: &mut BTreeSet<String>) {
    for (name, value) in filter {
        match value {
            Bson::Array(of) if name.starts_with('$') => {
                of.iter().filter_map(Bson::as_document).for_each(|of| identifiers(of, names));
            }
            _ => {
                names.insert(UpdatePath::first_of(name).to_owned());
            }
        }
    }
}
