//! Objects of trees, with their data.

use crate::error::Error;
use crate::time::{after, from_unix_ms, to_unix_ms};
use remora_client_core as core;
use remora_geometry::{Shape, Wkb};
use remora_layout::rect::Rect;
use remora_protocol::Expiry;
use remora_protocol::tree::{Fields, ObjectId, PutObject};
use std::time::{Duration, SystemTime};

/// An object to put into a tree: [`TreeKey::put`](crate::TreeKey::put). Unset parts stay as they
/// are, except the geometry: without one the object is its rectangle.
#[derive(Clone, PartialEq, Debug)]
pub struct NewObject<'a> {
    id: ObjectId<'a>,
    rect: Rect,
    data: Option<&'a [u8]>,
    geometry: Option<Vec<u8>>,
    /// In their encoding; an error if they break a limit.
    fields: Option<Result<Vec<u8>, Error>>,
    expiry: Expiry,
}

impl<'a> NewObject<'a> {
    /// An object at a place.
    ///
    /// ```
    /// use remora_client::{NewObject, Rect};
    ///
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?);
    /// # Ok::<(), remora_client::BadRect>(())
    /// ```
    pub fn new(id: impl Into<ObjectId<'a>>, rect: Rect) -> Self {
        let (data, geometry, fields) = (None, None, None);
        Self { id: id.into(), rect, data, geometry, fields, expiry: Expiry::Keep }
    }

    /// An object with a geometry, whose bounds are its rectangle.
    ///
    /// ```
    /// use remora_client::{NewObject, Shape};
    ///
    /// let road = Shape::from_wkt("LINESTRING (2.2 48.8, 2.5 48.9)")?;
    /// let object = NewObject::with_shape("road:12", &road);
    /// # Ok::<(), remora_client::ShapeError>(())
    /// ```
    pub fn with_shape(id: impl Into<ObjectId<'a>>, shape: &Shape) -> Self {
        Self { geometry: Some(shape.to_wkb()), ..Self::new(id, shape.bounds()) }
    }

    /// It carries these bytes.
    ///
    /// ```
    /// # use remora_client::{BadRect, NewObject, Rect};
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?).data(b"any bytes");
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn data(self, data: &'a [u8]) -> Self {
        Self { data: Some(data), ..self }
    }

    /// It has these fields, and no others.
    ///
    /// ```
    /// # use remora_client::{BadRect, NewObject, Rect};
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?)
    ///     .fields([("state", "free"), ("zone", "north")]);
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        self,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let fields: Vec<(N, V)> = fields.into_iter().collect();
        let pairs = fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        Self { fields: Some(Fields::encode(pairs).ok_or(Error::BadFields)), ..self }
    }

    /// It expires after a time, by this machine's clock.
    ///
    /// ```
    /// # use remora_client::{BadRect, NewObject, Rect};
    /// use std::time::Duration;
    ///
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?).expire(Duration::from_secs(60));
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn expire(self, after_time: Duration) -> Self {
        self.expire_at(after(after_time))
    }

    /// It expires at a moment; one in the past removes it.
    ///
    /// ```
    /// # use remora_client::{BadRect, NewObject, Rect};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let later = SystemTime::now() + Duration::from_secs(60);
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?).expire_at(later);
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn expire_at(self, at: SystemTime) -> Self {
        Self { expiry: Expiry::At(to_unix_ms(at)), ..self }
    }

    /// It no longer expires.
    ///
    /// ```
    /// # use remora_client::{BadRect, NewObject, Rect};
    /// let courier = NewObject::new(7, Rect::point(2.35, 48.86)?).persist();
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn persist(self) -> Self {
        Self { expiry: Expiry::Never, ..self }
    }

    pub(super) fn to_put(&self) -> Result<PutObject<'_>, Error> {
        let fields = match &self.fields {
            Some(Ok(bytes)) => Some(Fields::parse(bytes).ok_or(Error::BadFields)?),
            Some(Err(error)) => return Err(*error),
            None => None,
        };
        let Self { id, rect, data, expiry, .. } = *self;
        let geometry = self.geometry.as_deref().map(|wkb| Wkb::known(wkb, rect));
        Ok(PutObject { id, rect, data, geometry, fields, expiry })
    }
}

/// An object of a tree, with its data.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct TreeObject<'s> {
    /// Where it is.
    pub rect: Rect,
    /// Its bytes, if it carries any.
    pub data: Option<&'s [u8]>,
    /// Its geometry in WKB, if it has one.
    pub geometry: Option<&'s [u8]>,
    /// When it expires, if it does.
    pub expires_at: Option<SystemTime>,
    fields: Fields<'s>,
}

impl<'s> TreeObject<'s> {
    pub(super) fn of(object: core::TreeObject<'s>) -> Self {
        let core::TreeObject { rect, data, geometry, fields, expires_at_ms, .. } = object;
        Self { rect, data, geometry, expires_at: expires_at_ms.map(from_unix_ms), fields }
    }

    /// The value of one of its fields.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let courier = session.tree(b"couriers")?.get(7)?;
    /// let is_free = courier.is_some_and(|courier| courier.field(b"state") == Some(b"free"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn field(&self, name: &[u8]) -> Option<&'s [u8]> {
        self.fields.get(name)
    }

    /// Its fields: names and values, by their names.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if let Some(courier) = session.tree(b"couriers")?.get(7)? {
    ///     for (name, value) in courier.fields() {
    ///         println!("{} = {}", name.escape_ascii(), value.escape_ascii());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fields(&self) -> impl Iterator<Item = (&'s [u8], &'s [u8])> {
        self.fields.iter()
    }
}
