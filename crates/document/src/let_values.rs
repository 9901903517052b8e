//! The variables of a command's `let`, whose values are expressions.

use crate::error::DocumentError;
use crate::expression::Expression;
use crate::raw::fields;
use crate::variables::{Variables, check_name};
use bson::raw::RawDocument;

impl Variables {
    /// The time in Unix ms, a seed for `$rand` and `$sample`, and the command's document `let`, whose values
    /// are expressions.
    ///
    /// # Errors
    /// As MongoDB: a wrong name, or a value that is no constant expression.
    pub fn parse(
        now_ms: i64,
        seed: u64,
        values: Option<&RawDocument>,
    ) -> Result<Variables, DocumentError> {
        let mut variables = Variables::new(now_ms, seed);
        let Some(values) = values else { return Ok(variables) };
        for (name, value) in fields(values) {
            check_name(name)?;
            let value = Expression::parse(value, &variables)?;
            if value.reads_document() {
                let text = "Command let Expression does not evaluate to a constant";
                return Err(DocumentError::new(4_890_500, text));
            }
            let empty = bson::RawDocumentBuf::new();
            let (value, seed) = {
                let env = variables.env();
                (value.evaluate(&empty, &env)?.into_raw(), env.seed())
            };
            variables.set(name, value);
            variables.set_seed(seed);
        }
        Ok(variables)
    }

    /// These variables, and more: expressions on a document, as `let` of `$merge` has them.
    ///
    /// # Errors
    /// As MongoDB: a wrong name, or an expression that fails.
    pub fn with(
        &self,
        values: &RawDocument,
        document: &RawDocument,
    ) -> Result<Variables, DocumentError> {
        let mut made = self.clone();
        let env = self.env();
        for (name, value) in fields(values) {
            check_name(name)?;
            let value = Expression::parse(value, self)?;
            made.set(name, value.evaluate(document, &env)?.into_raw());
        }
        Ok(made)
    }
}
