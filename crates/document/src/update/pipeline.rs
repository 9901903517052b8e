//! Updates by a pipeline of stages that change one document.

use crate::error::DocumentError;
use crate::pipeline::DocumentStages;
use crate::variables::Variables;
use bson::raw::RawArray;
use bson::{Document, RawDocumentBuf};

/// The stages.
#[derive(Clone, Debug)]
pub(super) struct PipelineUpdate(DocumentStages);

impl PipelineUpdate {
    pub(super) fn parse(
        stages: &RawArray,
        variables: &Variables,
    ) -> Result<PipelineUpdate, DocumentError> {
        DocumentStages::parse(stages, variables).map(PipelineUpdate)
    }

    /// The new document. It keeps the `_id`, in front, if the stages drop it.
    pub(super) fn apply(&self, document: &Document) -> Result<Document, DocumentError> {
        let raw = RawDocumentBuf::try_from(document).map_err(DocumentError::malformed)?;
        let made = self.0.apply(raw)?;
        let made = Document::try_from(made).map_err(DocumentError::malformed)?;
        if made.contains_key("_id") {
            return Ok(made);
        }
        let Some(id) = document.get("_id") else { return Ok(made) };
        let mut with_id = Document::new();
        with_id.insert("_id", id.clone());
        with_id.extend(made);
        Ok(with_id)
    }
}
