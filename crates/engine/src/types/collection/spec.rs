//! The description of an index, parsed, and whether it can be beside another one.

use super::failure::{Failure, code, text_of_document};
use super::places::geo_field;
use super::settings::{bytes_of, is_simple, malformed};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};
use remora_document::{Direction, Filter, GeoKind, IndexField, Path};
use remora_layout::limits::{MAX_INDEX_FIELDS, MAX_INDEX_NAME_BYTES, MAX_INDEX_SPEC_BYTES};

/// What an index has keys of.
pub(super) struct Spec {
    pub name: String,
    /// As it is told: with `v`, `key` and `name` in front.
    pub document: Document,
    pub key: Document,
    pub fields: Vec<IndexField>,
    pub is_unique: bool,
    pub is_sparse: bool,
    /// Searches do not use it.
    pub is_hidden: bool,
    /// It has the documents that match this.
    pub partial: Option<Filter>,
    /// Its documents expire so long after the time in its field.
    pub expires_after_s: Option<i64>,
}

/// Options of indexes of geometries. Those of others have none of them, as in MongoDB, and they are left out.
const GEO_OPTIONS: &[&str] = &["min", "max", "bits", "2dsphereIndexVersion"];

/// Seconds after which documents expire, at most, as in MongoDB.
const MAX_EXPIRY_S: i64 = i32::MAX as i64;

fn cannot(text: impl Into<String>) -> Failure {
    Failure::new(code::CANNOT_CREATE_INDEX, text)
}

/// A number that is not zero counts as true, as in MongoDB.
fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(of) => of,
        value => whole(value).is_some_and(|number| number != 0),
    }
}

/// The integer that a number is, without what is behind its point.
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(of) => Some(of.into()),
        RawBsonRef::Int64(of) => Some(of),
        RawBsonRef::Double(of) if !of.is_nan() => Some(of as i64),
        _ => None,
    }
}

impl Spec {
    /// # Errors
    /// As MongoDB; and what is not there is refused.
    pub fn parse(spec: &RawDocument) -> Result<Self, Failure> {
        let (mut key, mut name, mut rest) = (None, None, Document::new());
        let mut parsed = Self {
            name: String::new(),
            document: Document::new(),
            key: Document::new(),
            fields: Vec::new(),
            is_unique: false,
            is_sparse: false,
            is_hidden: false,
            partial: None,
            expires_after_s: None,
        };
        for field in spec {
            let (option, value) = field.map_err(malformed)?;
            match (option.as_str(), value) {
                ("key", RawBsonRef::Document(of)) => key = Some(of),
                ("name", RawBsonRef::String(of)) => name = Some(of),
                ("v", of) if matches!(whole(of), Some(1 | 2)) => {}
                (option, of) if GEO_OPTIONS.contains(&option) => {
                    let text = || cannot(format!("'{option}' has to be a number"));
                    let number = whole(of).ok_or_else(text)?;
                    if option == "2dsphereIndexVersion" && !matches!(number, 2 | 3) {
                        return Err(cannot(format!("{option} {number} is not there: 2 and 3 are")));
                    }
                    rest.insert(option, Bson::try_from(of).map_err(malformed)?);
                }
                ("ns" | "background" | "comment", _) => {}
                ("collation", RawBsonRef::Document(of)) if is_simple(of) => {}
                (option, value) => parsed.option(option, value, &mut rest)?,
            }
        }
        let (Some(key), Some(name)) = (key, name) else {
            let text =
                "The 'key' and 'name' fields are required properties of an index specification";
            return Err(Failure::new(code::FAILED_TO_PARSE, text));
        };
        if name.is_empty() || name.len() > MAX_INDEX_NAME_BYTES || name == "*" {
            return Err(cannot(format!("'{name}' cannot be the name of an index")));
        }
        name.clone_into(&mut parsed.name);
        parsed.fields = fields_of(key, plane_of(&rest)?)?;
        match geo_field(&parsed.fields).map(|(_, kind)| kind) {
            Some(GeoKind::Sphere) => _ = rest.insert("2dsphereIndexVersion", 3),
            Some(GeoKind::Plane { .. }) => {}
            None => GEO_OPTIONS.iter().for_each(|option| _ = rest.remove(*option)),
        }
        parsed.key = Document::try_from(key).map_err(malformed)?;
        parsed.document = bson::doc! { "v": 2, "key": parsed.key.clone(), "name": name };
        parsed.document.extend(rest);
        if bytes_of(&parsed.document).len() > MAX_INDEX_SPEC_BYTES {
            let text =
                format!("the description of an index has more than {MAX_INDEX_SPEC_BYTES} bytes");
            return Err(cannot(text));
        }
        parsed.checked()
    }

    /// Takes an option; what is told of it goes into `rest`.
    fn option(
        &mut self,
        option: &str,
        value: RawBsonRef<'_>,
        rest: &mut Document,
    ) -> Result<(), Failure> {
        let (own, is_on) = match option {
            "unique" => (&mut self.is_unique, is_true(value)),
            "sparse" => (&mut self.is_sparse, is_true(value)),
            "hidden" => (&mut self.is_hidden, is_true(value)),
            "partialFilterExpression" => {
                let RawBsonRef::Document(filter) = value else {
                    return Err(cannot("partialFilterExpression must be an object"));
                };
                self.partial = Some(Filter::parse(filter)?);
                rest.insert(option, Document::try_from(filter).map_err(malformed)?);
                return Ok(());
            }
            "expireAfterSeconds" => {
                let seconds = whole(value).filter(|of| (0..=MAX_EXPIRY_S).contains(of));
                let text = "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a different value than";
                self.expires_after_s =
                    Some(seconds.ok_or_else(|| cannot(format!("{text} {value:?}")))?);
                rest.insert(option, Bson::try_from(value).map_err(malformed)?);
                return Ok(());
            }
            "collation" => {
                let text = "only the collation {locale: \"simple\"} is there";
                return Err(Failure::new(code::INVALID_OPTIONS, text));
            }
            _ => {
                let text = format!("The field '{option}' is not valid for an index specification");
                return Err(Failure::new(code::INVALID_INDEX_SPECIFICATION_OPTION, text));
            }
        };
        *own = is_on;
        if is_on {
            rest.insert(option, true);
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, Failure> {
        if self.is_sparse && self.partial.is_some() {
            return Err(cannot("cannot mix \"partialFilterExpression\" and \"sparse\" options"));
        }
        let hashed = self.fields.iter().filter(|field| field.is_hashed()).count();
        if hashed > 0 && self.is_unique {
            let text = "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
            return Err(Failure::new(code::HASHED_IS_NOT_UNIQUE, text));
        }
        if hashed > 1 {
            let text = "A maximum of one index field is allowed to be hashed";
            return Err(Failure::new(code::TWO_HASHED_FIELDS, text));
        }
        if let Some((_, kind)) = geo_field(&self.fields) {
            let is_flat = kind != GeoKind::Sphere;
            if self.fields.iter().filter(|field| field.geo_kind().is_some()).count() > 1 {
                return Err(cannot("an index has one field with geometries"));
            }
            if is_flat && self.fields[0].geo_kind().is_none() {
                return Err(cannot("2d has to be first in index"));
            }
            if hashed > 0 || self.is_unique || self.expires_after_s.is_some() {
                let text =
                    "an index of geometries cannot be hashed, unique or with expireAfterSeconds";
                return Err(cannot(text));
            }
        }
        if self.expires_after_s.is_some() && (self.fields.len() > 1 || hashed > 0) {
            return Err(cannot(
                "TTL indexes are single-field indexes, compound indexes do not support TTL",
            ));
        }
        Ok(self)
    }

    /// Bytes that it takes on the heap, about.
    pub fn heap_bytes(&self) -> u64 {
        /// What each field takes beside its path, and its name in three places.
        const FIELD_BYTES: usize = 256;
        let fields = self.fields.iter().map(|field| FIELD_BYTES + 4 * field.path().len());
        // Its description stands here as values, and perhaps once more as a filter.
        let described = 4 * bytes_of(&self.document).len();
        (3 * self.name.len() + described + fields.sum::<usize>() + size_of::<Self>()) as u64
    }

    /// Whether the index is there already, beside this other one.
    ///
    /// # Errors
    /// They cannot both be there, as in MongoDB.
    pub fn is_there(&self, present: &Self) -> Result<bool, Failure> {
        let is_same = self.fields == present.fields
            && (self.is_unique, self.is_sparse) == (present.is_unique, present.is_sparse)
            && partial_of(self) == partial_of(present);
        let has_options =
            self.expires_after_s == present.expires_after_s && self.is_hidden == present.is_hidden;
        let told = || {
            let (asked, there) =
                (text_of_document(&self.document), text_of_document(&present.document));
            format!("Requested index: {asked}, existing index: {there}")
        };
        match (self.name == present.name, is_same, has_options) {
            (true, true, true) => Ok(true),
            (true, true, false) => {
                let text =
                    "An equivalent index already exists with the same name but different options.";
                let text = format!("{text} {}", told());
                Err(Failure::new(code::INDEX_OPTIONS_CONFLICT, text))
            }
            (true, false, _) => {
                let text = "An existing index has the same name as the requested index. When index names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation.";
                Err(Failure::new(code::INDEX_KEY_SPECS_CONFLICT, format!("{text} {}", told())))
            }
            (false, true, true) => {
                let text = format!("Index already exists with a different name: {}", present.name);
                Err(Failure::new(code::INDEX_OPTIONS_CONFLICT, text))
            }
            (false, true, false) => {
                let text = "An equivalent index already exists with a different name and options.";
                let text = format!("{text} {}", told());
                Err(Failure::new(code::INDEX_OPTIONS_CONFLICT, text))
            }
            (false, false, _) => Ok(false),
        }
    }
}

fn partial_of(spec: &Spec) -> Option<&Bson> {
    spec.document.get("partialFilterExpression")
}

/// The plane of a `2d` index with these options.
fn plane_of(options: &Document) -> Result<GeoKind, Failure> {
    let limit = |name: &str, usual: f64| match options.get(name) {
        Some(Bson::Double(of)) => *of,
        Some(Bson::Int32(of)) => f64::from(*of),
        Some(Bson::Int64(of)) => *of as f64,
        _ => usual,
    };
    let (min, max) = (limit("min", -180.0), limit("max", 180.0));
    match min.is_finite() && max.is_finite() && min < max {
        true => Ok(GeoKind::Plane { min, max }),
        false => Err(Failure::new(
            code::INVALID_OPTIONS,
            "region for hash must be valid and have positive area, but [min, max] was not",
        )),
    }
}

/// The fields of a key pattern.
fn fields_of(key: &RawDocument, plane: GeoKind) -> Result<Vec<IndexField>, Failure> {
    let mut fields: Vec<IndexField> = Vec::new();
    for field in key {
        let (path, value) = field.map_err(malformed)?;
        let path = path.as_str();
        if path.contains("$**") {
            return Err(cannot("wildcard indexes are not there"));
        }
        if path.is_empty() || path.split('.').any(|name| name.is_empty() || name.starts_with('$')) {
            return Err(cannot(format!("Index keys cannot be the path '{path}'")));
        }
        if fields.len() == MAX_INDEX_FIELDS {
            return Err(cannot(format!("too many compound keys: more than {MAX_INDEX_FIELDS}")));
        }
        let parsed = Path::parse(path).map_err(|error| cannot(error.to_string()))?;
        fields.push(match value {
            RawBsonRef::String("hashed") => IndexField::hashed(parsed),
            RawBsonRef::String("2dsphere") => IndexField::geo(parsed, GeoKind::Sphere),
            RawBsonRef::String("2d") => IndexField::geo(parsed, plane),
            RawBsonRef::String(of) => {
                return Err(cannot(format!(
                    "Unknown index plugin '{of}', or one that is not there"
                )));
            }
            value => IndexField::new(parsed, direction_of(value)?),
        });
    }
    match fields.is_empty() {
        true => Err(cannot("Index keys cannot be empty.")),
        false => Ok(fields),
    }
}

fn direction_of(value: RawBsonRef<'_>) -> Result<Direction, Failure> {
    let number = match value {
        RawBsonRef::Int32(of) => f64::from(of),
        RawBsonRef::Int64(of) => of as f64,
        RawBsonRef::Double(of) => of,
        _ => {
            return Err(cannot(format!(
                "Values in v:2 index key pattern cannot be {value:?}. Only numbers > 0, numbers < 0, and strings are allowed."
            )));
        }
    };
    match number {
        number if number > 0.0 => Ok(Direction::Ascending),
        number if number < 0.0 => Ok(Direction::Descending),
        _ => Err(cannot("Values in the index key pattern cannot be 0.")),
    }
}
