//! Trees of places: changes, and searches by either way.
//!
//! What it keeps true: changes go to the server only (Catfish 3.2, C9, C21);
//! a search's objects come once each, however many replies they took.

mod asked;
mod names;
mod read;
mod records;
mod refine;
mod shapes;

use crate::api::{Counts, Path, Via};
use crate::ask::Answer;
use crate::choose::{Class, ClassKey, Classes, Way};
use crate::error::Error;
use crate::session::Session;
use records::Records;
use remora_index::rtree::{Object, Query};
use remora_layout::limits::STAGE_OBJECTS;
use remora_layout::node::ENTRY_BYTES;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{RootPlace, TreeHeader, TreeInfo};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, ObjectId, Objects, PutObject, TreeCommand};
use remora_walk::remote::NodeCache;

/// How a client reads a tree itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Issue {
    /// One READ at a time (C20).
    Single,
    /// READs of all nodes that are wanted, each handled as it comes (C23).
    #[default]
    Multi,
}

/// How a client reads a tree, and what it keeps of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeRead {
    /// How many READs at a time.
    pub issue: Issue,
    /// Bytes of inner nodes kept between searches, the top levels first.
    pub cache_bytes: usize,
}

impl Default for TreeRead {
    fn default() -> Self {
        Self { issue: Issue::Multi, cache_bytes: 1 << 20 }
    }
}

/// What has happened to the searches of a tree by READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeEvents {
    /// They began again, as entries had left a node.
    pub began_again: u64,
    /// They began again, as a node that was kept had changed.
    pub stale_kept: u64,
    /// A node or the header was fetched while it was being changed.
    pub torn: u64,
    /// The tree's header had gone: where the tree lies was asked for.
    pub header_gone: u64,
}

/// A session's view of one tree: where it lies, and its top levels.
#[derive(Debug)]
pub struct OpenTree {
    name: Box<[u8]>,
    shard: usize,
    root: RootPlace,
    /// As it was read last.
    header: Option<TreeHeader>,
    reading: TreeRead,
    node_cache: NodeCache,
    /// Where records of its objects lie, as far as that was told.
    records: Records,
    events: TreeEvents,
    /// What its searches cost.
    classes: Classes,
}

impl OpenTree {
    /// How it is read from now on.
    #[must_use]
    pub fn reading(self, reading: TreeRead) -> Self {
        Self { reading, node_cache: NodeCache::new(reading.cache_bytes), ..self }
    }

    /// The tree's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What has happened to its searches by READs.
    pub fn events(&self) -> TreeEvents {
        self.events
    }

    /// Bytes of inner nodes that are kept now.
    pub fn cache_bytes(&self) -> usize {
        self.node_cache.bytes()
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug)]
pub struct TreeFound<'s> {
    /// The objects: of a window in no order, else the nearest first. Valid
    /// until the session is used again. An object's word is its id, if that is an
    /// integer and the object never had an expiry; [`TreeFound::id`] tells any.
    pub objects: &'s [Object],
    names: &'s Names,
    /// How it was come by.
    pub via: Via,
    /// What it cost. `nodes` are those that crossed the fabric.
    pub counts: Counts,
    /// Nodes examined, kept ones included; for an asked window those that the
    /// server visited.
    pub nodes_visited: u64,
}

impl<'s> TreeFound<'s> {
    /// The id of one of the objects.
    pub fn id(&self, object: &Object) -> ObjectId<'s> {
        self.names.id_of(object)
    }

    /// Ids and rectangles, in the order of the objects.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId<'s>, Rect)> {
        self.objects.iter().map(|object| (self.names.id_of(object), object.rect))
    }
}

/// How a search was done whose objects are in `Session::found`.
struct Searched {
    via: Via,
    counts: Counts,
    nodes_visited: u64,
}

/// An object: where it is, and what it carries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place<'s> {
    /// Where it is.
    pub rect: Rect,
    /// Its bytes, if it carries any. Valid until the session is used again.
    pub data: Option<&'s [u8]>,
    /// Its geometry in WKB, if it has one; valid as long.
    pub geometry: Option<&'s [u8]>,
    /// Its fields; valid as long.
    pub fields: Fields<'s>,
    /// When it expires, in Unix ms.
    pub expires_at_ms: Option<u64>,
}

impl Session {
    fn ask_tree(&mut self, name: &[u8], command: TreeCommand<'_>) -> Result<Answer, Error> {
        let request = command.request().map_err(Error::Refused)?;
        self.ask(&Command::Of { key: name, request })
    }

    /// Makes an empty tree. False if there is one of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn create_tree(&mut self, name: &[u8], settings: &TreeSettings) -> Result<bool, Error> {
        let answer = self.ask_tree(name, TreeCommand::Create(*settings))?;
        Ok(answer.status == Status::Ok)
    }

    /// Removes a tree with all its objects. Whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn drop_tree(&mut self, name: &[u8]) -> Result<bool, Error> {
        Ok(self.ask_tree(name, TreeCommand::Drop)?.number == 1)
    }

    /// What is in a tree; `None` if there is none of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn tree_info(&mut self, name: &[u8]) -> Result<Option<TreeInfo>, Error> {
        let answer = match self.ask_tree(name, TreeCommand::Info) {
            Err(Error::Refused(Status::NoTree)) => return Ok(None),
            answer => answer?,
        };
        let value = answer.value.map_or(&[][..], |(from, to)| &self.reply[from..to]);
        let (words, _) = value.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match TreeInfo::from_words(&words) {
            Some(info) => Ok(Some(info)),
            None => Err(self.end(Error::Protocol("a tree that cannot be"))),
        }
    }

    /// Where a tree of this name lies.
    fn root_of(&mut self, name: &[u8], info: &TreeInfo) -> Result<RootPlace, Error> {
        let root = RootPlace::of(info.at, name.len());
        root.ok_or_else(|| self.end(Error::Protocol("a tree that cannot be")))
    }

    /// A view of a tree, to search it; `None` if there is none of that name.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_tree(&mut self, name: &[u8]) -> Result<Option<OpenTree>, Error> {
        let Some(info) = self.tree_info(name)? else { return Ok(None) };
        let root = self.root_of(name, &info)?;
        let (_, shard) = self.route(name)?;
        let reading = TreeRead::default();
        let node_cache = NodeCache::new(reading.cache_bytes);
        let (name, events) = (name.into(), TreeEvents::default());
        let classes = Classes::default();
        let records = Records::default();
        let header = None;
        Ok(Some(OpenTree {
            name,
            shard,
            root,
            header,
            reading,
            node_cache,
            records,
            events,
            classes,
        }))
    }

    /// Builds an empty tree, which is there, of many objects at once. They are
    /// sent in parts; `progress` is told how many have been sent. Gives their
    /// number. It is built in many short steps, between which the shard serves
    /// others; they all see it once the last one is done.
    ///
    /// # Errors
    /// See [`Error`]: the tree is not empty, two objects have one id, memory
    /// is full; nothing is loaded then.
    pub fn load_tree(
        &mut self,
        name: &[u8],
        objects: &mut dyn Iterator<Item = (u64, Rect)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Error> {
        let mut list = Vec::with_capacity(STAGE_OBJECTS * ENTRY_BYTES);
        let mut sent = 0;
        // Nobody else's: the connection's number, the session's, the request's.
        let session = self.connection.number << 32 | (self.number as u64) << 16;
        let load = session | self.next_ticket & 0xffff;
        let mut first = true;
        loop {
            list.clear();
            for (id, rect) in (&mut *objects).take(STAGE_OBJECTS) {
                Objects::push(&mut list, id, &rect);
            }
            let part = Objects::parse(&list).expect("whole objects");
            if part.len() == 0 && !first {
                break;
            }
            self.ask_tree(name, TreeCommand::Stage { load, first, objects: part })?;
            first = false;
            sent += part.len() as u64;
            progress(sent);
        }
        // Bounded: each request does its part, and who is silent for long is given up.
        loop {
            match self.ask_tree(name, TreeCommand::Build { load }) {
                Err(Error::Refused(Status::InPieces)) => {}
                built => return Ok(built?.number as u64),
            }
        }
    }

    /// Adds an object, or moves the one with this id, at once for every
    /// reader. `None` as data leaves the bytes that it has. A tree that is not
    /// there is made. True if the object is new.
    ///
    /// An id is an integer below 2^63, which costs least, or any other 1 to 512
    /// bytes.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Rect;
    ///
    /// let here = Rect { min_x: 8.5, max_x: 8.5, min_y: 47.3, max_y: 47.3 };
    /// session.put_place(b"couriers", 17, here, None)?;
    /// session.put_place(b"couriers", "bike:4711", here, Some(b"any bytes"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        rect: Rect,
        data: Option<&'a [u8]>,
    ) -> Result<bool, Error> {
        self.put_object(name, &PutObject { data, ..PutObject::new(id, rect) })
    }

    /// Removes an object. Whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn remove_place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<bool, Error> {
        Ok(self.ask_tree(name, TreeCommand::Remove { id: id.into() })?.number == 1)
    }

    /// How many objects a window has.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn count_places(
        &mut self,
        name: &[u8],
        window: Rect,
        predicate: Predicate,
    ) -> Result<u64, Error> {
        Ok(self.ask_tree(name, TreeCommand::Count { window, predicate })?.number as u64)
    }

    /// Searches a tree: by READs if the path says so, or is [`Path::Choose`] and
    /// that is chosen, and if they conclude; else by asking.
    ///
    /// # Errors
    /// See [`Error`]: the window is no rectangle, the tree has gone.
    pub fn search_tree(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        path: Path,
    ) -> Result<TreeFound<'_>, Error> {
        self.check()?;
        self.send_gathered()?;
        if query.checked().is_err() {
            return Err(Error::Refused(Status::BadRectangle));
        }
        let mut classes = std::mem::take(&mut tree.classes);
        let searched = self.search_by(tree, query, path, classes.get(ClassKey::of(query)));
        tree.classes = classes;
        let Searched { via, counts, nodes_visited } = searched?;
        let (objects, names) = (&self.found, &self.found_names);
        Ok(TreeFound { objects, names, via, counts, nodes_visited })
    }

    /// Decides, searches, and learns; the objects are in `self.found` then.
    fn search_by(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        path: Path,
        class: &mut Class,
    ) -> Result<Searched, Error> {
        let (begun, most_reads) = self.begin_search(class, path)?;
        let searched = match begun.way {
            Way::Ask => self.search_asked(tree, query, Counts::default())?,
            Way::Read => self.search_read(tree, query, most_reads)?,
        };
        self.end_search(class, &begun, searched.via, &searched.counts)?;
        Ok(searched)
    }

    fn search_read(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
    ) -> Result<Searched, Error> {
        let mut cost = Counts { operations: 1, ..Counts::default() };
        if let Some(walked) = self.read_tree(tree, query, most_reads, &mut cost)? {
            let (asked, gone) = self.resolve_found(tree, &mut cost)?;
            if gone == 0 || matches!(query, Query::Window { .. }) {
                cost.read = u64::from(asked == 0);
                cost.asked = u64::from(asked > 0);
                self.totals.add(&cost);
                let via = match asked {
                    0 => Via::read_after(walked.retries),
                    _ => Via::AskedAfterRead,
                };
                return Ok(Searched { via, counts: cost, nodes_visited: walked.nodes });
            }
        }
        cost.undecided += (cost.right_lapsed + cost.behind_writes == 0) as u64;
        self.search_asked(tree, query, Counts { operations: 0, ..cost })
    }
}

pub(crate) use names::Names;
pub use refine::{RefinedCount, RefinedFound};
pub use remora_protocol::tree::TreeSettings;
