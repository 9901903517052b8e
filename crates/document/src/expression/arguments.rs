//! The evaluated arguments that an operator gets.

use crate::value::Value;
use crate::variables::Env;

/// Evaluated arguments.
pub(super) struct Arguments<'a, 's> {
    /// The operator's name.
    pub(super) name: &'static str,
    pub(super) values: Vec<Value<'a>>,
    pub(super) env: &'s Env<'s>,
}

impl<'a> Arguments<'a, '_> {
    /// Takes an argument, which is missing then.
    pub(super) fn take(&mut self, at: usize) -> Value<'a> {
        self.values
            .get_mut(at)
            .map_or(Value::Missing, |value| std::mem::replace(value, Value::Missing))
    }

    /// An argument; missing if there are not so many.
    pub(super) fn get(&self, at: usize) -> &Value<'a> {
        self.values.get(at).unwrap_or(&Value::Missing)
    }
}
