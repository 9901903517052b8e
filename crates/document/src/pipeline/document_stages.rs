//! Stages that make one document of each: what an update by a pipeline may have.

use super::parse::document_stages;
use super::stage::Pipeline;
use super::step::Step;
use crate::error::DocumentError;
use crate::variables::Variables;
use bson::RawDocumentBuf;
use bson::raw::RawArray;

/// Stages that change one document.
#[derive(Debug, Clone)]
pub(crate) struct DocumentStages(Pipeline);

impl DocumentStages {
    pub(crate) fn parse(
        stages: &RawArray,
        variables: &Variables,
    ) -> Result<DocumentStages, DocumentError> {
        document_stages(stages, variables).map(DocumentStages)
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
