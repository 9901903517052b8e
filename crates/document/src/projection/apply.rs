//! Applying a tree of fields to a document.

use super::shape::{Branch, Child, Mode, Shape};
use crate::error::DocumentError;
use crate::raw::{append, elements};
use crate::value::fits;
use crate::variables::Env;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use remora_layout::limits::MAX_DOCUMENT_DEPTH;

impl Shape {
    pub(crate) fn apply(
        &self,
        document: &RawDocument,
        env: &Env<'_>,
    ) -> Result<RawDocumentBuf, DocumentError> {
        self::apply(self, document, env)
    }
}

type Made<T> = Result<T, DocumentError>;

struct Application<'a> {
    mode: Mode,
    /// The whole document, which expressions see.
    root: &'a RawDocument,
    env: &'a Env<'a>,
}

pub(super) fn apply(shape: &Shape, document: &RawDocument, env: &Env<'_>) -> Made<RawDocumentBuf> {
    Application { mode: shape.mode, root: document, env }.document(&shape.root, document, 1)
}

impl Application<'_> {
    fn document(
        &self,
        branch: &Branch,
        document: &RawDocument,
        depth: usize,
    ) -> Made<RawDocumentBuf> {
        let mut made = RawDocumentBuf::new();
        let mut done = vec![false; if branch.computes { branch.children.len() } else { 0 }];
        for element in document.iter_elements().map_while(Result::ok) {
            let Ok(value) = element.value() else { break };
            let name = element.key();
            let Some(at) = branch.position(name.as_str()) else {
                if self.mode == Mode::Keep {
                    made.append(name, value);
                }
                continue;
            };
            match &branch.children[at].1 {
                Child::Include => made.append(name, value),
                Child::Exclude => {}
                // A computed field of an inclusion stands behind all others.
                Child::Compute(_) if self.mode == Mode::Drop => {}
                Child::Compute(expression) => {
                    if !std::mem::replace(&mut done[at], true)
                        && let Some(value) = expression.evaluate(self.root, self.env)?.get()
                    {
                        fits(made.as_bytes().len() + crate::value::byte_length(value))?;
                        made.append(name, value);
                    }
                }
                Child::Below(below) => {
                    if let Some(done) = done.get_mut(at) {
                        *done = true;
                    }
                    self.below(below, value, depth, &mut |value| made.append(name, value))?;
                }
            }
        }
        self.new_fields(branch, &done, &mut made, depth)?;
        Ok(made)
    }

    /// Appends computed fields that the document did not have.
    fn new_fields(
        &self,
        branch: &Branch,
        done: &[bool],
        made: &mut RawDocumentBuf,
        depth: usize,
    ) -> Made<()> {
        for ((name, child), _) in branch.children.iter().zip(done).filter(|(_, done)| !**done) {
            match child {
                Child::Compute(expression) => {
                    if let Some(value) = expression.evaluate(self.root, self.env)?.get() {
                        fits(made.as_bytes().len() + crate::value::byte_length(value))?;
                        append(made, name, value)?;
                    }
                }
                Child::Below(below) if below.computes && depth < MAX_DOCUMENT_DEPTH => {
                    let inner = self.document(below, &RawDocumentBuf::new(), depth + 1)?;
                    append(made, name, RawBsonRef::Document(&inner))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Projects a value with a branch, and passes on what is left of it.
    fn below(
        &self,
        branch: &Branch,
        value: RawBsonRef<'_>,
        depth: usize,
        see: &mut dyn FnMut(RawBsonRef<'_>),
    ) -> Made<()> {
        if depth >= MAX_DOCUMENT_DEPTH {
            return Ok(());
        }
        match value {
            RawBsonRef::Document(inner) => {
                let made = self.document(branch, inner, depth + 1)?;
                see(RawBsonRef::Document(&made));
            }
            RawBsonRef::Array(inner) => {
                let made = self.array(branch, inner, depth + 1)?;
                see(RawBsonRef::Array(&made));
            }
            _ if branch.computes => {
                let made = self.document(branch, &RawDocumentBuf::new(), depth + 1)?;
                see(RawBsonRef::Document(&made));
            }
            _ if self.mode == Mode::Keep => see(value),
            _ => {}
        }
        Ok(())
    }

    fn array(&self, branch: &Branch, array: &RawArray, depth: usize) -> Made<RawArrayBuf> {
        let (mut made, mut bytes) = (RawArrayBuf::new(), 0);
        for value in elements(array) {
            self.env.spend(1)?;
            self.below(branch, value, depth, &mut |value| {
                bytes += crate::value::byte_length(value);
                made.push(value);
            })?;
            fits(bytes)?;
        }
        Ok(made)
    }
}
