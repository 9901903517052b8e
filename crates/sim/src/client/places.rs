//! A simulated client's operations on trees of places.

use super::{MS, SimClient, is_open};
use crate::check::places::{Act, Seen};
use crate::places::{
    FAR_MS, data_of, everything, has_name, id_text, is_moved, may_expire, new_rect, number_of,
    number_of_id, reading, refine_of, settings, shape_of, tree_name, window, without_shape,
};
use crate::probes::Probe;
use remora_client_core::{
    Error, Expiry, OpenTree, Path, Predicate, PutObject, Query, Rect, ServedBy, Session,
};
use remora_geometry::Wkb;
use remora_layout::limits::SEARCH_TURN_BYTES;
use remora_layout::node::ENTRY_BYTES;
use remora_protocol::message::Status;
use std::fmt;

/// Objects that one turn of a search gives.
const TURN_OBJECTS: usize = SEARCH_TURN_BYTES / ENTRY_BYTES;

const NO_TREE: Error = Error::Refused(Status::NoTree);

impl SimClient {
    /// Operates on a tree.
    pub(super) fn use_tree(&mut self, session: &mut Session) -> Result<(), Error> {
        let swarm = self.world.swarm.places;
        self.world.history.borrow_mut().calls += 1;
        if swarm.moves && self.draw(2) == 0 {
            return self.look_at_moved_tree(session);
        }
        let trees = swarm.trees_of(self.database());
        let tree = trees.start + self.draw(trees.len() as u64) as u32;
        if self.draw(1_000) < swarm.drops {
            return match self.draw(2) {
                0 => self.drop_tree(session, tree),
                _ => self.expire_tree(session, tree),
            };
        }
        if !self.has_view(tree) {
            self.open_tree(session, tree)?;
        }
        if !self.has_view(tree) && self.draw(8) > 0 {
            // A PUT would make it.
            return Ok(());
        }
        match self.draw(100) {
            0..40 => self.put(session, tree),
            40..50 => self.remove(session, tree),
            50..58 => self.object(session, tree),
            58..66 => self.count(session, tree),
            66..76 => self.search(session, tree, true),
            76..84 => self.refined(session, tree),
            _ => self.search(session, tree, false),
        }
    }

    /// Looks at a tree that moves from key to key, under a key that it has, had or will have.
    fn look_at_moved_tree(&mut self, session: &mut Session) -> Result<(), Error> {
        let trees = self.world.moved_trees.borrow();
        let latest = trees.len().saturating_sub(1 + self.draw(4) as usize);
        let Some(&tree) = trees.get(latest) else { return Ok(()) };
        drop(trees);
        if !self.has_view(tree) {
            let Some(opened) = self.open_tree_if_there(session, tree)? else { return Ok(()) };
            self.views.trees.insert(tree, opened);
        }
        match self.draw(100) {
            0..10 => self.object(session, tree),
            10..20 => self.count(session, tree),
            20..30 => self.search(session, tree, true),
            30..45 => self.refined(session, tree),
            _ => self.search(session, tree, false),
        }
    }

    /// The session is another one: it has no views.
    pub(super) fn close_views(&mut self) {
        let mut probes = self.world.probes.borrow_mut();
        let trees = std::mem::take(&mut self.views.trees);
        trees.values().for_each(|view| probes.add_view(&view.events()));
        let hashes = std::mem::take(&mut self.views.hashes);
        hashes.values().for_each(|view| probes.add_hash(&view.events()));
        let ordered = std::mem::take(&mut self.views.ordered);
        ordered.values().for_each(|view| probes.add_ordered(&view.events()));
        self.views.sorted.clear();
        self.views.collections.clear();
        self.views.sets.clear();
        self.views.lists.clear();
        self.views.hubs.clear();
    }

    fn has_view(&self, tree: u32) -> bool {
        self.views.trees.contains_key(&tree)
    }

    /// A tree is opened, and made before if it is not there.
    fn open_tree(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let name = tree_name(tree);
        let mut opened = self.open_tree_if_there(session, tree)?;
        // One client of the tree's database loads it; no other client builds from its objects.
        let databases = self.world.swarm.databases;
        let loader = tree % (self.world.swarm.clients / databases).max(1);
        let loads = self.world.swarm.places.loads && self.number / databases == loader;
        let waits = self.world.swarm.places.loads && !loads && self.draw(8) > 0;
        if opened.is_none() && !waits {
            let settings = settings(&mut |below| self.draw(below));
            self.tell(tree, format_args!("is made: {settings:?}"));
            match session.create_tree(&name, &settings) {
                Ok(is_new) => {
                    if is_new && loads {
                        self.load(session, tree)?;
                    }
                }
                Err(error) => return self.tree_failed(&[], error),
            }
            opened = self.open_tree_if_there(session, tree)?;
        }
        match opened {
            Some(opened) => self.views.trees.insert(tree, opened),
            None => self.views.trees.remove(&tree),
        };
        Ok(())
    }

    fn open_tree_if_there(
        &mut self,
        session: &mut Session,
        tree: u32,
    ) -> Result<Option<OpenTree>, Error> {
        let opened = session.open_tree(&tree_name(tree))?;
        Ok(opened.map(|opened| opened.reading(reading(&mut |below| self.draw(below)))))
    }

    /// Builds a tree that was just made of many objects.
    fn load(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let swarm = self.world.swarm.places;
        let share = if swarm.is_large() { 4 } else { 1 + self.draw(4) };
        let mut objects = Vec::new();
        for id in (0..swarm.ids).filter(|id| self.draw(4) < share && !has_name(*id)) {
            let number = self.world.history.borrow().places.next_number() + objects.len() as u32;
            let rect = new_rect(&swarm, id, number, &mut |below| self.draw(below));
            objects.push((id, without_shape(rect)));
        }
        let act = self.begin_put(tree, &objects, None);
        match session.load_tree(&tree_name(tree), &mut objects.iter().copied(), &mut |_| {}) {
            Ok(loaded) if loaded == objects.len() as u64 => {
                self.done(act);
                Ok(())
            }
            // A request of an earlier session of this client may have come between.
            Ok(_) => {
                self.views.unknown.push(act);
                Ok(())
            }
            Err(error) if !is_open(error) => {
                self.views.unknown.push(act);
                self.tree_failed(&[], error)
            }
            Err(error) => self.tree_failed(&[act], error),
        }
    }

    fn drop_tree(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let now_ns = self.now_ns();
        self.tell(tree, format_args!("is to be dropped"));
        let act = self.world.history.borrow_mut().places.clear(Some(tree), now_ns);
        match session.drop_tree(&tree_name(tree)) {
            Ok(_) => {
                self.done(act);
                self.open_tree(session, tree)
            }
            Err(error) => self.tree_failed(&[act], error),
        }
    }

    /// Lets a tree expire, and waits until it has: that is when it is cleared, or
    /// before.
    fn expire_tree(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (now_ns, name) = (self.now_ns(), tree_name(tree));
        let at_ms = self.soon_ms();
        self.tell(tree, format_args!("is to expire at {at_ms}"));
        let act = self.world.history.borrow_mut().places.clear(Some(tree), now_ns);
        match session.expire_at(&name, at_ms) {
            // Otherwise its effect may come at any later time.
            Err(error) if is_open(error) => return self.tree_failed(&[], error),
            Err(error) => return self.tree_failed(&[act], error),
            Ok(_) => {}
        }
        match self.await_expiry(session, &name, at_ms) {
            Ok(true) => {
                self.done(act);
                self.open_tree(session, tree)
            }
            Ok(false) => Ok(()),
            Err(error) => self.tree_failed(&[], error),
        }
    }

    /// The expiry of an object whose expiry is observed.
    pub(super) fn soon_ms(&self) -> u64 {
        self.world.node.borrow().unix_ms() + 1 + self.draw(20)
    }

    /// Waits until a key has expired at this time, or before. False if another client has given it
    /// another time, or the world has ended. If another client removes it meanwhile it is gone as
    /// well.
    pub(super) fn await_expiry(
        &self,
        session: &mut Session,
        key: &[u8],
        at_ms: u64,
    ) -> Result<bool, Error> {
        while !self.world.is_over() {
            match session.expires_at(key)? {
                Some(ms) if ms == at_ms => self.pause(MS),
                Some(_) => return Ok(false),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    fn id(&self) -> u64 {
        self.draw(self.world.swarm.places.ids)
    }

    fn begin_put(&self, tree: u32, objects: &[(u64, Rect)], with_data: Option<bool>) -> Act {
        let now_ns = self.now_ns();
        match objects {
            [(id, rect)] => self.tell(tree, format_args!("put {id} {rect:?} {with_data:?}")),
            _ => self.tell(tree, format_args!("load {} objects", objects.len())),
        }
        self.world.history.borrow_mut().places.put(tree, objects, with_data, now_ns)
    }

    fn done(&self, act: Act) {
        self.world.history.borrow_mut().places.done(act, self.now_ns());
    }

    fn put(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (id, swarm) = (self.id(), self.world.swarm.places);
        let number = self.world.history.borrow().places.next_number();
        let rect = new_rect(&swarm, id, number, &mut |below| self.draw(below));
        let with_data = [None, None, Some(true), Some(false)][self.draw(4) as usize];
        let bytes = if with_data == Some(true) { data_of(number) } else { Vec::new() };
        let data = with_data.map(|_| &bytes[..]);
        let (act, from_ns) = (self.begin_put(tree, &[(id, rect)], with_data), self.now_ns());
        let geometry = shape_of(&rect).map(|shape| shape.to_wkb());
        let expiry = match self.draw(8) {
            0..4 if may_expire(id) => Expiry::At(FAR_MS),
            4 => Expiry::Never,
            _ => Expiry::Keep,
        };
        let text = id_text(id);
        let put = PutObject {
            data,
            geometry: geometry.as_deref().map(|wkb| Wkb::known(wkb, rect)),
            expiry,
            ..PutObject::new(&*text, rect)
        };
        match session.put_object(&tree_name(tree), &put) {
            Ok(is_new) => {
                self.done(act);
                self.saw(tree, from_ns, Seen::Changed { act, id, was_there: !is_new });
                Ok(())
            }
            Err(error) => self.tree_failed(&[act], error),
        }
    }

    fn remove(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (id, from_ns) = (self.id(), self.now_ns());
        self.tell(tree, format_args!("remove {id}"));
        let act = self.world.history.borrow_mut().places.remove(tree, id, from_ns);
        match session.remove_place(&tree_name(tree), id_text(id).as_str()) {
            Ok(was_there) => {
                self.done(act);
                self.saw(tree, from_ns, Seen::Changed { act, id, was_there });
                Ok(())
            }
            Err(error) => self.tree_failed(&[act], error),
        }
    }

    fn object(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (id, from_ns) = (self.id(), self.now_ns());
        let found = match session.place(&tree_name(tree), id_text(id).as_str()) {
            Ok(place) => place.map(|place| {
                let geometry = shape_of(&place.rect).map(|shape| shape.to_wkb());
                if place.geometry != geometry.as_deref() {
                    let promise = "a place has the geometry that came with its rectangle";
                    let seen = format!("tree {tree}, object {id}: {place:?}");
                    self.world.history.borrow_mut().violate(promise, seen);
                }
                (place.rect, place.data.map(<[u8]>::to_vec))
            }),
            Err(NO_TREE) => None,
            Err(error) => return self.tree_failed(&[], error),
        };
        let found = found.map(|(rect, data)| {
            let number = data.map(|data| {
                let number = number_of(&data);
                if number.is_none() {
                    let promise = "a place's bytes are some that were written";
                    let seen = format!("tree {tree}, object {id}: {data:02x?}");
                    self.world.history.borrow_mut().violate(promise, seen);
                }
                number.unwrap_or_default()
            });
            (rect, number)
        });
        self.saw(tree, from_ns, Seen::Object { id, found });
        Ok(())
    }

    fn predicate(&self) -> Predicate {
        let all = [Predicate::Intersects, Predicate::Intersects, Predicate::Within];
        all.get(self.draw(4) as usize).copied().unwrap_or(Predicate::Contains)
    }

    fn count(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (window, predicate) = (window(&mut |below| self.draw(below)), self.predicate());
        let from_ns = self.now_ns();
        let count = match session.count_places(&tree_name(tree), window, predicate) {
            Err(NO_TREE) => 0,
            Err(error) => return self.tree_failed(&[], error),
            Ok(count) => count,
        };
        self.saw(tree, from_ns, Seen::Count { window, predicate, count });
        Ok(())
    }

    fn search(&mut self, session: &mut Session, tree: u32, is_nearest: bool) -> Result<(), Error> {
        // By READs such a search would take most of a world's time.
        let asks = self.world.swarm.places.is_large() && self.draw(2) == 0;
        let (path, window) = match asks {
            true => (Path::Ask, everything()),
            false => (self.path(), window(&mut |below| self.draw(below))),
        };
        let predicate = self.predicate();
        let (point, wanted) = ((window.min_x, window.min_y), self.draw(20) as usize);
        let query = match is_nearest {
            true => Query::Nearest { x: point.0, y: point.1, wanted },
            false => Query::Window { window, predicate },
        };
        let from_ns = self.now_ns();
        let view = self.views.trees.get_mut(&tree);
        // Memory was full, or another client removed it meanwhile.
        let Some(view) = view else { return Ok(()) };
        let searched = session.search_tree(view, &query, path);
        let found = match searched {
            Ok(found) => {
                let mut probes = self.world.probes.borrow_mut();
                probes.add(Probe::TreeRead, found.counts.read);
                let of_moved = if is_moved(tree) { found.counts.read } else { 0 };
                probes.add(Probe::TreeMovedRead, of_moved);
                let in_parts = found.counts.read == 0 && found.objects.len() > TURN_OBJECTS;
                probes.add(Probe::TreeInParts, in_parts as u64);
                let after_all = found.served_by == ServedBy::AskedAfterRead;
                probes.add(Probe::TreeAskedAfterRead, after_all as u64);
                found.iter().map(|(id, rect)| (number_of_id(id), rect)).collect()
            }
            Err(NO_TREE) => Vec::new(),
            Err(error) => return self.tree_failed(&[], error),
        };
        let seen = match is_nearest {
            true => Seen::Nearest { point, wanted, found },
            false => Seen::Window { window, predicate, found },
        };
        self.saw(tree, from_ns, seen);
        Ok(())
    }

    fn refined(&mut self, session: &mut Session, tree: u32) -> Result<(), Error> {
        let (path, window) = (self.path(), window(&mut |below| self.draw(below)));
        let from_ns = self.now_ns();
        let view = self.views.trees.get_mut(&tree);
        let Some(view) = view else { return Ok(()) };
        let found = match session.search_refined(view, &refine_of(&window), path) {
            Ok(found) => {
                let mut probes = self.world.probes.borrow_mut();
                probes.add(Probe::TreeRefinedRead, (found.counts.read * found.counts.hits).min(1));
                probes.add(Probe::TreeRecordStale, found.counts.stale);
                let ids = found.objects.iter().map(|object| number_of_id(found.id(object)));
                ids.zip(found.objects.iter().map(|object| object.rect)).collect()
            }
            Err(NO_TREE) => Vec::new(),
            Err(error) => return self.tree_failed(&[], error),
        };
        self.saw(tree, from_ns, Seen::Refined { window, found });
        Ok(())
    }

    /// A call has come to its end.
    fn saw(&self, tree: u32, from_ns: u64, seen: Seen) {
        self.tell(tree, format_args!("from {from_ns}: {seen:?}"));
        let now_ns = self.now_ns();
        self.world.history.borrow_mut().places.look(tree, from_ns, now_ns, seen);
    }

    fn tell(&self, tree: u32, what: fmt::Arguments<'_>) {
        let now_ns = self.now_ns();
        let mut history = self.world.history.borrow_mut();
        history.note(now_ns, self.number, format_args!("tree {tree} {what}"));
    }

    /// A call about a tree failed. If it was refused it had no effect, and the
    /// session lives on; if it timed out, it may have one yet.
    fn tree_failed(&mut self, acts: &[Act], error: Error) -> Result<(), Error> {
        if is_open(error) {
            self.views.unknown.extend(acts);
            return Err(error);
        }
        let mut history = self.world.history.borrow_mut();
        acts.iter().for_each(|&act| history.places.refused(act));
        drop(history);
        let is_reason = matches!(
            error,
            Error::Refused(
                Status::NoTree | Status::NotEmpty | Status::TwiceGiven | Status::OtherLoad
            )
        );
        if !self.world.may_refuse(error) && !is_reason {
            let seen = format!("client {}: {error}", self.number);
            self.world.history.borrow_mut().violate("nothing is refused without a reason", seen);
        }
        Ok(())
    }
}
