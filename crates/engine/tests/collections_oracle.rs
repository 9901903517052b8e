//! Random histories of collections against documents that are looked at one after the other: whatever index is
//! hinted at, and wherever steps are cut, the answers are the same. The log makes the same collection again.

use crate::collections::{
    Model, NOW, ask, bytes, create_index, find, find_step, id_of, insert, raw, shard, write,
};
use bson::{Bson, Document, bson, doc};
use remora_arena::{NoJournal, Owner};
use remora_document::{Filter, SortKeys, Update, UpdateContext, compare};
use remora_engine::{Applied, Origin, Shard, ShardOptions};
use remora_log::Cursor;
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_testing::Random;

/// A shard, what it should hold, and a copy that applies its log.
struct World {
    shard: Shard,
    copy: Shard,
    cursor: Cursor,
    /// All that the log said, and how many entries of it the copy has.
    log: Vec<u8>,
    applied: usize,
    random: Random,
    model: Model,
    /// Indexes: their keys and options.
    indexes: Vec<(Document, Document)>,
    steps: u64,
    rings: u64,
    refused: u64,
}

fn draw_scalar(random: &mut Random) -> Bson {
    match random.below(12) {
        0 => Bson::Null,
        1 => Bson::Double(random.below(6) as f64 / 2.0),
        2 => Bson::Int64(random.below(6) as i64),
        3 => Bson::String(format!("s{}", random.below(5))),
        4 => Bson::Boolean(random.one_in(2)),
        5 => Bson::Document(doc! { "x": random.below(2) }),
        6 if random.one_in(4) => Bson::Double(f64::NAN),
        7 if random.one_in(4) => Bson::String("long ".repeat(150 + random.below(2) as usize)),
        _ => Bson::Int32(random.below(12) - 4),
    }
}

fn draw_value(random: &mut Random) -> Bson {
    if random.one_in(5) {
        let entries = random.below(4);
        return Bson::Array((0..entries).map(|_| draw_scalar(random)).collect());
    }
    draw_scalar(random)
}

fn draw_id(random: &mut Random) -> Bson {
    match random.below(8) {
        0 => Bson::String(format!("id{}", random.below(40))),
        1 => Bson::Double(random.below(60) as f64 / 2.0),
        _ => Bson::Int32(random.below(220)),
    }
}

fn draw_document(random: &mut Random) -> Document {
    let mut document = doc! { "_id": draw_id(random) };
    if !random.one_in(5) {
        document.insert("a", draw_value(random));
    }
    if !random.one_in(5) {
        document.insert("b", draw_scalar(random));
    }
    if random.one_in(2) {
        let inner = |random: &mut Random| {
            let mut inner = doc! { "d": draw_scalar(random) };
            if random.one_in(2) {
                inner.insert("e", draw_value(random));
            }
            Bson::Document(inner)
        };
        let value = match random.one_in(3) {
            true => Bson::Array((0..random.below(4)).map(|_| inner(random)).collect()),
            false => inner(random),
        };
        document.insert("c", value);
    }
    if !random.one_in(4) {
        document.insert("g", draw_geometry(random));
    }
    document
}

fn draw_place(random: &mut Random) -> Bson {
    match random.below(8) {
        0 => bson!([180, random.below(3)]),
        1 => bson!([-180, random.below(3)]),
        2 => bson!([random.below(90), 90]),
        _ => bson!([random.below(12) as f64 / 2.0, random.below(12) - 4]),
    }
}

/// A geometry that an index on the sphere can have; that in the plane has no lines.
fn draw_geometry(random: &mut Random) -> Bson {
    match random.below(8) {
        0 => Bson::Null,
        1 => bson!([draw_place(random), draw_place(random)]),
        2 => {
            bson!({ "type": "LineString", "coordinates": [draw_place(random), draw_place(random)] })
        }
        3 => bson!({ "type": "Point", "coordinates": draw_place(random) }),
        // Filters look at the pair in the pair, too.
        4 => bson!([1, 2, draw_place(random)]),
        _ => draw_place(random),
    }
}

fn draw_region(random: &mut Random) -> Document {
    let size = random.pick(&[0.0, 0.5, 2.0, 20.0]);
    let centre = draw_place(random);
    match random.below(4) {
        0 => doc! { "$geoWithin": { "$box": [centre, draw_place(random)] } },
        1 => doc! { "$geoWithin": { "$center": [centre, size] } },
        2 => doc! { "$geoWithin": { "$centerSphere": [centre, size / 30.0] } },
        _ => doc! { "$geoIntersects": { "$geometry": {
        "type": "LineString", "coordinates": [centre, [0.5, size / 2.0]] } } },
    }
}

fn draw_condition(random: &mut Random, path: &str) -> Bson {
    let value = if path == "_id" { draw_id(random) } else { draw_scalar(random) };
    let other = if path == "_id" { draw_id(random) } else { draw_scalar(random) };
    let condition = match random.below(14) {
        0 => doc! { "$gt": value },
        1 => doc! { "$gte": value },
        2 => doc! { "$lt": value },
        3 => doc! { "$lte": value },
        4 => doc! { "$gte": value, "$lt": other },
        5 => doc! { "$in": [value, other, draw_scalar(random)] },
        6 => doc! { "$ne": value },
        7 => doc! { "$exists": random.one_in(2) },
        8 => doc! { "$elemMatch": { "$gte": value, "$lt": other } },
        9 => doc! { "$nin": [value, other] },
        10 => doc! { "$elemMatch": { "d": value } },
        _ => return value,
    };
    Bson::Document(condition)
}

const PATHS: [&str; 6] = ["_id", "a", "b", "c.d", "c.e", "c"];

fn draw_filter(random: &mut Random) -> Document {
    let mut filter = Document::new();
    for _ in 0..random.pick(&[0, 1, 1, 1, 2, 2, 3]) {
        if random.one_in(6) {
            filter.insert("g", draw_region(random));
            continue;
        }
        let path = random.pick(&PATHS);
        let condition = draw_condition(random, path);
        match random.below(8) {
            0 => {
                let other = random.pick(&PATHS);
                let or = vec![
                    Bson::Document(doc! { path: condition }),
                    Bson::Document(doc! { other: draw_condition(random, other) }),
                ];
                filter.insert("$or", or);
            }
            1 => {
                let and = vec![
                    Bson::Document(doc! { path: condition }),
                    Bson::Document(doc! { path: draw_condition(random, path) }),
                ];
                filter.insert("$and", and);
            }
            _ => {
                filter.insert(path, condition);
            }
        }
    }
    filter
}

fn draw_index(random: &mut Random) -> (Document, Document) {
    let mut key = Document::new();
    for _ in 0..random.pick(&[1, 1, 2, 3]) {
        let path = random.pick(&["a", "b", "c.d", "c.e", "_id"]);
        key.insert(path, if random.one_in(3) { -1 } else { 1 });
    }
    if random.one_in(8) {
        key = doc! { "b": "hashed" };
    }
    if random.one_in(5) {
        key = match random.below(3) {
            0 => doc! { "g": "2d" },
            1 => doc! { "b": 1, "g": "2dsphere" },
            _ => doc! { "g": "2dsphere" },
        };
    }
    let mut more = Document::new();
    match random.below(8) {
        0 => {
            more.insert("sparse", true);
        }
        1 => {
            more.insert("partialFilterExpression", doc! { "b": { "$gte": 0 } });
        }
        2 if key.len() == 1 && !key.values().any(|of| of.as_str().is_some()) => {
            more.insert("unique", true);
        }
        _ => {}
    }
    (key, more)
}

fn draw_update(random: &mut Random) -> Document {
    let path = random.pick(&["a", "b", "c.d", "c.e", "f"]);
    match random.below(8) {
        0 => doc! { "$unset": { path: "" } },
        1 => doc! { "$inc": { "b": 1 } },
        2 => doc! { "$push": { "a": draw_scalar(random) } },
        3 => doc! { "a": draw_value(random), "b": draw_scalar(random) },
        4 => doc! { "$rename": { "a": "b" } },
        5 => doc! { "$set": { "g": draw_geometry(random) } },
        _ => doc! { "$set": { path: draw_value(random) } },
    }
}

/// The values at a path of one name, as an index with one field has them.
fn keys_of(document: &Document, path: &str) -> Vec<Bson> {
    match document.get(path) {
        None => vec![Bson::Null],
        Some(Bson::Array(all)) if all.is_empty() => vec![Bson::Undefined],
        Some(Bson::Array(all)) => all.clone(),
        Some(value) => vec![value.clone()],
    }
}

fn is_same(one: &Bson, other: &Bson) -> bool {
    let of = |value: &Bson| raw(&doc! { "v": value.clone() });
    let (one, other) = (of(one), of(other));
    compare(one.get("v").unwrap().unwrap(), other.get("v").unwrap().unwrap()).is_eq()
}

impl World {
    fn new(seed: u64) -> Self {
        let shard = shard(32 << 20);
        let options = ShardOptions { record_secret: 9, ..ShardOptions::default() };
        let mut copy = Shard::new(Owner::heap(32 << 20, NoJournal), options);
        copy.begin_applying();
        let cursor = shard.log().oldest_cursor();
        let random = Random::new(seed);
        let (model, indexes) = (Model::new(), Vec::new());
        let (log, applied) = (Vec::new(), 0);
        Self {
            shard,
            copy,
            cursor,
            log,
            applied,
            random,
            model,
            indexes,
            steps: 0,
            rings: 0,
            refused: 0,
        }
    }

    /// Whether a document may be there beside the others.
    fn may_be(&self, id: &[u8], document: &Document) -> bool {
        let unique = self.indexes.iter().filter(|(_, more)| more.contains_key("unique"));
        unique.into_iter().all(|(key, _)| {
            let path = key.keys().next().unwrap();
            if path.contains('.') {
                // The oracle knows paths of one name; what it does not know it does not foresee.
                return true;
            }
            let own = keys_of(document, path);
            self.model.iter().filter(|(other, _)| *other != id).all(|(_, other)| {
                let theirs = keys_of(other, path);
                !own.iter().any(|one| theirs.iter().any(|other| is_same(one, other)))
            })
        })
    }

    fn insert(&mut self) {
        let count = self.random.pick(&[1, 1, 2, 5, 90]);
        let documents: Vec<Document> =
            (0..count).map(|_| draw_document(&mut self.random)).collect();
        let ordered = self.random.one_in(2);
        let answer = insert(&mut self.shard, &documents, ordered).ok();
        let failures = answer.documents();
        let mut failed = failures.iter();
        let mut next = failed.next();
        for (at, document) in documents.iter().enumerate() {
            let (id, code) = (id_of(document), next.map(|of| of.get_i32("code").unwrap()));
            let has_failed = next.is_some_and(|of| of.get_i32("index").ok() == Some(at as i32));
            let may_be = !self.model.contains_key(&id) && self.may_be(&id, document);
            if has_failed {
                let is_known = !may_be || code != Some(11000) || self.has_dotted_unique();
                assert!(is_known, "{document} was refused: {next:?}");
                self.refused += 1;
                next = failed.next();
                if ordered {
                    break;
                }
                continue;
            }
            assert!(may_be, "{document} is there beside another one");
            self.model.insert(id, document.clone());
        }
        assert!(next.is_none());
    }

    fn has_dotted_unique(&self) -> bool {
        let dotted = |(key, more): &(Document, Document)| {
            more.contains_key("unique") && key.keys().any(|path| path.contains('.'))
        };
        self.indexes.iter().any(dotted)
    }

    fn matching(&self, filter: &Document) -> Vec<Vec<u8>> {
        let filter = Filter::parse(&raw(filter)).unwrap();
        let all = self.model.iter().filter(|(_, document)| filter.matches(&raw(document)));
        all.map(|(id, _)| id.clone()).collect()
    }

    fn remove(&mut self) {
        let filter = draw_filter(&mut self.random);
        let is_multi = self.random.one_in(3);
        let matching = self.matching(&filter);
        if is_multi && matching.len() * 3 > self.model.len() && !self.random.one_in(20) {
            return;
        }
        let give = if is_multi { "none" } else { "before" };
        let mut request = doc! { "q": filter, "multi": is_multi };
        if !is_multi {
            request.insert("give", give);
        }
        let (number, _, reply) = write(&mut self.shard, request);
        if is_multi {
            assert_eq!(number, matching.len() as i64);
            matching.iter().for_each(|id| drop(self.model.remove(id)));
            return;
        }
        assert_eq!(number, i64::from(!matching.is_empty()));
        if number == 1 {
            let gone = reply.get_document("document").unwrap();
            let id = id_of(gone);
            assert!(matching.contains(&id));
            assert_eq!(bytes(&self.model.remove(&id).unwrap()), bytes(gone));
        }
    }

    fn update(&mut self) {
        let (filter, update) = (draw_filter(&mut self.random), draw_update(&mut self.random));
        let is_operators = update.keys().next().unwrap().starts_with('$');
        let is_multi = is_operators && self.random.one_in(2);
        let matching = self.matching(&filter);
        let parsed = Update::parse(&raw(&update), &[]).unwrap();
        let mut request = doc! { "q": filter.clone(), "u": update.clone(), "multi": is_multi };
        let is_plain = |of: &&(Document, Document)| {
            of.1.is_empty() && of.0.values().all(|of| of.as_i32().is_some())
        };
        let hint = self.indexes.iter().find(is_plain).map(name_of);
        if let Some(hint) = hint.filter(|_| self.random.one_in(3)) {
            request.insert("hint", hint);
        }
        let (number, _, reply) = write(&mut self.shard, request);
        let all = find(&mut self.shard, doc! {}).2;
        let context = UpdateContext { now_ms: NOW.unix_ms as i64, ..UpdateContext::default() };
        let mut changed = 0;
        let before = std::mem::take(&mut self.model);
        for document in all {
            let (id, old) = (id_of(&document), &before[&id_of(&document)]);
            let mut new = old.clone();
            let may_change = matching.contains(&id) && parsed.apply(&mut new, &context).is_ok();
            let is_old = bytes(&document) == bytes(old);
            let is_new = may_change && bytes(&document) == bytes(&new);
            assert!(is_old || is_new, "{old} became {document} by {update}");
            if reply.get("error").is_none() && is_multi && may_change {
                assert!(is_new, "{document} was not changed by {update}");
            }
            changed += usize::from(!is_old);
            self.model.insert(id, document);
        }
        assert_eq!(self.model.len(), before.len());
        if !is_multi {
            assert!(changed <= 1 && number == i64::from(!matching.is_empty()), "{filter}");
        } else if reply.get("error").is_none() {
            assert_eq!(number, matching.len() as i64);
        } else {
            self.refused += 1;
        }
    }

    fn change_indexes(&mut self) {
        if !self.indexes.is_empty() && self.random.one_in(3) {
            let at = self.random.below(self.indexes.len() as u64) as usize;
            let name = name_of(&self.indexes.remove(at));
            let dropped = CollectionCommand::DropIndex { name: name.as_bytes() };
            ask(&mut self.shard, dropped).ok();
            return;
        }
        let (key, more) = draw_index(&mut self.random);
        self.add_index(key, more);
    }

    fn add_index(&mut self, key: Document, more: Document) {
        let mut spec = doc! { "key": key.clone(), "name": name_of(&(key.clone(), more.clone())) };
        spec.extend(more.clone());
        let answer = create_index(&mut self.shard, spec);
        match (answer.status, answer.number) {
            (Status::Ok, 1) => self.indexes.push((key, more)),
            (Status::Ok, 0) => {}
            (Status::Refused, 11000 | 171 | 16755 | 16766) => self.refused += 1,
            other => panic!("{other:?}: {}", answer.text()),
        }
    }

    fn others(&mut self) {
        let mut list = Vec::new();
        if self.random.one_in(2) {
            let ids: Vec<Vec<u8>> =
                (0..4).map(|_| id_of(&doc! { "_id": draw_id(&mut self.random) })).collect();
            ids.iter().for_each(|id| Items::push(&mut list, id));
            let there: std::collections::BTreeSet<_> =
                ids.iter().filter(|id| self.model.remove(*id).is_some()).collect();
            let ids = Items::parse(&list).unwrap();
            let answer = ask(&mut self.shard, CollectionCommand::Remove { ids }).ok();
            assert_eq!(answer.number, there.len() as i64);
            return;
        }
        let document = draw_document(&mut self.random);
        if !self.may_be(&id_of(&document), &document) || self.has_dotted_unique() {
            return;
        }
        Items::push(&mut list, &bytes(&document));
        let documents = Items::parse(&list).unwrap();
        let answer = ask(&mut self.shard, CollectionCommand::Put { documents });
        match answer.status {
            Status::Ok => drop(self.model.insert(id_of(&document), document)),
            Status::Refused => assert!(matches!(answer.number, 171 | 16755 | 16766)),
            other => panic!("{other:?}"),
        }
    }

    /// One search by each index, in steps that end anywhere.
    fn search(&mut self) {
        let filter = draw_filter(&mut self.random);
        let mut wanted = self.matching(&filter);
        wanted.sort_unstable();
        let sort = self.random.one_in(2).then(|| {
            let mut sort = Document::new();
            for _ in 0..1 + self.random.below(2) {
                let path = self.random.pick(&["a", "b", "c.d", "_id"]);
                sort.insert(path, if self.random.one_in(2) { 1 } else { -1 });
            }
            sort
        });
        let mut hints: Vec<Option<Bson>> = vec![None];
        hints.push(Some(Bson::Document(doc! { "$natural": 1 })));
        hints.push(Some(Bson::Document(doc! { "$natural": -1 })));
        hints.push(Some(Bson::Document(doc! { "_id": 1 })));
        for of in &self.indexes {
            let has_geometries =
                of.0.values().any(|of| of.as_str().is_some_and(|of| of != "hashed"));
            let lacks = of.1.contains_key("sparse")
                || of.1.contains_key("partialFilterExpression")
                || (has_geometries && !filter.contains_key("g"));
            if !lacks {
                hints.push(Some(Bson::String(name_of(of))));
            }
        }
        for hint in hints {
            let mut request = doc! { "filter": filter.clone() };
            if let Some(hint) = &hint {
                request.insert("hint", hint.clone());
            }
            if let Some(sort) = &sort {
                request.insert("sort", sort.clone());
            }
            let mut counts = request.clone();
            counts.insert("count", true);
            assert_eq!(find(&mut self.shard, counts).0, wanted.len() as i64, "{filter} {hint:?}");
            let (found, is_sorted) = self.steps_of(request);
            let mut ids: Vec<Vec<u8>> = found.iter().map(id_of).collect();
            if let (Some(sort), true) = (&sort, is_sorted) {
                let keys = SortKeys::parse(&raw(sort)).unwrap();
                let ascends = |two: &[Document]| keys.compare(&raw(&two[0]), &raw(&two[1])).is_le();
                assert!(found.windows(2).all(ascends), "{filter} {sort} {hint:?}");
            }
            ids.sort_unstable();
            assert!(ids == wanted, "{filter}, {hint:?}: {} of {}", ids.len(), wanted.len());
        }
    }

    /// A search by distance, ring by ring: whether there was an index for it.
    fn search_near(&mut self) -> bool {
        let place = draw_place(&mut self.random);
        let limit = self.random.pick(&[1.0, 4e5, 1e9]);
        let near = match self.random.below(3) {
            0 => doc! { "$near": place.clone(), "$maxDistance": limit },
            1 => doc! { "$near": { "$geometry": { "type": "Point", "coordinates": place },
            "$minDistance": 1, "$maxDistance": limit } },
            _ => doc! { "$nearSphere": place },
        };
        let mut filter = doc! { "g": near.clone() };
        if self.random.one_in(3) {
            filter.insert("b", draw_condition(&mut self.random, "b"));
        }
        let parsed = Filter::parse(&raw(&filter)).unwrap();
        let near = parsed.near().unwrap();
        let distance = |document: &Document| near.distance(&raw(document)).unwrap();
        let mut wanted: Vec<(f64, Vec<u8>)> = Vec::new();
        for id in self.matching(&filter) {
            wanted.push((distance(&self.model[&id]), id));
        }
        let (mut found, mut from) = (Vec::new(), 0.0);
        while from < f64::INFINITY {
            let mut request = doc! { "filter": filter.clone(), "near": { "from": from } };
            let mut ring = Vec::new();
            loop {
                request.insert("limit", 1 + self.random.below(60) as i64);
                let answer =
                    ask(&mut self.shard, CollectionCommand::Find { request: &bytes(&request) });
                if answer.status == Status::Refused {
                    assert_eq!(answer.number, 291, "{}", answer.text());
                    return false;
                }
                let mut all = answer.ok().documents();
                let head = all.remove(0);
                // Without a collection there is one ring.
                let to = head.get_f64("to").unwrap_or(f64::INFINITY);
                ring.extend(all.iter().map(|of| (distance(of), id_of(of))));
                request.insert("near", doc! { "from": from, "to": to });
                match head.get("at") {
                    Some(at) => request.insert("at", at.clone()),
                    None => break,
                };
            }
            let to = request.get_document("near").unwrap().get_f64("to").unwrap();
            assert!(to > from && ring.iter().all(|of| from <= of.0 && of.0 < to), "{filter}");
            found.extend(ring);
            self.rings += 1;
            from = to;
        }
        let order = |one: &(f64, Vec<u8>), other: &(f64, Vec<u8>)| {
            one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1))
        };
        found.sort_by(order);
        wanted.sort_by(order);
        assert_eq!(found, wanted, "{filter}");
        true
    }

    fn steps_of(&mut self, mut request: Document) -> (Vec<Document>, bool) {
        let mut found = Vec::new();
        loop {
            request.insert("limit", 1 + self.random.below(60) as i64);
            let (_, head, some) = find_step(&mut self.shard, &request);
            found.extend(some);
            self.steps += 1;
            match head.get("at") {
                Some(at) => request.insert("at", at.clone()),
                None => return (found, head.get_bool("sorted").unwrap()),
            };
        }
    }

    fn replay(&mut self) {
        let read = self.shard.log().read(&mut self.cursor, usize::MAX, &mut self.log);
        read.expect("read at once");
        let entries = crate::collections::entries(&self.log);
        for entry in entries.iter().skip(std::mem::replace(&mut self.applied, entries.len())) {
            let applied = self.copy.apply(&entry.entry(), &Origin::WHOLE, NOW);
            assert_eq!(applied, Ok(Applied::Done));
        }
    }

    fn compare(&mut self) {
        let all = find(&mut self.shard, doc! {}).2;
        let found: Vec<Vec<u8>> = all.iter().map(bytes).collect();
        let wanted: Vec<Vec<u8>> = self.model.values().map(bytes).collect();
        assert!(found == wanted);
        for (id, document) in &self.model {
            assert!(self.may_be(id, document), "{document} is there beside another one");
        }
        self.shard.audit().unwrap();
        self.replay();
        self.copy.audit().unwrap();
        assert_eq!(self.copy.digest(), self.shard.digest());
    }
}

fn name_of((key, more): &(Document, Document)) -> String {
    format!("{key}{more}").replace(['"', ' '], "")
}

#[test]
fn collections_are_as_documents_that_are_looked_at_one_by_one() {
    let (mut steps, mut refused, mut rings) = (0, 0, 0);
    for seed in 0..12 {
        let mut world = World::new(seed);
        // Most documents that are drawn equal another one somewhere: later no such index can be made.
        match seed {
            8 | 9 => world.add_index(doc! { "a": 1 }, doc! { "unique": true }),
            10 => world.add_index(doc! { "b": -1 }, doc! { "unique": true }),
            4 | 5 => world.add_index(doc! { "g": "2dsphere" }, doc! {}),
            6 => world.add_index(doc! { "g": "2d" }, doc! {}),
            _ => {}
        }
        for step in 0..400 {
            match world.random.below(16) {
                0..=3 => world.insert(),
                4..=6 => world.update(),
                7 => world.remove(),
                8 if world.indexes.len() < 6 || world.random.one_in(3) => world.change_indexes(),
                9 => world.others(),
                10..=12 => _ = world.search_near(),
                _ => world.search(),
            }
            if step % 25 == 0 {
                world.compare();
                while world.shard.wants_release() {
                    world.shard.release_some(NOW);
                }
            }
        }
        world.compare();
        (steps, refused) = (steps + world.steps, refused + world.refused);
        rings += world.rings;
    }
    assert!(steps > 5_000 && refused > 200 && rings > 150, "{steps}, {refused}, {rings}");
}
