//! An object's bytes as a feature's properties, or as an element's tags.

use serde_json::{Map, Value};
use std::fmt::Write;

/// An object's bytes as properties: a JSON object is they; another text is the
/// property `data`, other bytes are `data_hex`.
pub fn properties(data: &[u8]) -> Map<String, Value> {
    if let Ok(properties) = serde_json::from_slice(data) {
        return properties;
    }
    let (name, text) = match std::str::from_utf8(data) {
        Ok(text) => ("data", text.to_owned()),
        Err(_) => {
            let hex = data.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            ("data_hex", hex)
        }
    };
    Map::from_iter([(name.to_owned(), text.into())])
}
