//! The settings of a tree, its statistics, and how a session reads it.

use remora_client_core as core;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;

/// The settings of a new tree: [`TreeKey::create`](crate::TreeKey::create).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TreeSettings {
    pub(super) core: core::TreeSettings,
}

impl TreeSettings {
    /// The algorithm that writes it. The R*-tree is the default.
    ///
    /// ```
    /// # use remora_client::{TreeKind, TreeSettings};
    /// let settings = TreeSettings::default().kind(TreeKind::Guttman);
    /// ```
    #[must_use]
    pub fn kind(mut self, kind: TreeKind) -> Self {
        self.core.kind = kind;
        self
    }

    /// Entries that a node has room for.
    ///
    /// ```
    /// # use remora_client::TreeSettings;
    /// let settings = TreeSettings::default().capacity(50);
    /// ```
    #[must_use]
    pub fn capacity(mut self, entries: usize) -> Self {
        self.core.capacity = entries;
        self
    }

    /// The area in which most objects lie: the curve of a Hilbert R-tree fills it. Other objects
    /// may lie outside.
    ///
    /// ```
    /// # use remora_client::{BadRect, Rect, TreeKind, TreeSettings};
    /// let earth = Rect::new(-180.0, 180.0, -90.0, 90.0)?;
    /// let settings = TreeSettings::default().kind(TreeKind::Hilbert).bounds(earth);
    /// # Ok::<(), BadRect>(())
    /// ```
    #[must_use]
    pub fn bounds(mut self, bounds: Rect) -> Self {
        self.core.bounds = bounds;
        self
    }
}

/// The statistics of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct TreeInfo {
    /// The algorithm that writes it.
    pub kind: TreeKind,
    /// Entries that a node has room for.
    pub capacity: usize,
    /// Number of levels, at least 1.
    pub height: usize,
    /// Objects in it.
    pub objects: u64,
    /// Nodes in it.
    pub nodes: u64,
    /// Bytes of the server's memory that its nodes take.
    pub node_bytes: u64,
    /// Bytes of the server's index from ids to objects.
    pub index_bytes: u64,
    /// Objects that carry bytes.
    pub with_data: u64,
    /// Objects that have a geometry.
    pub with_geometry: u64,
    /// Objects that have fields.
    pub with_fields: u64,
    /// Objects that expire.
    pub with_expiry: u64,
}

impl TreeInfo {
    pub(super) fn of(info: core::TreeInfo) -> Self {
        let core::TreeInfo { kind, objects, nodes, node_bytes, index_bytes, .. } = info;
        let core::TreeInfo { with_data, with_geometry, with_fields, with_expiry, .. } = info;
        Self {
            kind,
            capacity: info.capacity.into(),
            height: info.height.into(),
            objects,
            nodes,
            node_bytes,
            index_bytes,
            with_data,
            with_geometry,
            with_fields,
            with_expiry,
        }
    }
}

/// How a session reads a tree, and what it caches of it:
/// [`TreeKey::set_reading`](crate::TreeKey::set_reading).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeReading {
    pub(super) core: core::TreeRead,
}

impl TreeReading {
    /// One READ at a time. Without this the session reads all wanted nodes together.
    ///
    /// ```
    /// # use remora_client::TreeReading;
    /// let reading = TreeReading::default().one_at_a_time();
    /// ```
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.core.issue = core::Issue::Single;
        self
    }

    /// Bytes of inner nodes that the session caches between searches, the upper levels first. 1 MiB
    /// is the default.
    ///
    /// ```
    /// # use remora_client::TreeReading;
    /// let reading = TreeReading::default().cache_bytes(0);
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.core.cache_bytes = bytes;
        self
    }
}
