//! Names of types, for errors.

use crate::filter::name_of_type;
use bson::Bson;

/// MongoDB's name of a value's type.
pub(crate) fn type_name(value: &Bson) -> &'static str {
    name_of_type(value.element_type())
}
