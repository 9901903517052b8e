//! Objects with geometries in a shard: against a map and the predicates
//! themselves, in turns, the log replayed, memory that runs out.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions, Turn};
use remora_geometry::{Refine, Shape, Wkb, work_done};
use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_REFINE_IDS, REFINE_TURN_WORK};
use remora_layout::node::{ENTRY_BYTES, Entry, NodeRef};
use remora_layout::object::{Payload, VERDICT_BYTES, Verdict};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeInfo;
use remora_protocol::message::Status;
use remora_protocol::tree::{
    HAS_DATA, HAS_GEOMETRY, ReadObjects, Refined, TreeCommand, TreeSettings,
};
use remora_protocol::{Command, Request};
use remora_testing::Random;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };

fn shape(random: &mut Random, side: u32) -> Shape {
    Shape::from_wkt(&random.wkt(60, side)).unwrap()
}

fn refine(random: &mut Random) -> Refine {
    let drawn = shape(random, 30);
    match random.below(4) {
        0 => Refine::Intersects(drawn),
        1 => Refine::Within(drawn),
        2 => Refine::Contains(shape(random, 3)),
        _ => Refine::DistanceAtMost { from: drawn, most: f64::from(random.below(8)) },
    }
}

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 77, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn ask(shard: &mut Shard, name: &[u8], command: TreeCommand<'_>) -> (Status, i64, Vec<u8>) {
    let request = command.checked().map(TreeCommand::request).unwrap();
    let command = Command::Of { key: name, request };
    let reply = shard.execute(&command, shard.hash(name), NOW);
    (reply.status, reply.number, reply.value.unwrap_or_default().to_vec())
}

/// An object in the map.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    rect: Rect,
    shape: Option<Shape>,
    data: Vec<u8>,
}

type Map = BTreeMap<u64, Known>;

fn put(shard: &mut Shard, map: &mut Map, random: &mut Random, ids: u64) -> Status {
    let id = random.below(ids);
    let shape = shape(random, 12);
    let is_shape = random.below(3) > 0;
    let data = match random.below(3) {
        0 => None,
        _ => Some(vec![7; random.below(200) as usize * random.below(2) as usize]),
    };
    let (rect, wkb) = (shape.bounds(), shape.to_wkb());
    let geometry = is_shape.then_some(Wkb::known(&wkb, rect));
    let put = TreeCommand::put(id, rect, data.as_deref(), geometry);
    let (status, number, _) = ask(shard, b"t", put);
    if status == Status::Ok {
        assert_eq!(number == 1, !map.contains_key(&id));
        let before = map.get(&id).map(|known| known.data.clone());
        let data = data.or(before).unwrap_or_default();
        map.insert(id, Known { rect, shape: is_shape.then_some(shape), data });
    }
    status
}

fn get(shard: &mut Shard, id: u64) -> Option<Known> {
    let (status, flags, value) = ask(shard, b"t", TreeCommand::Get { id: id.into() });
    if status == Status::NotFound {
        return None;
    }
    let (rect, rest) = Rect::read_from_prefix(&value).unwrap();
    let payload = Payload::parse(&rest[8..]).unwrap();
    assert_eq!(flags & i64::from(HAS_GEOMETRY) != 0, !payload.geometry.is_empty());
    assert_eq!(flags & i64::from(HAS_DATA) != 0, !payload.data.is_empty());
    let shape = Some(payload.geometry).filter(|wkb| !wkb.is_empty());
    let shape = shape.map(|wkb| Shape::from_wkb(wkb).unwrap());
    Some(Known { rect, shape, data: payload.data.to_vec() })
}

fn info(shard: &mut Shard) -> TreeInfo {
    let (_, _, info) = ask(shard, b"t", TreeCommand::Info);
    let words: Vec<u64> = info.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    TreeInfo::from_words(&words).unwrap()
}

fn fits(refine: &Refine, known: &Known) -> bool {
    let shape = known.shape.clone().unwrap_or_else(|| Shape::of_rect(&known.rect));
    refine.holds(&shape)
}

fn expected(map: &Map, refine: &Refine) -> Vec<u64> {
    map.iter().filter(|(_, known)| fits(refine, known)).map(|(&id, _)| id).collect()
}

fn ids(value: &[u8]) -> Vec<u64> {
    let (objects, rest) = value.as_chunks::<ENTRY_BYTES>();
    assert!(rest.is_empty());
    let mut ids: Vec<u64> = objects.iter().map(|bytes| Entry::from_bytes(bytes).word).collect();
    ids.sort_unstable();
    ids
}

fn compare(shard: &mut Shard, map: &Map, random: &mut Random) {
    let refine = refine(random);
    let bytes = refine.to_bytes();
    let search = TreeCommand::Refine { refine: &bytes, of: None };
    let (status, number, value) = ask(shard, b"t", search);
    assert_eq!((status, ids(&value)), (Status::Ok, expected(map, &refine)), "{refine:?}");
    let Refined { nodes, candidates } = Refined::from_number(number);
    assert!(nodes > 0 && candidates as usize >= value.len() / ENTRY_BYTES);
    let (status, number, value) = ask(shard, b"t", TreeCommand::CountRefined { refine: &bytes });
    let count = expected(map, &refine).len() as i64;
    assert_eq!((status, number, &value[..]), (Status::Ok, count, &[][..]), "{refine:?}");
    // The same of some objects, be they there or not.
    let some: Vec<u64> = (0..20).map(|_| random.below(600)).collect();
    let list: Vec<u8> = some.iter().flat_map(|id| id.to_le_bytes()).collect();
    let of = Some(ReadObjects { tree: info(shard).at, words: &list });
    let (status, _, value) = ask(shard, b"t", TreeCommand::Refine { refine: &bytes, of });
    assert_eq!(status, Status::Ok);
    let (verdicts, rest) = value.as_chunks::<VERDICT_BYTES>();
    assert!(rest.is_empty());
    let told = verdicts.iter().map(|bytes| Verdict::read_from_bytes(bytes).unwrap());
    let there: Vec<u64> = some.into_iter().filter(|id| map.contains_key(id)).collect();
    assert_eq!(told.clone().map(|told| told.object.word).collect::<Vec<_>>(), there);
    for told in told {
        let known = &map[&told.object.word];
        assert_eq!((told.object.rect, told.holds()), (known.rect, fits(&refine, known)));
        let has_record = known.shape.is_some() || !known.data.is_empty();
        assert_eq!(told.pointer().is_some(), has_record);
    }
}

#[test]
fn histories_agree_with_a_map_and_their_log_makes_the_same() {
    let mut shard = shard(32 << 20, Eviction::None);
    let (mut map, mut random) = (Map::new(), Random::new(5));
    let settings = TreeSettings { capacity: 6, ..TreeSettings::default() };
    ask(&mut shard, b"t", TreeCommand::Create(settings));
    for step in 0..3_000 {
        let id = random.below(500);
        match random.below(8) {
            0 => {
                let (_, number, _) = ask(&mut shard, b"t", TreeCommand::Remove { id: id.into() });
                assert_eq!(number == 1, map.remove(&id).is_some());
            }
            1 => assert_eq!(get(&mut shard, id), map.get(&id).cloned()),
            2 => compare(&mut shard, &map, &mut random),
            _ => assert_eq!(put(&mut shard, &mut map, &mut random, 500), Status::Ok),
        }
        if step % 1000 == 0 {
            shard.audit().unwrap();
        }
    }
    let info = info(&mut shard);
    let count = |is: fn(&Known) -> bool| map.values().filter(|known| is(known)).count() as u64;
    assert_eq!(info.with_geometry, count(|known| known.shape.is_some()));
    assert_eq!(info.with_data, count(|known| !known.data.is_empty()));
    let mut again = self::shard(32 << 20, Eviction::None);
    for entry in shard.log().entries() {
        let (command, _) = Command::decode(entry.operation()).unwrap();
        let hash = command.key().map_or(remora_layout::hash::KeyHash(0), |key| again.hash(key));
        again.execute(&command, hash, NOW);
    }
    for id in 0..500 {
        assert_eq!(get(&mut again, id), get(&mut shard, id));
    }
    ask(&mut shard, b"t", TreeCommand::Drop);
    shard.audit().unwrap();
}

#[test]
fn a_search_in_turns_judges_each_object_by_one_of_its_states() {
    let mut shard = shard(64 << 20, Eviction::None);
    // A line of many points that goes around the middle, and one through it.
    let around = |turn: u64| {
        let points = (0..300).map(|at| {
            let angle = (at + turn) as f64 / 400.0 * std::f64::consts::TAU;
            format!("{} {}", 50.0 + 40.0 * angle.cos(), 50.0 + 40.0 * angle.sin())
        });
        Shape::from_wkt(&format!("LINESTRING ({})", points.collect::<Vec<_>>().join(", "))).unwrap()
    };
    let through =
        |turn: u64| Shape::from_wkt(&format!("LINESTRING (0 {turn}, 50 50, 100 {turn})")).unwrap();
    let put = |shard: &mut Shard, id: u64, turn: u64| {
        let shape = if id.is_multiple_of(2) { around(turn) } else { through(turn % 7) };
        let (rect, wkb) = (shape.bounds(), shape.to_wkb());
        let put = TreeCommand::put(id, rect, None, Some(Wkb::known(&wkb, rect)));
        assert_eq!(ask(shard, b"t", put).0, Status::Ok);
    };
    (0..3_000).for_each(|id| put(&mut shard, id, id));
    let middle = Shape::from_wkt("POLYGON ((45 45, 55 45, 55 55, 45 55, 45 45))").unwrap();
    let bytes = Refine::Intersects(middle).to_bytes();
    let command = TreeCommand::Refine { refine: &bytes, of: None };
    let request: Request<'_> = command.checked().map(TreeCommand::request).unwrap();
    let on = (&b"t"[..], shard.hash(b"t"));
    let mut search = shard.begin_read(on, request, Now::default()).unwrap();
    let count =
        TreeCommand::CountRefined { refine: &bytes }.checked().map(TreeCommand::request).unwrap();
    let mut count = shard.begin_read(on, count, Now::default()).unwrap();
    let (mut found, mut turns) = (Vec::new(), 0);
    let mut counted = None;
    while !shard.read_turn(&mut search, &mut found, NOW).unwrap().ended {
        turns += 1;
        let mut none = Vec::new();
        if counted.is_none_or(|turn: Turn| !turn.ended) {
            counted = Some(shard.read_turn(&mut count, &mut none, NOW).unwrap());
        }
        assert!(none.is_empty() && counted.is_some_and(|turn| !turn.gives_value));
        for id in [turns % 3_000, turns * 7 % 3_000] {
            put(&mut shard, id, turns);
        }
        // One that goes is not found after that.
        ask(&mut shard, b"t", TreeCommand::Remove { id: 2_999.into() });
    }
    assert!(turns > 50, "{turns}");
    let mut counted = counted.unwrap();
    while !counted.ended {
        counted = shard.read_turn(&mut count, &mut Vec::new(), NOW).unwrap();
    }
    assert!(counted.has_doubles, "it began again");
    assert!((1_499..=1_500).contains(&counted.number), "each once: {}", counted.number);
    let mut ids = ids(&found);
    ids.dedup();
    assert!(ids.iter().all(|id| id % 2 == 1), "one that never met the middle was found");
    let missing = (0..1_499).map(|half| 2 * half + 1).filter(|id| ids.binary_search(id).is_err());
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<u64>::new());
    ask(&mut shard, b"t", TreeCommand::Drop);
    assert_eq!(shard.read_turn(&mut search, &mut found, NOW), Err(Status::NoTree));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let shape = Shape::from_wkt("LINESTRING (1 2, 3 4)").unwrap();
    let (rect, wkb) = (shape.bounds(), shape.to_wkb());
    fn put(rect: Rect, geometry: Wkb<'_>) -> TreeCommand<'_> {
        TreeCommand::put(1, rect, None, Some(geometry))
    }
    let known = |rect| {
        Wkb::parse(&wkb)
            .map(|geometry| put(rect, geometry).checked().map(TreeCommand::request).err())
    };
    assert_eq!(known(rect), Ok(None));
    assert_eq!(known(Rect { max_x: 3.5, ..rect }), Ok(Some(Status::BadGeometry)));
    // The content of a message.
    let sent = |wkb: &[u8]| {
        let request = put(rect, Wkb::known(wkb, rect)).checked().map(TreeCommand::request).unwrap();
        let mut bytes = Vec::new();
        Command::Of { key: b"t", request }.encode_into(1, &mut bytes);
        Command::decode(&bytes).err().map(|(status, _)| status)
    };
    assert_eq!(sent(&wkb), None);
    assert_eq!(sent(&wkb[1..]), Some(Status::BadGeometry));
    assert_eq!(sent(b""), Some(Status::BadGeometry));
    assert_eq!(sent(&vec![0; MAX_GEOMETRY_BYTES + 1]), Some(Status::TooLarge));
    let bytes = Refine::Within(shape).to_bytes();
    let refine = |refine: &[u8], words: Option<&[u8]>| {
        let tree = NodeRef { slot: 9, generation: 1 };
        let of = words.map(|words| ReadObjects { tree, words });
        TreeCommand::Refine { refine, of }.checked().map(TreeCommand::request).err()
    };
    assert_eq!(refine(&bytes, None), None);
    assert_eq!(refine(&bytes, Some(&[0; 8 * MAX_REFINE_IDS])), None);
    assert_eq!(refine(&bytes, Some(&[0; 8 * MAX_REFINE_IDS + 8])), Some(Status::TooLarge));
    assert_eq!(refine(&bytes, Some(&[0; 9])), Some(Status::Malformed));
    // The geometry is parsed where the search begins.
    let mut shard = shard(16 << 20, Eviction::None);
    let search = TreeCommand::Refine { refine: &bytes, of: None };
    assert_eq!(ask(&mut shard, b"t", search).0, Status::NoTree);
    ask(&mut shard, b"t", TreeCommand::Create(TreeSettings::default()));
    let too_long = vec![0; MAX_GEOMETRY_BYTES + 17];
    for (refine, refused) in [
        (&bytes[..], Status::Ok),
        (&bytes[1..], Status::BadGeometry),
        (&too_long, Status::TooLarge),
    ] {
        assert_eq!(ask(&mut shard, b"t", TreeCommand::Refine { refine, of: None }).0, refused);
    }
}

#[test]
fn a_full_shard_refuses_objects_whole_and_what_was_there_is_found() {
    for eviction in [Eviction::None, Eviction::S3Fifo] {
        let mut shard = shard(4 << 20, eviction);
        let (mut map, mut random) = (Map::new(), Random::new(9));
        let mut refused = 0;
        for step in 0..40_000 {
            match put(&mut shard, &mut map, &mut random, 1 << 40) {
                Status::Ok => {}
                Status::OutOfMemory => refused += 1,
                other => panic!("{other:?}"),
            }
            if refused > 20 && step % 7 == 0 {
                let known = *map.keys().nth(step % map.len()).unwrap();
                assert_eq!(get(&mut shard, known), map.get(&known).cloned());
            }
            if refused > 200 {
                break;
            }
        }
        assert!(refused > 200);
        for _ in 0..20 {
            compare(&mut shard, &map, &mut random);
        }
        shard.audit().unwrap();
        let all: Vec<u64> = map.keys().copied().collect();
        for id in all {
            ask(&mut shard, b"t", TreeCommand::Remove { id: id.into() });
        }
        shard.audit().unwrap();
    }
}

/// Two long rings that cross themselves and each other everywhere are compared in turns of the
/// shard; each turn does a bounded amount of work.
#[test]
fn a_comparison_of_long_geometries_pauses_between_turns() {
    const CORNERS: u64 = 600;
    let mut random = Random::new(77);
    let mut corners: Vec<String> = (0..CORNERS)
        .map(|_| format!("{} {}", random.below(1 << 20), random.below(1 << 20)))
        .collect();
    corners.push(corners[0].clone());
    let shape = Shape::from_wkt(&format!("POLYGON (({}))", corners.join(", "))).unwrap();
    let mut shard = shard(8 << 20, Eviction::None);
    let create = TreeCommand::Create(TreeSettings::default());
    assert_eq!(ask(&mut shard, b"t", create).0, Status::Ok);
    let wkb = shape.to_wkb();
    for id in 0..2u64 {
        let put =
            TreeCommand::put(id, shape.bounds(), None, Some(Wkb::known(&wkb, shape.bounds())));
        assert_eq!(ask(&mut shard, b"t", put).0, Status::Ok);
    }
    let refine = Refine::Within(shape).to_bytes();
    let command = TreeCommand::Refine { refine: &refine, of: None };
    let request = command.checked().map(TreeCommand::request).unwrap();
    let mut read = shard.begin_read((b"t", shard.hash(b"t")), request, NOW).unwrap();
    let (begun, mut found, mut turns) = (work_done(), Vec::new(), 0);
    loop {
        let before = work_done();
        let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
        turns += 1;
        // One more segment beside all of both.
        let most = REFINE_TURN_WORK + 24 * CORNERS;
        assert!(work_done() - before <= most, "{} in one turn", work_done() - before);
        if turn.ended {
            break;
        }
        // Others change the tree meanwhile.
        let put = TreeCommand::put(100 + turns, Rect::point(-9.0, -9.0).unwrap(), None, None);
        assert_eq!(ask(&mut shard, b"t", put).0, Status::Ok);
    }
    assert!(turns > 20 && turns > (work_done() - begun) / (REFINE_TURN_WORK + 24 * CORNERS));
    assert_eq!(found.len(), 2 * ENTRY_BYTES, "both lie in it");
}
