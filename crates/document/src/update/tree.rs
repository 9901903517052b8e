//! The tree of an update's operators, and how it is applied.

use super::context::{Beside, UpdateContext, matches_value};
use super::operator::{Applied, Operator};
use super::path::{FieldName, Part, UpdatePath};
use crate::error::{BAD_VALUE, CONFLICTING_UPDATE_OPERATORS, DocumentError, PATH_NOT_VIABLE};
use bson::{Bson, Document, doc};
use remora_layout::limits::MAX_ARRAY_BACKFILL;
use std::collections::BTreeMap;

/// Operators at and below a place of a document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The operator of this place, with its path.
    Leaf(Box<(Operator, String)>),
    /// Operators below it.
    Below(BTreeMap<FieldName, Node>),
    /// Operators on elements of the array that is there, by `$`, and by identifier (`None`: all elements).
    Elements { found: Option<Box<Node>>, filtered: BTreeMap<Option<String>, Node> },
}

impl Default for Node {
    fn default() -> Self {
        Self::Below(BTreeMap::new())
    }
}

impl Node {
    /// Adds an operator.
    ///
    /// # Errors
    /// Another one is about this place, a place below, or one above.
    pub fn add(&mut self, path: &UpdatePath, operator: Operator) -> Result<(), DocumentError> {
        let conflict = |at: usize| {
            let at: Vec<&str> = path.text.split('.').take(at).collect();
            let text = format!(
                "Updating the path '{}' would create a conflict at '{}'",
                path.text,
                at.join(".")
            );
            DocumentError::new(CONFLICTING_UPDATE_OPERATORS, text)
        };
        let mut node = self;
        for (at, part) in path.parts.iter().enumerate() {
            if let Self::Below(below) = node
                && below.is_empty()
                && at > 0
                && !matches!(part, Part::Field(_))
            {
                *node = Self::Elements { found: None, filtered: BTreeMap::new() };
            }
            node = match (part, node) {
                (Part::Field(name), Self::Below(below)) => below.entry(name.clone()).or_default(),
                (Part::Found, Self::Elements { found, .. }) => found.get_or_insert_default(),
                (Part::Elements(name), Self::Elements { filtered, .. }) => {
                    filtered.entry(name.clone()).or_default()
                }
                _ => return Err(conflict(at)),
            };
        }
        let is_free = matches!(node, Self::Below(below) if below.is_empty());
        if !is_free {
            return Err(conflict(path.parts.len()));
        }
        *node = Self::Leaf(Box::new((operator, path.text.clone())));
        Ok(())
    }

    /// Applies the operators to a document; whether that made a difference.
    pub fn apply(
        &self,
        document: &mut Document,
        beside: Beside<'_>,
    ) -> Result<bool, DocumentError> {
        let id = document.get("_id").cloned();
        let Self::Below(below) = self else { return Ok(false) };
        apply_to_fields(below, document, (beside, &id))
    }

    /// Whether it makes a value where there is none.
    fn creates(&self, context: &UpdateContext) -> bool {
        match self {
            Self::Leaf(of) => of.0.creates(context),
            Self::Below(below) => below.values().any(|node| node.creates(context)),
            Self::Elements { .. } => true,
        }
    }

    /// Whether a value that cannot have the fields that it changes is an error.
    fn needs_fields(&self, context: &UpdateContext) -> bool {
        match self {
            Self::Leaf(of) => of.0.needs_fields(context),
            Self::Below(below) => below.values().any(|node| node.needs_fields(context)),
            Self::Elements { .. } => true,
        }
    }

    /// The error if this element has no such field, and cannot have it.
    fn dead_end(&self, field: &FieldName, element: &str, context: &UpdateContext) -> DocumentError {
        let field = &field.0;
        let text = match self.creates(context) {
            true => format!("Cannot create field '{field}' in element {element}"),
            false => format!("Cannot use the part ({field}) to traverse the element ({element})"),
        };
        DocumentError::new(PATH_NOT_VIABLE, text)
    }

    /// The operators on values that are there.
    fn apply_to_value(
        &self,
        value: &mut Bson,
        (name, beside, id): (&str, Beside<'_>, &Option<Bson>),
    ) -> Result<bool, DocumentError> {
        match (self, value) {
            (Self::Leaf(of), value) => {
                of.0.apply(value, (&of.1, beside, id)).map(|applied| applied == Applied::Changed)
            }
            (Self::Below(below), Bson::Document(document)) => {
                apply_to_fields(below, document, (beside, id))
            }
            (Self::Below(below), Bson::Array(array)) => {
                apply_to_positions(below, array, (beside, id))
            }
            (Self::Below(below), value) => {
                let first = below.iter().find(|(_, node)| node.needs_fields(beside.0));
                let Some((field, node)) = first else { return Ok(false) };
                Err(node.dead_end(field, &format!("{{{name}: {value}}}"), beside.0))
            }
            (Self::Elements { found, filtered }, Bson::Array(array)) => {
                apply_to_elements((found.as_deref(), filtered), array, (beside, id))
            }
            (Self::Elements { .. }, value) => {
                let text =
                    format!("Cannot apply array updates to non-array element {name}: {value}");
                Err(DocumentError::new(BAD_VALUE, text))
            }
        }
    }

    /// The value that the operators make where there is none; `None`: none.
    fn make(
        &self,
        (name, beside, id): (&str, Beside<'_>, &Option<Bson>),
    ) -> Result<Option<Bson>, DocumentError> {
        if !self.creates(beside.0) {
            return Ok(None);
        }
        match self {
            Self::Leaf(of) => of.0.make((&of.1, beside, id)).map(Some),
            Self::Below(below) => {
                let mut document = doc! {};
                apply_to_fields(below, &mut document, (beside, id))?;
                Ok(Some(document.into()))
            }
            Self::Elements { .. } => {
                let text = format!(
                    "The path '{name}' must exist in the document in order to apply array updates."
                );
                Err(DocumentError::new(BAD_VALUE, text))
            }
        }
    }

    /// It removes what is there.
    fn removes(&self) -> bool {
        matches!(self, Self::Leaf(of) if matches!(of.0, Operator::Unset))
    }
}

fn apply_to_fields(
    below: &BTreeMap<FieldName, Node>,
    document: &mut Document,
    (beside, id): (Beside<'_>, &Option<Bson>),
) -> Result<bool, DocumentError> {
    let mut changed = false;
    for (FieldName(name), node) in below {
        if node.removes() {
            changed |= document.remove(name).is_some();
        } else if let Some(value) = document.get_mut(name) {
            changed |= node.apply_to_value(value, (name, beside, id))?;
        } else if let Some(made) = node.make((name, beside, id))? {
            document.insert(name.clone(), made);
            changed = true;
        }
    }
    Ok(changed)
}

fn apply_to_positions(
    below: &BTreeMap<FieldName, Node>,
    array: &mut Vec<Bson>,
    (beside, id): (Beside<'_>, &Option<Bson>),
) -> Result<bool, DocumentError> {
    let mut changed = false;
    for (name, node) in below {
        let Some(position) = name.position() else {
            if !node.needs_fields(beside.0) {
                continue;
            }
            let element = format!("{{{}}}", Bson::Array(array.clone()));
            return Err(node.dead_end(name, &element, beside.0));
        };
        if let Some(value) = array.get_mut(position) {
            // The others stay where they are.
            if node.removes() {
                changed |= !matches!(value, Bson::Null);
                *value = Bson::Null;
            } else {
                changed |= node.apply_to_value(value, (&name.0, beside, id))?;
            }
        } else if let Some(made) = node.make((&name.0, beside, id))? {
            if position - array.len() > MAX_ARRAY_BACKFILL {
                let text =
                    format!("can't backfill more than {MAX_ARRAY_BACKFILL} elements of an array");
                return Err(DocumentError::new(BAD_VALUE, text));
            }
            array.resize(position, Bson::Null);
            array.push(made);
            changed = true;
        }
    }
    Ok(changed)
}

fn apply_to_elements(
    (found, filtered): (Option<&Node>, &BTreeMap<Option<String>, Node>),
    array: &mut [Bson],
    (beside, id): (Beside<'_>, &Option<Bson>),
) -> Result<bool, DocumentError> {
    let (context, filters) = beside;
    let position = match found {
        None => None,
        Some(_) => Some(context.found.filter(|&at| at < array.len()).ok_or_else(|| {
            let text =
                "The positional operator did not find the match needed from the query.".to_owned();
            DocumentError::new(BAD_VALUE, text)
        })?),
    };
    let mut changed = false;
    for (at, value) in array.iter_mut().enumerate() {
        let mut applied = false;
        let by_position = found.filter(|_| position == Some(at));
        let by_filter = filtered.iter().filter_map(|(name, node)| match name {
            None => Some(Ok(node)),
            Some(name) => match matches_value(filters.get(name)?, name, value) {
                Ok(true) => Some(Ok(node)),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            },
        });
        let nodes: Result<Vec<&Node>, _> =
            by_position.map(Ok).into_iter().chain(by_filter).collect();
        for node in nodes? {
            if std::mem::replace(&mut applied, true) {
                let text = format!("Update created a conflict at element {at} of an array");
                return Err(DocumentError::new(CONFLICTING_UPDATE_OPERATORS, text));
            }
            if node.removes() {
                changed |= !matches!(value, Bson::Null);
                *value = Bson::Null;
            } else {
                changed |= node.apply_to_value(value, (&at.to_string(), beside, id))?;
            }
        }
    }
    Ok(changed)
}
