//! Keys that hold trees of places.

mod found;
mod object;
mod settings;

pub use found::{TreeCount, TreeFound, TreeHit};
pub use object::{NewObject, TreeObject};
pub use settings::{TreeInfo, TreeReading, TreeSettings};

use crate::error::{Error, Refusal};
use crate::session::Session;
use crate::views::TreeView;
use remora_client_core as core;
use remora_geometry::Refine;
use remora_layout::rect::{Predicate, Rect};
use remora_protocol::tree::{Fields, ObjectId};

/// Most trees of which a session keeps a view.
const MOST_VIEWS: usize = 256;

/// A handle for a key that holds a tree of places: [`Session::tree`]. It asks for changes; searches
/// take either route.
pub struct TreeKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut TreeView,
    key: &'s [u8],
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds a tree of places, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::Rect;
    ///
    /// session.tree(b"couriers")?.insert(7, Rect::point(2.35, 48.86)?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tree<'s>(&'s mut self, key: &'s [u8]) -> Result<TreeKey<'s>, Error> {
        let Self { core, trees, path, .. } = self;
        if key.len() > remora_layout::limits::MAX_KEY_BYTES {
            return Err(Error::KeyTooLong);
        }
        let view = trees.get(key, MOST_VIEWS, || Ok(TreeView::default()))?;
        Ok(TreeKey { core, view, key, path: *path })
    }
}

impl<'s> TreeKey<'s> {
    /// Searches by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let found = session.tree(b"couriers")?.by(Path::Read).nearest(2.35, 48.86, 5)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// How the session reads this tree from now on.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::TreeReading;
    ///
    /// let reading = TreeReading::default().cache_bytes(16 << 20);
    /// session.tree(b"couriers")?.set_reading(reading);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_reading(&mut self, reading: TreeReading) {
        self.view.reading = reading.core;
        self.view.open = self.view.open.take().map(|open| open.reading(reading.core));
    }

    /// Creates an empty tree. False if there is one already. Without this the first object creates
    /// the tree, with the default settings.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{TreeKind, TreeSettings};
    ///
    /// let settings = TreeSettings::default().kind(TreeKind::Hilbert);
    /// let is_new = session.tree(b"couriers")?.create(settings)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(&mut self, settings: TreeSettings) -> Result<bool, Error> {
        Ok(self.core.create_tree(self.key, &settings.core)?)
    }

    /// Removes the tree with all its objects. True if it was there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.tree(b"couriers")?.remove_all()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_all(&mut self) -> Result<bool, Error> {
        self.view.open = None;
        Ok(self.core.drop_tree(self.key)?)
    }

    /// What is in the tree; `None` without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if let Some(info) = session.tree(b"couriers")?.info()? {
    ///     println!("{} objects in {} levels", info.objects, info.height);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&mut self) -> Result<Option<TreeInfo>, Error> {
        Ok(self.core.tree_info(self.key)?.map(TreeInfo::of))
    }

    /// Builds an empty tree, which [`TreeKey::create`] has created, of many objects at once.
    /// `progress` receives the number of sent objects. Returns their number. Other sessions see all
    /// of them at once, when the last step is done.
    ///
    /// # Errors
    /// See [`Error`]: the tree is not empty, two objects have one id, memory is full. Nothing
    /// is loaded then.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{Rect, TreeSettings};
    ///
    /// let towns = [(1, Rect::point(2.35, 48.86)?), (2, Rect::point(-0.13, 51.51)?)];
    /// session.tree(b"towns")?.create(TreeSettings::default())?;
    /// session.tree(b"towns")?.load(towns, |sent| println!("{sent} sent"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load(
        &mut self,
        objects: impl IntoIterator<Item = (u64, Rect)>,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, Error> {
        let mut objects = objects.into_iter();
        Ok(self.core.load_tree(self.key, &mut objects, &mut progress)?)
    }

    /// Adds an object, or moves the one with this id; its data stays. True if it is new. An id is
    /// an integer below 2^63, which costs least, or 1 to 512 other bytes.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::Rect;
    ///
    /// let here = Rect::point(2.35, 48.86)?;
    /// session.tree(b"couriers")?.insert(7, here)?;
    /// session.tree(b"couriers")?.insert("bike:4711", here)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert<'a>(&mut self, id: impl Into<ObjectId<'a>>, rect: Rect) -> Result<bool, Error> {
        Ok(self.core.put_place(self.key, id, rect, None)?)
    }

    /// Adds an object with its data, or changes the one with this id, as one change. Unset parts
    /// stay as they are, except the geometry: without one the object is its rectangle. True if it
    /// is new.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{NewObject, Rect};
    /// use std::time::Duration;
    ///
    /// let courier = NewObject::new("bike:4711", Rect::point(2.35, 48.86)?)
    ///     .fields([("state", "free")])
    ///     // Gone if it is not heard of for a minute.
    ///     .expire(Duration::from_secs(60));
    /// session.tree(b"couriers")?.put(&courier)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&mut self, object: &NewObject<'_>) -> Result<bool, Error> {
        Ok(self.core.put_object(self.key, &object.to_put()?)?)
    }

    /// An object with its data; `None` if it does not exist. Valid until the session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if let Some(courier) = session.tree(b"couriers")?.get("bike:4711")? {
    ///     println!("{:?}, {:?}", courier.rect, courier.field(b"state"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get<'a>(self, id: impl Into<ObjectId<'a>>) -> Result<Option<TreeObject<'s>>, Error> {
        Ok(self.core.place(self.key, id)?.map(TreeObject::of))
    }

    /// Sets fields of an object; its other fields stay. Gives how many are new; `None` if the
    /// object is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.tree(b"couriers")?.set_fields("bike:4711", &[(b"state", b"busy")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_fields<'a>(
        &mut self,
        id: impl Into<ObjectId<'a>>,
        fields: &[(&[u8], &[u8])],
    ) -> Result<Option<u64>, Error> {
        let bytes = Fields::encode(fields.iter().copied()).ok_or(Error::BadFields)?;
        let fields = Fields::parse(&bytes).ok_or(Error::BadFields)?;
        Ok(self.core.set_fields(self.key, id, fields)?)
    }

    /// Removes an object. True if it was there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.tree(b"couriers")?.remove(7)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove<'a>(&mut self, id: impl Into<ObjectId<'a>>) -> Result<bool, Error> {
        Ok(self.core.remove_place(self.key, id)?)
    }

    /// Number of objects that match a window by the predicate. It always asks.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{Predicate, Rect};
    ///
    /// let paris = Rect::new(2.2, 2.5, 48.8, 48.9)?;
    /// let couriers = session.tree(b"couriers")?.count(paris, Predicate::Intersects)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn count(&mut self, window: Rect, predicate: Predicate) -> Result<u64, Error> {
        Ok(self.core.count_places(self.key, window, predicate)?)
    }

    /// The objects that match a window by the predicate, in no order. Valid until the session is
    /// used again.
    ///
    /// # Errors
    /// See [`Error`]: there is no such tree.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{Predicate, Rect};
    ///
    /// let paris = Rect::new(2.2, 2.5, 48.8, 48.9)?;
    /// let found = session.tree(b"couriers")?.search(paris, Predicate::Within)?;
    /// for courier in found.iter() {
    ///     println!("{} at {:?}", courier.id, courier.rect);
    /// }
    /// println!("{:?}, {} nodes", found.served_by, found.counts.nodes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn search(self, window: Rect, predicate: Predicate) -> Result<TreeFound<'s>, Error> {
        self.find(core::Query::Window { window, predicate })
    }

    /// The objects nearest to a point, the nearest first. Valid until the session is used
    /// again.
    ///
    /// # Errors
    /// See [`Error`]: there is no such tree.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let nearest = session.tree(b"couriers")?.nearest(2.35, 48.86, 5)?;
    /// println!("{:?}", nearest.iter().next());
    /// # Ok(())
    /// # }
    /// ```
    pub fn nearest(self, x: f64, y: f64, wanted: usize) -> Result<TreeFound<'s>, Error> {
        self.find(core::Query::Nearest { x, y, wanted })
    }

    fn find(self, query: core::Query) -> Result<TreeFound<'s>, Error> {
        let Self { core, view, key, path } = self;
        let open = opened(core, view, key)?;
        Ok(TreeFound::of(core.search_tree(open, &query, path)?))
    }

    /// The objects whose geometries match a shape as `refine` says, in no order. Valid until the
    /// session is used again.
    ///
    /// # Errors
    /// See [`Error`]: there is no such tree.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{Refine, Shape};
    ///
    /// let zone = Shape::from_wkt("POLYGON ((2.2 48.8, 2.5 48.8, 2.35 48.9, 2.2 48.8))")?;
    /// let found = session.tree(b"couriers")?.search_shape(&Refine::Within(zone))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn search_shape(self, refine: &Refine) -> Result<TreeFound<'s>, Error> {
        let Self { core, view, key, path } = self;
        let open = opened(core, view, key)?;
        Ok(TreeFound::refined(core.search_refined(open, refine, path)?))
    }

    /// How many objects [`TreeKey::search_shape`] finds. If the server is asked, it sends the
    /// number alone.
    ///
    /// # Errors
    /// See [`Error`]: there is no such tree.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::{Refine, Shape};
    ///
    /// let road = Shape::from_wkt("LINESTRING (2.2 48.8, 2.5 48.9)")?;
    /// let near = Refine::DistanceAtMost { from: road, most: 0.01 };
    /// let counted = session.tree(b"couriers")?.count_shape(&near)?;
    /// println!("{} objects, {:?}", counted.objects, counted.served_by);
    /// # Ok(())
    /// # }
    /// ```
    pub fn count_shape(&mut self, refine: &Refine) -> Result<TreeCount, Error> {
        let open = opened(self.core, self.view, self.key)?;
        Ok(TreeCount::of(self.core.count_refined(open, refine, self.path)?))
    }
}

/// The view of the tree; looks the tree up if it has none.
fn opened<'v>(
    core: &mut core::Session,
    view: &'v mut TreeView,
    key: &[u8],
) -> Result<&'v mut core::OpenTree, Error> {
    if view.open.is_none() {
        let open = core.open_tree(key)?.ok_or(Error::Refused(Refusal::NoTree))?;
        view.open = Some(open.reading(view.reading));
    }
    Ok(view.open.as_mut().expect("it was just opened"))
}
