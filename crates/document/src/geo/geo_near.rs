//! The stage `$geoNear`: documents by their distance, with the distance in a field.

use super::near::Near;
use crate::error::{DocumentError, FAILED_TO_PARSE, TYPE_MISMATCH};
use crate::filter::Filter;
use crate::raw::{append, fields};
use crate::set_path::set_path;
use crate::value::to_double;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

/// The argument of `$geoNear`, parsed.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::GeoNear;
///
/// let stage = rawdoc! { "near": [0, 0], "distanceField": "far.away", "maxDistance": 9 };
/// let geo_near = GeoNear::parse(&stage)?;
/// assert_eq!(geo_near.key(), None);
///
/// let located = geo_near.located("at")?;
/// let filter = rawdoc! { "at": { "$near": [0, 0], "$maxDistance": 9.0 } };
/// assert_eq!(located.filter().as_bytes(), filter.as_bytes());
/// let made = located.apply(&rawdoc! { "at": [3, 4] })?;
/// assert_eq!(made, rawdoc! { "at": [3, 4], "far": { "away": 5.0 } });
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GeoNear {
    near: RawDocumentBuf,
    query: RawDocumentBuf,
    key: Option<String>,
    distance: Vec<String>,
    place: Option<Vec<String>>,
    limits: [Option<f64>; 2],
    multiplier: f64,
    is_spherical: bool,
}

/// A `$geoNear` of which the field with the geometries is known.
#[derive(Debug, Clone)]
pub struct Located {
    filter: RawDocumentBuf,
    near: Near,
    distance: Vec<String>,
    place: Option<Vec<String>>,
    multiplier: f64,
}

fn wrong(text: impl Into<String>) -> DocumentError {
    DocumentError::new(FAILED_TO_PARSE, text)
}

fn path_of(name: &str, value: RawBsonRef<'_>) -> Result<Vec<String>, DocumentError> {
    match value {
        RawBsonRef::String(path)
            if !path.is_empty() && path.split('.').all(|of| !of.is_empty()) =>
        {
            Ok(path.split('.').map(str::to_owned).collect())
        }
        _ => {
            let text = format!("$geoNear.{name} must be the path of a field");
            Err(DocumentError::new(TYPE_MISMATCH, text))
        }
    }
}

impl GeoNear {
    /// # Errors
    /// As MongoDB: a field that is not there, or a wrong value.
    pub fn parse(argument: &RawDocument) -> Result<GeoNear, DocumentError> {
        let mut parsed = GeoNear {
            near: RawDocumentBuf::new(),
            query: RawDocumentBuf::new(),
            key: None,
            distance: Vec::new(),
            place: None,
            limits: [None, None],
            multiplier: 1.0,
            is_spherical: false,
        };
        for (name, value) in fields(argument) {
            let number = || {
                let number = to_double(value).filter(|number| *number >= 0.0);
                number
                    .ok_or_else(|| wrong(format!("$geoNear.{name} must be a non-negative number")))
            };
            match (name, value) {
                ("near", RawBsonRef::Document(_) | RawBsonRef::Array(_)) => {
                    parsed.near.append(cstr!("near"), value);
                }
                ("distanceField", value) => parsed.distance = path_of(name, value)?,
                ("includeLocs", value) => parsed.place = Some(path_of(name, value)?),
                ("minDistance", _) => parsed.limits[0] = Some(number()?),
                ("maxDistance", _) => parsed.limits[1] = Some(number()?),
                ("distanceMultiplier", _) => parsed.multiplier = number()?,
                ("spherical", RawBsonRef::Boolean(of)) => parsed.is_spherical = of,
                ("query", RawBsonRef::Document(of)) => parsed.query = of.to_owned(),
                ("key", RawBsonRef::String(of)) => parsed.key = Some(of.to_owned()),
                ("near" | "spherical" | "query" | "key", _) => {
                    let text = format!("$geoNear.{name} has a wrong type");
                    return Err(DocumentError::new(TYPE_MISMATCH, text));
                }
                _ => return Err(wrong(format!("$geoNear has no field '{name}'"))),
            }
        }
        if parsed.near.is_empty() {
            return Err(wrong("$geoNear requires a 'near' option as an Object or Array"));
        }
        if parsed.distance.is_empty() {
            return Err(wrong("$geoNear requires a 'distanceField' option as a String"));
        }
        Ok(parsed)
    }

    /// The field with the geometries, if it is given.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The same with the field of the geometries.
    ///
    /// # Errors
    /// As MongoDB: the place is none, or the query is wrong.
    pub fn located(&self, key: &str) -> Result<Located, DocumentError> {
        let near = fields(&self.near).next().map(|(_, near)| near);
        let near = near.ok_or_else(|| wrong("$geoNear requires a place"))?;
        let is_geojson =
            near.as_document().is_some_and(|of| of.get("type").is_ok_and(|of| of.is_some()));
        let mut geometry = RawDocumentBuf::new();
        let mut operators = RawDocumentBuf::new();
        let limits = |to: &mut RawDocumentBuf| {
            let [least, most] = self.limits;
            if let Some(least) = least {
                to.append(cstr!("$minDistance"), least);
            }
            if let Some(most) = most {
                to.append(cstr!("$maxDistance"), most);
            }
        };
        if is_geojson {
            geometry.append(cstr!("$geometry"), near);
            limits(&mut geometry);
            operators.append(cstr!("$near"), RawBsonRef::Document(&geometry));
        } else {
            let name = if self.is_spherical { cstr!("$nearSphere") } else { cstr!("$near") };
            operators.append(name, near);
            limits(&mut operators);
        }
        let mut condition = RawDocumentBuf::new();
        append(&mut condition, key, RawBsonRef::Document(&operators))?;
        let near = Filter::parse(&condition)?.near().cloned();
        let near = near.ok_or_else(|| wrong("$geoNear requires a place"))?;
        let filter = if self.query.is_empty() {
            condition
        } else {
            let mut both = RawArrayBuf::new();
            both.push(condition);
            both.push(self.query.clone());
            let mut filter = RawDocumentBuf::new();
            filter.append(cstr!("$and"), both);
            filter
        };
        let (distance, place) = (self.distance.clone(), self.place.clone());
        Ok(Located { filter, near, distance, place, multiplier: self.multiplier })
    }
}

impl Located {
    /// What documents have to match. It sorts by distance.
    #[must_use]
    pub fn filter(&self) -> &RawDocument {
        &self.filter
    }

    /// A document that was found with its distance, and with the nearest geometry if that is wanted.
    ///
    /// # Errors
    /// None, but for a document that cannot be read.
    pub fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf, DocumentError> {
        let Some((distance, place)) = self.near.nearest(document) else {
            return Ok(document.to_owned());
        };
        let distance = self.near.in_unit(distance) * self.multiplier;
        let made = set_path(document, &self.distance, Some(RawBsonRef::Double(distance)))?;
        match &self.place {
            Some(path) => set_path(&made, path, Some(place)),
            None => Ok(made),
        }
    }
}
