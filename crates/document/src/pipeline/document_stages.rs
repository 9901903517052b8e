//! Stages that make one document of each: what an update by a pipeline may have.

use super::parse::{Place, pipeline};
use super::{Pipeline, Step};
use crate::error::{DocumentError, FAILED_TO_PARSE, TYPE_MISMATCH};
use crate::raw::{elements, fields};
use crate::variables::Variables;
use bson::RawDocumentBuf;
use bson::raw::{RawArray, RawBsonRef};

/// Stages that change one document.
#[derive(Debug, Clone)]
pub(crate) struct DocumentStages(Pipeline);

/// The stages that make one document of each.
const ALLOWED: [&str; 6] =
    ["$addFields", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset"];

impl DocumentStages {
    pub(crate) fn parse(
        stages: &RawArray,
        variables: &Variables,
    ) -> Result<DocumentStages, DocumentError> {
        for stage in elements(stages) {
            let RawBsonRef::Document(stage) = stage else {
                let text = "Each element of the 'pipeline' array must be an object";
                return Err(DocumentError::new(TYPE_MISMATCH, text));
            };
            if let Some((name, _)) = fields(stage).next()
                && name.starts_with('$')
                && !ALLOWED.contains(&name)
            {
                // What is no stage at all has an error of its own.
                pipeline(stages, variables, Place::Top)?;
                let text = format!("{name} is not allowed to be used within an update");
                return Err(DocumentError::new(FAILED_TO_PARSE, text));
            }
        }
        pipeline(stages, variables, Place::Top).map(DocumentStages)
    }

    pub(crate) fn apply(&self, document: RawDocumentBuf) -> Result<RawDocumentBuf, DocumentError> {
        let mut pipeline = self.0.clone();
        pipeline.push(document.clone());
        pipeline.end();
        loop {
            match pipeline.step()? {
                Step::Gives(made) => return Ok(made),
                Step::Continues => {}
                // These stages give one document for each, and ask for nothing.
                _ => return Ok(document),
            }
        }
    }
}
