//! A simulated client's operations on links. The field that holds a link is judged as a key, and what a link
//! leads to is a read of the target, which is judged as any other read of it. So a chase gives what the
//! target holds at some moment within the call.

use super::views::KeptLink;
use super::{MS, SimClient, is_open};
use crate::check::keys::{If, KeyOp, Value, said_of_each};
use crate::history::Begun;
use crate::key_links::{HUBS, LinkSwarm, PLAIN, Target};
use crate::probes::Probe;
use crate::values::{HashName, Register};
use remora_client_core::{
    Chased, Error, Link, OpenHash, OpenList, Path, Session, Side, Target as Found,
};
use std::collections::BTreeMap;

/// Keys that links name: the most popular ones, which are there most of the time.
const MOST_TARGETS: u32 = 12;
/// Most links that are followed one after the other.
const MOST_HOPS: u64 = 8;
/// Most links of one batch.
const MOST_FOLLOWED: u64 = 6;
/// Elements of a list of links that trimming leaves.
const MOST_ELEMENTS: i64 = 300;
/// Elements of one look at such a list whose links are kept.
const KEPT_OF_A_LOOK: u64 = 3;
/// Links that one call reports to their owners.
const MENDED_AT_ONCE: usize = 16;

impl SimClient {
    /// Operates on links.
    pub(super) fn use_links(
        &mut self,
        session: &mut Session,
        links: LinkSwarm,
    ) -> Result<(), Error> {
        match self.draw(100) {
            0..25 => self.follow_link(session, self.path()),
            25..37 => self.wander(session),
            37..50 => self.follow_links(session),
            50..58 => self.look_at_hub(session, links),
            58..64 => self.push_to_hub(session, links),
            64..70 => self.mend_links(session),
            _ => self.use_linking_hash(session, links),
        }
    }

    fn use_linking_hash(&mut self, session: &mut Session, links: LinkSwarm) -> Result<(), Error> {
        let hash = HashName::Links(self.draw(links.hashes.into()) as u8);
        if self.draw(1_000) < links.ends {
            return match self.draw(2) {
                0 => self.drop_hash(session, hash),
                _ => self.expire_hash(session, hash),
            };
        }
        let known = self.views.hashes.remove(&hash);
        let mut view = known.map_or_else(|| session.open_hash(&hash.key()), Ok)?;
        let done = match self.draw(100) {
            0..45 => self.read_link(session, (hash, links), &mut view),
            45..55 => self.read_as_text(session, (hash, links), &mut view),
            55..90 => self.set_links(session, (hash, links), &view),
            90..96 => self.remove_links(session, (hash, links), &view),
            _ => self.make_plain(session, (hash, links), &view),
        };
        self.views.hashes.insert(hash, view);
        done
    }

    /// The number of the target that a field's value names; `None` if it is no link.
    pub(super) fn target_number(&self, value: &[u8]) -> Option<i64> {
        let target = Target::named(value);
        if target.is_none() && value != PLAIN {
            self.violate_link("a field has what was set", format!("{value:02x?}"));
        }
        target.map(Target::number)
    }

    fn violate_link(&self, promise: &'static str, seen: String) {
        let seen = format!("client {}: {seen}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    fn target(&self) -> Target {
        let swarm = &self.world.swarm;
        match self.draw(4) {
            0 => Target::Hash(self.draw(swarm.hashes.hashes.into()) as u8),
            _ => Target::Key(self.popular(swarm.keys.min(MOST_TARGETS))),
        }
    }

    fn linking_field(&self, (hash, links): (HashName, LinkSwarm)) -> Register {
        let number = self.popular(links.fields);
        Register { database: self.database(), hash: Some(hash), number }
    }

    /// Some fields, each once.
    fn linking_fields(&self, of: (HashName, LinkSwarm)) -> Vec<Register> {
        let count = 1 + self.draw(of.1.most_at_once);
        let mut fields: Vec<Register> = (0..count).map(|_| self.linking_field(of)).collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// A link was read. It is kept, in the place of another one if there are too many.
    fn keep_link(&mut self, link: Link, links: LinkSwarm) -> Option<Target> {
        let Some(target) = Target::named(&link.key) else {
            self.violate_link("a link names what it was set to", format!("{link:?}"));
            return None;
        };
        let incarnation = self.world.node.borrow().present();
        let kept = KeptLink { link, target, incarnation };
        match self.links.len() < links.kept {
            true => self.links.push(kept),
            false => {
                let at = self.draw(links.kept as u64) as usize;
                self.links[at] = kept;
            }
        }
        Some(target)
    }

    fn read_link(
        &mut self,
        session: &mut Session,
        (hash, links): (HashName, LinkSwarm),
        view: &mut OpenHash,
    ) -> Result<(), Error> {
        let (field, path) = (self.linking_field((hash, links)), self.path());
        let begun = self.begin(field, KeyOp::Nothing);
        match session.link_get(view, &field.name(), path) {
            Ok(link) => {
                let found = link.and_then(|link| self.keep_link(link, links));
                self.end(begun, KeyOp::Get { found: found.map(Target::number) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// The same field, as a client sees it that knows nothing of links.
    fn read_as_text(
        &self,
        session: &mut Session,
        of: (HashName, LinkSwarm),
        view: &mut OpenHash,
    ) -> Result<(), Error> {
        let (field, path) = (self.linking_field(of), self.path());
        let begun = self.begin(field, KeyOp::Nothing);
        self.end_get(begun, session.hash_get(view, &field.name(), path))
    }

    fn set_links(
        &self,
        session: &mut Session,
        of: (HashName, LinkSwarm),
        view: &OpenHash,
    ) -> Result<(), Error> {
        let fields = self.linking_fields(of);
        let targets: Vec<Target> = fields.iter().map(|_| self.target()).collect();
        let set = |target: Target, done| KeyOp::Set {
            value: Value { number: target.number(), expiry: None },
            condition: If::Always,
            done,
        };
        let calls = fields.iter().zip(&targets);
        let calls = calls.map(|(&field, &target)| (field, set(target, None), None));
        let begun = self.world.history.borrow_mut().begin_all(self.number, self.now_ns(), calls);
        let pairs = fields.iter().zip(&targets);
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            pairs.map(|(field, target)| (field.name(), target.name())).collect();
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(name, target)| (name.as_slice(), target.as_slice())).collect();
        match session.link_set(view, &pairs) {
            Ok(_) => {
                let ends = begun.iter().zip(targets);
                ends.for_each(|(&begun, target)| self.end(begun, set(target, Some(true))));
                Ok(())
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn remove_links(
        &self,
        session: &mut Session,
        of: (HashName, LinkSwarm),
        view: &OpenHash,
    ) -> Result<(), Error> {
        let fields = self.linking_fields(of);
        let names: Vec<Vec<u8>> = fields.iter().map(|field| field.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun = self.begin_fields(&fields, KeyOp::Del { removed: None });
        match session.link_del(view, &names) {
            Ok(removed) => {
                let removed = said_of_each(removed, fields.len());
                self.end_fields(&begun, KeyOp::Del { removed })
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// A field is set to a text: if it was a link, it is none from now on.
    fn make_plain(
        &self,
        session: &mut Session,
        of: (HashName, LinkSwarm),
        view: &OpenHash,
    ) -> Result<(), Error> {
        let fields = [self.linking_field(of)];
        let gone = KeyOp::Del { removed: None };
        let begun = self.begin_fields(&fields, gone);
        match session.hash_set(view, &[(&fields[0].name(), PLAIN)]) {
            Ok(_) => self.end_fields(&begun, gone),
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// A link that it has read, at this server or at one before, or one that no client has read.
    fn some_link(&self) -> KeptLink {
        let at = self.draw(self.links.len() as u64 + 1) as usize;
        self.links.get(at).cloned().unwrap_or_else(|| {
            let target = self.target();
            let link = Link { key: target.name().into(), hint: None, link: None };
            KeptLink { link, target, incarnation: None }
        })
    }

    fn begin_target(&self, target: Target) -> Vec<Begun> {
        let database = self.database();
        match target {
            Target::Key(number) => {
                vec![self.begin(Register { database, hash: None, number }, KeyOp::Nothing)]
            }
            Target::Hash(hash) => {
                self.begin_fields(&self.all_fields(HashName::Fixed(hash)), KeyOp::Nothing)
            }
        }
    }

    /// Follows one link after the other by READs alone, as a client that walks over a graph. It does not
    /// hear whether the server has gone meanwhile.
    fn wander(&mut self, session: &mut Session) -> Result<(), Error> {
        let longest_ns = [1, MS, 300 * MS][self.draw(3) as usize];
        for _ in 0..1 + self.draw(MOST_HOPS) {
            self.follow_link(session, Path::Read)?;
            self.pause(self.draw(longest_ns));
        }
        Ok(())
    }

    fn follow_link(&mut self, session: &mut Session, path: Path) -> Result<(), Error> {
        let kept = self.some_link();
        let begun = self.begin_target(kept.target);
        match session.chase(&kept.link, path) {
            Ok(chased) => {
                let stale = chased.counts.stale_hints;
                self.world.probes.borrow_mut().add(Probe::KeyLinkStale, stale);
                self.saw_target(&begun, &kept, &chased)
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn follow_links(&mut self, session: &mut Session) -> Result<(), Error> {
        let count = 2 + self.draw(MOST_FOLLOWED - 1);
        let kept: Vec<KeptLink> = (0..count).map(|_| self.some_link()).collect();
        let begun: Vec<_> = kept.iter().map(|kept| self.begin_target(kept.target)).collect();
        let all: Vec<Link> = kept.iter().map(|kept| kept.link.clone()).collect();
        let (mut ended, path) = (vec![false; kept.len()], self.path());
        let mut saw = Ok(());
        let result = session.chase_batch(&all, path, &mut |number, chased| {
            ended[number] = true;
            saw = saw.and(self.saw_target(&begun[number], &kept[number], chased));
        });
        saw?;
        let left = begun.iter().zip(ended).filter(|(_, ended)| !ended).map(|(begun, _)| begun);
        match result {
            Ok(counts) => {
                self.world.probes.borrow_mut().add(Probe::KeyLinkStale, counts.stale_hints);
                if left.count() > 0 {
                    self.violate_link("a batch answers every link", format!("{all:?}"));
                }
                Ok(())
            }
            Err(error) if is_open(error) => Err(error),
            Err(error) => { left }.try_for_each(|begun| self.fields_failed(begun, error)),
        }
    }

    /// A link was followed.
    fn saw_target(
        &self,
        begun: &[Begun],
        kept: &KeptLink,
        chased: &Chased<'_>,
    ) -> Result<(), Error> {
        let is_read = chased.served_by.is_read();
        let is_gone = matches!(chased.target, Found::Gone);
        if is_gone && is_read {
            let promise = "only the server says that a link's target is gone";
            self.violate_link(promise, format!("{:?}", kept.target));
        }
        let present = self.world.node.borrow().present();
        let is_of_former = kept.link.hint.is_some() && kept.incarnation != present;
        let mut probes = self.world.probes.borrow_mut();
        probes.add(Probe::KeyLinkRead, is_read.into());
        probes.add(Probe::KeyLinkGone, is_gone.into());
        probes.add(Probe::KeyLinkOfFormer, is_of_former.into());
        drop(probes);
        match (&chased.target, kept.target) {
            (Found::Gone, _) => self.end_fields(begun, KeyOp::Get { found: None }),
            (Found::Text(text), Target::Key(_)) => {
                let found = self.number_of(begun[0].key, Some(text));
                self.end_fields(begun, KeyOp::Get { found })
            }
            (Found::Hash(hash), Target::Hash(_)) => {
                let all = hash.iter().map(|(name, field)| (name.to_vec(), field));
                let mut all: BTreeMap<_, _> = all.collect();
                let any_link = all.values().any(|field| field.is_link);
                let mut value = |begun: &Begun| all.remove(&begun.key.name());
                let values = begun.iter().map(|of| value(of).map(|field| field.value.to_vec()));
                let values = values.collect();
                if any_link || !all.is_empty() || hash.key() != kept.target.name() {
                    let promise = "a hash has the fields that were set";
                    self.violate_link(promise, format!("{:?}: {all:02x?}", kept.target));
                }
                self.saw_fields(begun, values)
            }
            (other, target) => {
                let promise = "a link leads to what its key holds";
                self.violate_link(promise, format!("{target:?}: {other:02x?}"));
                Ok(())
            }
        }
    }

    /// The view of a list of links.
    fn hub(&mut self, session: &Session, hub: u64) -> Result<OpenList, Error> {
        let key = format!("hub:{hub}").into_bytes();
        self.views.hubs.remove(&hub).map_or_else(|| session.open_list(&key), Ok)
    }

    /// An operation that no history has. `None` if it was refused.
    pub(super) fn unjudged<T>(&self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        self.world.history.borrow_mut().calls += 1;
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_open(error) => Err(error),
            Err(error) => {
                if !self.world.may_refuse(error) {
                    self.violate_link("nothing is refused without a reason", error.to_string());
                }
                Ok(None)
            }
        }
    }

    fn look_at_hub(&mut self, session: &mut Session, links: LinkSwarm) -> Result<(), Error> {
        let number = self.draw(HUBS);
        let mut view = self.hub(session, number)?;
        let range = [(0, -1), (-20, -1), (5, 30)][self.draw(3) as usize];
        let found = self.unjudged(session.link_range(&mut view, range, self.path()));
        self.views.hubs.insert(number, view);
        let found = found?.unwrap_or_default();
        if number == 0 && found.iter().any(Option::is_none) {
            self.violate_link("an element that is a link stays one", format!("{found:?}"));
        }
        let named = |link: &Link| Target::named(&link.key).is_some();
        if !found.iter().flatten().all(named) {
            self.violate_link("a link names what it was set to", format!("{found:?}"));
        }
        for _ in 0..KEPT_OF_A_LOOK.min(found.len() as u64) {
            let at = self.draw(found.len() as u64) as usize;
            if let Some(link) = found[at].clone() {
                self.keep_link(link, links);
            }
        }
        Ok(())
    }

    fn push_to_hub(&mut self, session: &mut Session, links: LinkSwarm) -> Result<(), Error> {
        let number = self.draw(HUBS);
        let view = self.hub(session, number)?;
        let side = [Side::Left, Side::Right][self.draw(2) as usize];
        let done = match self.draw(8) {
            0 => self.unjudged(session.list_trim(&view, (0, MOST_ELEMENTS - 1))),
            1 if number > 0 => self.unjudged(session.list_push(&view, side, &[PLAIN]).map(drop)),
            _ => {
                let count = 1 + self.draw(links.most_at_once);
                let targets: Vec<Vec<u8>> = (0..count).map(|_| self.target().name()).collect();
                let targets: Vec<&[u8]> = targets.iter().map(Vec::as_slice).collect();
                self.unjudged(session.link_push(&view, side, &targets).map(drop))
            }
        };
        self.views.hubs.insert(number, view);
        done.map(drop)
    }

    /// Reports stale links to their owners.
    fn mend_links(&self, session: &mut Session) -> Result<(), Error> {
        let mended = self.unjudged(session.mend_links(MENDED_AT_ONCE))?;
        self.world.probes.borrow_mut().add(Probe::KeyLinkMended, mended.unwrap_or(0));
        Ok(())
    }
}
