//! The names of databases and collections, and the key that holds a collection.

use crate::DocumentError;
use crate::error::INVALID_NAMESPACE;

/// Bytes of a namespace, as in MongoDB.
const MAX_NAMESPACE_BYTES: usize = 255;

/// The key of a collection: its namespace, `database.collection`.
///
/// # Errors
/// A name is not allowed.
///
/// ```
/// use remora_document::collection_key;
///
/// assert_eq!(collection_key("shop", "items")?, b"shop.items");
/// assert_eq!(collection_key("shop", "").unwrap_err().code(), 73);
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
pub fn collection_key(database: &str, collection: &str) -> Result<Vec<u8>, DocumentError> {
    let refuse = |text: String| Err(DocumentError::new(INVALID_NAMESPACE, text));
    check_database(database)?;
    if collection.is_empty() || collection.starts_with('.') || collection.ends_with('.') {
        return refuse(format!("Invalid namespace specified '{database}.{collection}'"));
    }
    if collection.contains(['$', '\0']) {
        return refuse(format!("Invalid collection name: {collection}"));
    }
    if database.len() + 1 + collection.len() > MAX_NAMESPACE_BYTES {
        return refuse(format!("a namespace has {MAX_NAMESPACE_BYTES} bytes at most"));
    }
    Ok(format!("{database}.{collection}").into_bytes())
}

/// Whether a database may have this name.
///
/// # Errors
/// It may not.
pub fn check_database(name: &str) -> Result<(), DocumentError> {
    let is_sound = !name.is_empty()
        && name.len() < 64
        && !name.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    match is_sound {
        true => Ok(()),
        false => {
            let text = format!("Invalid database name: '{name}'");
            Err(DocumentError::new(INVALID_NAMESPACE, text))
        }
    }
}
