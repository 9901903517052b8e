//! The keys that a document has in an index: one, or one for each element of an array that lies at one of the
//! paths.
//!
//! Invariant: what a condition of a filter on a path finds, but arrays as wholes, is the value of that path in one
//! of the document's keys; a missing field is null there ([`crate::Bounds`]). Fields whose paths lead through the
//! same array take their values from the same element. Two arrays beside each other are refused, as in MongoDB:
//! the keys would be all pairs.

use crate::error::DocumentError;
use crate::geo::GeoKind;
use crate::key::{Direction, encode};
use crate::path::Path;
use crate::raw::{elements, fields};
use bson::Bson;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use remora_layout::hash::digest;
use remora_layout::limits::{MAX_DOCUMENT_KEYS, MAX_DOCUMENT_KEYS_BYTES};
use remora_layout::rect::Rect;

const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
const AMBIGUOUS_NAME: i32 = 16746;
const ARRAY_IN_HASHED: i32 = 16766;
const TOO_MANY_KEYS: i32 = 17261;

/// One field of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexField {
    path: Path,
    names: Vec<String>,
    direction: Direction,
    is_hashed: bool,
    geo: Option<GeoKind>,
}

impl IndexField {
    /// The values at a path, in this direction.
    #[must_use]
    pub fn new(path: Path, direction: Direction) -> Self {
        let names = path.as_str().split('.').map(str::to_owned).collect();
        Self { path, names, direction, is_hashed: false, geo: None }
    }

    /// The hashes of the values at a path.
    #[must_use]
    pub fn hashed(path: Path) -> Self {
        Self { is_hashed: true, ..Self::new(path, Direction::Ascending) }
    }

    /// The geometries at a path. Such a field has no keys here: see [`GeoKind::rect`].
    #[must_use]
    pub fn geo(path: Path, kind: GeoKind) -> Self {
        Self { geo: Some(kind), ..Self::new(path, Direction::Ascending) }
    }

    /// The kind of its geometries, if it has those.
    #[must_use]
    pub const fn geo_kind(&self) -> Option<GeoKind> {
        self.geo
    }

    /// The rectangle around its geometries in a document; none without any, or if it has none.
    ///
    /// # Errors
    /// As of [`GeoKind::rect`].
    pub fn rect(&self, document: &RawDocument) -> Result<Option<Rect>, DocumentError> {
        self.geo.map_or(Ok(None), |kind| kind.rect(&self.path, document))
    }

    /// The field of a key pattern: a number above 0 for ascending values, one below for descending ones,
    /// `"hashed"` for their hashes. `None` if it is none of these.
    #[must_use]
    pub fn parse(path: &str, value: RawBsonRef<'_>) -> Option<Self> {
        let path = Path::parse(path).ok()?;
        let number = match value {
            RawBsonRef::String("hashed") => return Some(Self::hashed(path)),
            RawBsonRef::Int32(of) => f64::from(of),
            RawBsonRef::Int64(of) => of as f64,
            RawBsonRef::Double(of) => of,
            _ => return None,
        };
        match number {
            number if number > 0.0 => Some(Self::new(path, Direction::Ascending)),
            number if number < 0.0 => Some(Self::new(path, Direction::Descending)),
            _ => None,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Its direction.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether it has hashes.
    #[must_use]
    pub const fn is_hashed(&self) -> bool {
        self.is_hashed
    }

    fn encode(&self, value: RawBsonRef<'_>, key: &mut Vec<u8>) -> Result<(), DocumentError> {
        if !self.is_hashed {
            return encode(value, self.direction, key).map_err(DocumentError::malformed);
        }
        let mut plain = Vec::new();
        encode(value, Direction::Ascending, &mut plain).map_err(DocumentError::malformed)?;
        encode_hash(&plain, key);
        Ok(())
    }
}

/// Appends what a hashed index has of a value that is encoded like this.
pub fn encode_hash(encoded: &[u8], key: &mut Vec<u8>) {
    let hash = RawBsonRef::Int64(digest(encoded) as i64);
    encode(hash, Direction::Ascending, key).expect("a number has no levels");
}

/// The keys of one document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentKeys {
    /// In ascending order, each once.
    pub keys: Vec<Vec<u8>>,
    /// The fields, by their bits, that have taken elements of an array.
    pub multikey: u32,
}

/// The keys of a document in an index of these fields. A sparse index has no keys without any value.
///
/// # Errors
/// As MongoDB: arrays beside each other, an array in a field with hashes, too many keys.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::{Direction, IndexField, Path, document_keys};
///
/// let fields = [IndexField::new(Path::parse("a.b")?, Direction::Ascending)];
/// let document = rawdoc! { "a": [{ "b": 1 }, { "b": 2 }, { "b": 1 }] };
/// let keys = document_keys(&fields, &document, false)?;
/// assert_eq!((keys.keys.len(), keys.multikey), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn document_keys(
    of: &[IndexField],
    document: &RawDocument,
    is_sparse: bool,
) -> Result<DocumentKeys, DocumentError> {
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let multikey = each_key(of, document, &mut |values| {
        if is_sparse && values.iter().all(Option::is_none) {
            return Ok(());
        }
        let key = key_of(of, values)?;
        bytes += key.len();
        keys.push(key);
        if keys.len() > MAX_DOCUMENT_KEYS || bytes > MAX_DOCUMENT_KEYS_BYTES {
            let text = format!(
                "Too many keys for one document in one index: the limit is {MAX_DOCUMENT_KEYS} keys, and {MAX_DOCUMENT_KEYS_BYTES} bytes"
            );
            return Err(DocumentError::new(TOO_MANY_KEYS, text));
        }
        Ok(())
    })?;
    keys.sort_unstable();
    keys.dedup();
    Ok(DocumentKeys { keys, multikey })
}

/// The values of the key of a document that begins with these bytes; a missing field is null.
#[must_use]
pub fn key_values(of: &[IndexField], document: &RawDocument, begins: &[u8]) -> Option<Vec<Bson>> {
    let mut found = None;
    let visited = each_key(of, document, &mut |values| {
        if found.is_none() && key_of(of, values)?.starts_with(begins) {
            let own = |value: &Option<RawBsonRef<'_>>| {
                value.and_then(|value| Bson::try_from(value).ok()).unwrap_or(Bson::Null)
            };
            found = Some(values.iter().map(own).collect());
        }
        Ok(())
    });
    visited.ok().and(found)
}

fn key_of(of: &[IndexField], values: &[Option<RawBsonRef<'_>>]) -> Result<Vec<u8>, DocumentError> {
    let mut key = Vec::new();
    for (field, value) in of.iter().zip(values) {
        field.encode(value.unwrap_or(RawBsonRef::Null), &mut key)?;
    }
    Ok(key)
}

/// Where the path of a field has come to.
#[derive(Clone, Copy)]
enum At<'d, 'f> {
    /// At its end, or nowhere.
    Value(Option<RawBsonRef<'d>>),
    /// At an array, in whose elements the rest of the path goes on.
    Array(&'d RawArray, &'f [String]),
}

/// Takes the values of a key; an error ends the visit.
type Each<'e, 'd> = dyn FnMut(&[Option<RawBsonRef<'d>>]) -> Result<(), DocumentError> + 'e;

/// Hands over the values of each key. Gives the fields that have taken elements of an array.
fn each_key<'d>(
    of: &[IndexField],
    document: &'d RawDocument,
    each: &mut Each<'_, 'd>,
) -> Result<u32, DocumentError> {
    let at: Result<Vec<At<'d, '_>>, _> =
        of.iter().map(|field| in_document(document, &field.names)).collect();
    let mut multikey = 0;
    expand(of, &at?, &mut multikey, each)?;
    Ok(multikey)
}

/// Hands over the keys of fields that have come so far. Each call is further down in the document, whose depth
/// bounds the recursion.
fn expand<'d>(
    of: &[IndexField],
    at: &[At<'d, '_>],
    multikey: &mut u32,
    each: &mut Each<'_, 'd>,
) -> Result<(), DocumentError> {
    let mut first: Option<(usize, &'d RawArray)> = None;
    for (index, field) in at.iter().enumerate() {
        let At::Array(array, _) = field else { continue };
        if of[index].is_hashed {
            let path = of[index].path();
            let text = format!(
                "Error: hashed indexes do not currently support array values. Found array at path: {path}"
            );
            return Err(DocumentError::new(ARRAY_IN_HASHED, text));
        }
        *multikey |= 1 << index;
        match first {
            Some((other, of_other)) if !std::ptr::eq(of_other.as_bytes(), array.as_bytes()) => {
                let name = |index: usize| of[index].names[0].as_str();
                let text =
                    format!("cannot index parallel arrays [{}] [{}]", name(index), name(other));
                return Err(DocumentError::new(CANNOT_INDEX_PARALLEL_ARRAYS, text));
            }
            Some(_) => {}
            None => first = Some((index, array)),
        }
    }
    let Some((_, array)) = first else {
        let values: Vec<Option<RawBsonRef<'d>>> = at
            .iter()
            .map(|field| match field {
                At::Value(value) => *value,
                At::Array(..) => None,
            })
            .collect();
        return each(&values);
    };
    if array.is_empty() {
        let next: Vec<At<'d, '_>> = at
            .iter()
            .map(|field| match field {
                At::Array(_, []) => At::Value(Some(RawBsonRef::Undefined)),
                At::Array(..) => At::Value(None),
                of_value => *of_value,
            })
            .collect();
        return expand(of, &next, multikey, each);
    }
    for element in elements(array) {
        let next: Result<Vec<At<'d, '_>>, _> = at
            .iter()
            .map(|field| match *field {
                At::Array(_, rest) => in_element(element, rest),
                of_value => Ok(of_value),
            })
            .collect();
        expand(of, &next?, multikey, each)?;
    }
    Ok(())
}

/// Follows a path through the element of an array.
fn in_element<'d, 'f>(
    element: RawBsonRef<'d>,
    rest: &'f [String],
) -> Result<At<'d, 'f>, DocumentError> {
    match element {
        _ if rest.is_empty() => Ok(At::Value(Some(element))),
        RawBsonRef::Document(document) => in_document(document, rest),
        _ => Ok(At::Value(None)),
    }
}

/// Follows a path in a document up to its end, or up to an array. The path bounds the recursion.
fn in_document<'d, 'f>(
    document: &'d RawDocument,
    names: &'f [String],
) -> Result<At<'d, 'f>, DocumentError> {
    let Some((name, rest)) = names.split_first() else { return Ok(At::Value(None)) };
    match fields(document).find(|(of, _)| of == name) {
        Some((_, value)) => in_value(value, rest),
        None => Ok(At::Value(None)),
    }
}

fn in_value<'d, 'f>(
    value: RawBsonRef<'d>,
    rest: &'f [String],
) -> Result<At<'d, 'f>, DocumentError> {
    match value {
        RawBsonRef::Array(array) => {
            let position = rest.first().and_then(|name| position(name));
            let Some(element) = position.and_then(|at| elements(array).nth(at)) else {
                return Ok(At::Array(array, rest));
            };
            let is_field = |element: RawBsonRef<'_>| match element {
                RawBsonRef::Document(inner) => fields(inner).any(|(name, _)| name == rest[0]),
                _ => false,
            };
            if elements(array).any(is_field) {
                let text = format!(
                    "Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), field: '{}'",
                    rest[0]
                );
                return Err(DocumentError::new(AMBIGUOUS_NAME, text));
            }
            in_value(element, &rest[1..])
        }
        _ if rest.is_empty() => Ok(At::Value(Some(value))),
        RawBsonRef::Document(document) => in_document(document, rest),
        _ => Ok(At::Value(None)),
    }
}

/// The position of an array that a name is.
fn position(name: &str) -> Option<usize> {
    let is_number =
        name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    is_number.then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, rawdoc};

    fn keys(paths: &[&str], document: &RawDocumentBuf) -> Result<(Vec<Vec<Bson>>, u32), i32> {
        let field = |path: &&str| IndexField::new(Path::parse(path).unwrap(), Direction::Ascending);
        let of: Vec<IndexField> = paths.iter().map(field).collect();
        let found = document_keys(&of, document, false).map_err(|error| error.code())?;
        let values = found.keys.iter().map(|key| key_values(&of, document, key).unwrap());
        Ok((values.collect(), found.multikey))
    }

    fn list(values: &[i32]) -> Vec<Vec<Bson>> {
        values.iter().map(|value| vec![Bson::Int32(*value)]).collect()
    }

    #[test]
    fn an_array_gives_a_key_for_each_element() {
        assert_eq!(keys(&["a"], &rawdoc! { "a": [3, 1, 3] }), Ok((list(&[1, 3]), 1)));
        assert_eq!(keys(&["a"], &rawdoc! { "a": 3 }), Ok((list(&[3]), 0)));
        assert_eq!(keys(&["a"], &rawdoc! { "b": 3 }), Ok((vec![vec![Bson::Null]], 0)));
        assert_eq!(keys(&["a"], &rawdoc! { "a": [] }), Ok((vec![vec![Bson::Undefined]], 1)));
        assert_eq!(keys(&["a.b"], &rawdoc! { "a": [] }), Ok((vec![vec![Bson::Null]], 1)));
        let nested = keys(&["a"], &rawdoc! { "a": [[1, 2]] });
        assert_eq!(nested, Ok((vec![vec![bson::bson!([1, 2])]], 1)));
    }

    #[test]
    fn fields_of_one_array_come_from_the_same_element() {
        let document = rawdoc! { "a": [{ "b": 1, "c": 4 }, { "b": 2 }], "d": 7 };
        let found = keys(&["a.b", "d", "a.c"], &document).unwrap();
        let row = |b: i32, c: Bson| vec![Bson::Int32(b), Bson::Int32(7), c];
        assert_eq!(found, (vec![row(1, Bson::Int32(4)), row(2, Bson::Null)], 0b101));
    }

    #[test]
    fn two_arrays_beside_each_other_are_refused() {
        assert_eq!(keys(&["a", "b"], &rawdoc! { "a": [1], "b": [2] }), Err(171));
        assert_eq!(keys(&["a", "b"], &rawdoc! { "a": [], "b": [] }), Err(171));
        assert_eq!(keys(&["a.b", "a.c"], &rawdoc! { "a": [{ "b": [1], "c": [2] }] }), Err(171));
        assert!(keys(&["a.b", "a.c"], &rawdoc! { "a": [{ "b": [1] }, { "c": [2] }] }).is_ok());
    }

    #[test]
    fn a_number_leads_to_a_position() {
        assert_eq!(keys(&["a.1"], &rawdoc! { "a": [5, 6] }), Ok((list(&[6]), 0)));
        assert_eq!(keys(&["a.1"], &rawdoc! { "a": [5, [6, 7]] }), Ok((list(&[6, 7]), 1)));
        assert_eq!(keys(&["a.5"], &rawdoc! { "a": [1, { "5": 2 }] }).unwrap().0.len(), 2);
        assert_eq!(keys(&["a.0"], &rawdoc! { "a": [{ "0": 2 }] }), Err(16746));
    }

    #[test]
    fn hashes_take_no_arrays_and_sparse_keys_need_a_value() {
        let of = [IndexField::hashed(Path::parse("a").unwrap())];
        let code = |document: &RawDocumentBuf| {
            document_keys(&of, document, true).map(|of| of.keys.len()).map_err(|of| of.code())
        };
        assert_eq!(code(&rawdoc! { "a": [1] }), Err(16766));
        assert_eq!(code(&rawdoc! { "a": null }), Ok(1));
        assert_eq!(code(&rawdoc! {}), Ok(0));
    }

    #[test]
    fn keys_have_a_limit() {
        let most = i32::try_from(MAX_DOCUMENT_KEYS).unwrap();
        let all = |count: i32| rawdoc! { "a": bson::RawArrayBuf::from_iter(0..count) };
        assert_eq!(keys(&["a"], &all(most)).unwrap().0.len(), MAX_DOCUMENT_KEYS);
        assert_eq!(keys(&["a"], &all(most + 1)), Err(17261));
    }
}
