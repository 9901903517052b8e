//! `$lookup`: documents of another collection, in an array.

use super::source::{Query, condition};
use super::step::{Inner, ParseInner, Poll, Step, check, feed, one_of, text};
use crate::error::{DocumentError, FAILED_TO_PARSE};
use crate::expression::{Expression, parse_path, path_value};
use crate::raw::{elements, fields};
use crate::set_path::set_path;
use crate::variables::{Env, Variables, check_name};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::Arc;

/// The stage, and the document that it is at.
#[derive(Debug, Clone)]
pub(super) struct Lookup<P> {
    spec: Arc<Spec<P>>,
    current: Option<Current<P>>,
}

#[derive(Debug)]
struct Spec<P> {
    from: String,
    /// Paths of the document and of the other collection's documents, whose values must be equal.
    fields: Option<(Vec<String>, String)>,
    /// Variables of the pipeline.
    variables: Vec<(String, Expression)>,
    /// What is done with the documents that are found. It has not begun.
    template: P,
    into: Vec<String>,
}

/// A document whose search is not done.
#[derive(Debug, Clone)]
struct Current<P> {
    document: RawDocumentBuf,
    inner: P,
    found: RawArrayBuf,
    bytes: usize,
}

fn fail<T>(code: i32, text: impl Into<String>) -> Result<T, DocumentError> {
    Err(DocumentError::new(code, text))
}

impl<P: Inner> Lookup<P> {
    pub(super) fn parse(
        argument: RawBsonRef<'_>,
        variables: &Variables,
        pipeline: ParseInner<'_, P>,
    ) -> Result<Self, DocumentError> {
        let RawBsonRef::Document(argument) = argument else {
            return fail(FAILED_TO_PARSE, "the $lookup specification must be an Object");
        };
        let (mut from, mut into, mut local, mut foreign) = (None, None, None, None);
        let (mut values, mut stages) = (None, None);
        for (name, value) in fields(argument) {
            match name {
                "from" => from = Some(text("$lookup", name, value)?),
                "as" => into = Some(text("$lookup", name, value)?),
                "localField" => local = Some(text("$lookup", name, value)?),
                "foreignField" => foreign = Some(text("$lookup", name, value)?),
                "let" => match value {
                    RawBsonRef::Document(value) => values = Some(value),
                    _ => {
                        return fail(FAILED_TO_PARSE, "$lookup argument 'let' must be an object");
                    }
                },
                "pipeline" => match value {
                    RawBsonRef::Array(value) => stages = Some(value),
                    _ => return fail(14, "'pipeline' option must be specified as an array"),
                },
                _ => return fail(FAILED_TO_PARSE, format!("unknown argument to $lookup: {name}")),
            }
        }
        let (Some(from), Some(into)) = (from, into) else {
            let missing = if into.is_none() { "as" } else { "from" };
            return fail(FAILED_TO_PARSE, format!("must specify '{missing}' field for a $lookup"));
        };
        let paths = match (local, foreign) {
            (Some(local), Some(foreign)) => {
                parse_path(foreign)?;
                Some((parse_path(local)?, foreign.to_owned()))
            }
            (None, None) if stages.is_some() => None,
            _ => {
                return fail(
                    FAILED_TO_PARSE,
                    "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
                );
            }
        };
        if values.is_some() && stages.is_none() {
            return fail(
                FAILED_TO_PARSE,
                "$lookup with a 'let' argument must also specify 'pipeline'",
            );
        }
        let (mut inner, mut expressions) = (variables.clone(), Vec::new());
        for (name, value) in values.into_iter().flat_map(fields) {
            check_name(name)?;
            expressions.push((name.to_owned(), Expression::parse(value, variables)?));
            inner.set(name, None);
        }
        let none = RawArrayBuf::new();
        let template = pipeline(stages.unwrap_or(&none), &inner)?;
        let spec = Spec {
            from: from.to_owned(),
            fields: paths,
            variables: expressions,
            template,
            into: parse_path(into)?,
        };
        Ok(Self { spec: Arc::new(spec), current: None })
    }

    /// Bytes of the documents that it keeps, about.
    pub(super) fn kept_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| {
            current.document.as_bytes().len() + current.bytes + current.inner.kept_bytes()
        })
    }

    pub(super) fn collections<'n>(&'n self, all: &mut Vec<&'n str>) {
        all.push(&self.spec.from);
        all.extend(self.spec.template.collections());
    }

    pub(super) fn answer(&mut self, documents: Vec<RawDocumentBuf>, is_last: bool) {
        if let Some(current) = &mut self.current {
            feed(&mut current.inner, documents, is_last);
        }
    }

    pub(super) fn poll(
        &mut self,
        input: Option<RawDocumentBuf>,
        has_ended: bool,
        env: &Env<'_>,
    ) -> Result<Poll, DocumentError> {
        if let Some(document) = input {
            return self.begin(document, env);
        }
        let Some(current) = &mut self.current else {
            return Ok(if has_ended { Poll::Done } else { Poll::Wants });
        };
        match current.inner.step()? {
            Step::Gives(document) => {
                current.bytes += document.as_bytes().len() + 8;
                if let Err(error) = crate::value::fits(current.bytes) {
                    let text = format!(
                        "Total size of documents in {} matching pipeline's $lookup stage is too large: {}",
                        self.spec.from,
                        error.message()
                    );
                    return fail(4568, text);
                }
                current.found.push(&document);
                Ok(Poll::Moved)
            }
            Step::Asks(query) => Ok(Poll::Asks(query)),
            Step::Wants | Step::Awaits => Ok(Poll::Awaits),
            Step::Continues => Ok(Poll::Moved),
            Step::Done => {
                let Some(current) = self.current.take() else { return Ok(Poll::Moved) };
                let found = Some(RawBsonRef::Array(&current.found));
                let made = set_path(&current.document, &self.spec.into, found)?;
                check(&made)?;
                Ok(Poll::Ready(made))
            }
        }
    }

    /// Begins with a document: asks for what belongs to it.
    fn begin(&mut self, document: RawDocumentBuf, env: &Env<'_>) -> Result<Poll, DocumentError> {
        let spec = &self.spec;
        let mut variables = env.variables.clone();
        for (name, expression) in &spec.variables {
            let value = expression.evaluate(&document, env)?.into_raw();
            variables.set(name, value);
        }
        let inner = spec.template.with_variables(variables);
        let condition = match &spec.fields {
            Some((local, foreign)) => Some(equality(&document, local, foreign, env)?),
            None => None,
        };
        let query = Query::of(&spec.from, condition.as_deref(), inner.source())?;
        let reads = inner.source().reads_collection;
        self.current = Some(Current { document, inner, found: RawArrayBuf::new(), bytes: 0 });
        Ok(if reads { Poll::Asks(query) } else { Poll::Moved })
    }
}

/// The filter of the documents whose `foreign` field equals the `local` one, or an element of it.
fn equality(
    document: &RawDocument,
    local: &[String],
    foreign: &str,
    env: &Env<'_>,
) -> Result<RawDocumentBuf, DocumentError> {
    let value = path_value(RawBsonRef::Document(document), local, env)?;
    match value.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
            condition(foreign, "$eq", RawBsonRef::Null)
        }
        Some(RawBsonRef::Array(array)) => one_of(foreign, elements(array)),
        Some(value) => condition(foreign, "$eq", value),
    }
}
