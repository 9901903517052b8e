//! Geometries and predicates that no honest client sends, over the
//! rings of the real binary: each is answered with the status that it deserves,
//! once, and an honest client of the same server finds what it has put.

use remora_client_core::{OpenTree, Path, Refine, Session, Shape};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_REFINE_IDS};
use remora_layout::rect::Rect;
use remora_protocol::message::{MORE, ReplyHeader, RequestHeader, Status};
use remora_tests::{Random, RawSession, ServerProcess, wait_until};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const EVIL: &[u8] = b"evil";
const GEOMETRY: u8 = 2;
const OF_OBJECTS: u8 = 1;
const COUNTS: u8 = 2;
/// Where a line's count, and a refinement's geometry, begin.
const COUNT_AT: usize = 5;
const REFINE_HEAD: usize = 16;

/// What is sent about the tree `evil`: operation, flags, value.
type Request = (u8, u8, Vec<u8>);

/// Numbers of trees' operations.
const PUT: u8 = 1;
const REFINE: u8 = 11;

/// A hostile session and an honest one.
struct Scene {
    server: ServerProcess,
    raw: RawSession,
    sent: u32,
    honest: Session,
    tree: OpenTree,
}

impl Scene {
    fn new() -> Self {
        let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
        let mut honest = server.session();
        for id in 0..100u32 {
            let line = format!("LINESTRING ({id} 0, {} 10)", id + 10);
            honest.put_shape(b"land", id as u64, &Shape::from_wkt(&line).unwrap(), None).unwrap();
        }
        let tree = honest.open_tree(b"land").unwrap().unwrap();
        let raw = RawSession::connect(&server.socket());
        let mut scene = Self { server, raw, sent: 0, honest, tree };
        scene.is_well();
        scene
    }

    /// The status of the last reply.
    fn ask(&mut self, (op, flags, value): &Request) -> Status {
        self.sent += 1;
        let header = RequestHeader {
            op: *op,
            of: Kind::RTREE.0,
            flags: *flags,
            key_bytes: (EVIL.len() as u32).into(),
            value_bytes: (value.len() as u32).into(),
            id: self.sent.into(),
            argument: i64::from(*op == PUT).into(),
            ..RequestHeader::new_zeroed()
        };
        assert!(self.raw.send_payload(&[header.as_bytes(), EVIL, value].concat()), "withdrawn");
        let mut status = None;
        wait_until("the request is answered", || {
            while let Some(payload) = self.raw.receive() {
                let (header, _) = ReplyHeader::read_from_prefix(&payload).unwrap();
                assert_eq!(header.id.get(), self.sent);
                let told = Status::from_number(header.status).expect("a known status");
                if header.flags & MORE == 0 {
                    status = Some(told);
                }
            }
            status.is_some()
        });
        status.unwrap()
    }

    /// The honest client finds its objects, asked for and read.
    fn is_well(&mut self) {
        let refine = Refine::Intersects(Shape::of_rect(&Rect::new(50.5, 60.0, 0.0, 0.4).unwrap()));
        for path in [Path::Ask, Path::Read] {
            let found = self.honest.search_refined(&mut self.tree, &refine, path).unwrap();
            let mut ids: Vec<u64> = found.objects.iter().map(|object| object.word).collect();
            ids.sort_unstable();
            // Object 50 is at x = 50.4 where it leaves the window.
            assert_eq!(ids, (51..=60).collect::<Vec<u64>>());
        }
        assert!(!self.raw.is_withdrawn(), "{}", self.server.log());
    }

    fn ends_well(mut self) {
        self.is_well();
        assert_eq!(self.server.resp().info("sessions_violated"), 0);
        assert!(!self.server.log().contains("panic"), "{}", self.server.log());
        assert!(self.server.is_alive());
    }
}

/// A part whose length stands before it.
fn sized(part: &[u8]) -> Vec<u8> {
    [&(part.len() as u32).to_le_bytes(), part].concat()
}

fn put(rect: &Rect, wkb: &[u8]) -> Request {
    (PUT, GEOMETRY, [rect.as_bytes(), &sized(wkb)].concat())
}

fn refine(bytes: &[u8]) -> Request {
    (REFINE, 0, sized(bytes))
}

fn line() -> (Rect, Vec<u8>) {
    let line = Shape::from_wkt("LINESTRING (1 2, 3 4, 5 6)").unwrap();
    (line.bounds(), line.to_wkb())
}

/// The bytes with some of them written over.
fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Collections in collections, the innermost of which is empty.
fn nested(levels: usize) -> Vec<u8> {
    let collection = |members: u32| [&[1, 7, 0, 0, 0], &members.to_le_bytes()[..]].concat();
    [collection(1).repeat(levels), collection(0)].concat()
}

/// Bytes that are no geometry.
fn no_geometries() -> Vec<Vec<u8>> {
    let (_, wkb) = line();
    let many_rings = [&[1, 3, 0, 0, 0], &12_000u32.to_le_bytes()[..], &[0; 48_000]].concat();
    let mut bad = vec![
        Vec::new(),
        wkb[..wkb.len() - 1].to_vec(),
        [&wkb[..], &[0]].concat(),
        with(&wkb, 0, &[2]),
        with(&wkb, 1, &[99]),
        many_rings,
        nested(20),
        nested(MAX_GEOMETRY_BYTES / 9 - 1),
    ];
    for count in [0, 1, 4, u32::MAX, u32::MAX / 16 + 1] {
        bad.push(with(&wkb, COUNT_AT, &u32::to_le_bytes(count)));
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        bad.push(with(&wkb, COUNT_AT + 4, &number.to_le_bytes()));
    }
    bad
}

#[test]
fn what_is_no_geometry_or_no_predicate_is_refused() {
    let mut scene = Scene::new();
    let ((rect, wkb), long) = (line(), vec![0; MAX_GEOMETRY_BYTES + 1]);
    let good = Refine::Intersects(Shape::from_wkb(&wkb).unwrap()).to_bytes();
    assert_eq!(scene.ask(&put(&rect, &wkb)), Status::Ok);
    assert_eq!(scene.ask(&refine(&good)), Status::Ok);
    for bytes in no_geometries() {
        let of = [&good[..REFINE_HEAD], &bytes].concat();
        for request in [put(&rect, &bytes), refine(&of)] {
            let shown = &bytes[..bytes.len().min(60)];
            assert_eq!(scene.ask(&request), Status::BadGeometry, "{:?} {shown:02x?}", request.0);
        }
    }
    let other = Rect { max_x: 5.5, ..rect };
    let mut cases = vec![
        (put(&other, &wkb), Status::BadGeometry),
        (put(&Rect { max_x: f64::NAN, ..rect }, &wkb), Status::BadRectangle),
        (put(&rect, &long), Status::TooLarge),
        (refine(&[&good[..REFINE_HEAD], &long].concat()), Status::TooLarge),
        (refine(&good[..REFINE_HEAD - 1]), Status::BadGeometry),
        (refine(&with(&good, 0, &[4])), Status::BadGeometry),
        (refine(&with(&good, 7, &[1])), Status::BadGeometry),
    ];
    for distance in [f64::NAN, f64::INFINITY, -1.0] {
        let by_distance = with(&with(&good, 0, &[3]), 8, &distance.to_le_bytes());
        cases.push((refine(&by_distance), Status::BadGeometry));
        cases.push((refine(&with(&good, 8, &distance.to_le_bytes())), Status::BadGeometry));
    }
    // Lengths that lie.
    for lie in [good.len() as u32 + 1, u32::MAX, 1 << 31] {
        let value = [&lie.to_le_bytes(), &good[..]].concat();
        cases.push(((REFINE, 0, value), Status::Malformed));
        let value = [rect.as_bytes(), &lie.to_le_bytes(), &wkb].concat();
        cases.push(((PUT, GEOMETRY, value), Status::Malformed));
    }
    let short = [&(good.len() as u32 - 16).to_le_bytes(), &good[..]].concat();
    cases.push(((REFINE, OF_OBJECTS, short), Status::BadGeometry));
    let of_ids = |bytes: usize| (REFINE, OF_OBJECTS, [sized(&good), vec![0; bytes]].concat());
    cases.push((of_ids(7), Status::Malformed));
    cases.push((of_ids(8 * MAX_REFINE_IDS + 8), Status::TooLarge));
    // Not too many, but of a tree whose header lies nowhere.
    cases.push((of_ids(8 * MAX_REFINE_IDS), Status::NoTree));
    for flags in [COUNTS | OF_OBJECTS, 4, 128] {
        cases.push(((REFINE, flags, sized(&good)), Status::Malformed));
    }
    cases.push(((REFINE, 0, vec![1, 2, 3]), Status::Malformed));
    cases.push(((PUT, GEOMETRY, rect.as_bytes().to_vec()), Status::Malformed));
    for (number, (request, status)) in cases.iter().enumerate() {
        assert_eq!(scene.ask(request), *status, "case {number}, {:?}", request.0);
    }
    scene.ends_well();
}

#[test]
fn requests_with_bytes_changed_anywhere_are_answered() {
    let mut scene = Scene::new();
    let shapes = [
        "LINESTRING (1 2, 3 4, 5 6)",
        "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (2 2, 4 2, 4 4, 2 4, 2 2))",
        "GEOMETRYCOLLECTION (POINT (1 1), MULTIPOINT (2 2, 3 3), LINESTRING (0 0, 7 7))",
    ];
    let shapes = shapes.map(|wkt| Shape::from_wkt(wkt).unwrap());
    let mut random = Random::new(11);
    let (mut refused, mut done) = (0, 0);
    for round in 0..3_000 {
        let shape = shapes[random.below(shapes.len())].clone();
        let (op, flags, mut value) = match random.below(3) {
            0 => put(&shape.bounds(), &shape.to_wkb()),
            1 => refine(&Refine::Within(shape).to_bytes()),
            _ => refine(&Refine::DistanceAtMost { from: shape, most: 3.0 }.to_bytes()),
        };
        for _ in 0..random.below(4) {
            let at = random.below(value.len());
            match random.below(4) {
                0 => value[at] ^= 1 << random.below(8),
                1 => value[at] = random.below(256) as u8,
                2 => drop(value.remove(at)),
                _ => value.insert(at, random.below(256) as u8),
            }
        }
        match scene.ask(&(op, flags, value)) {
            Status::Ok | Status::NoTree => done += 1,
            Status::BadGeometry | Status::BadRectangle | Status::Malformed => refused += 1,
            other => panic!("round {round}: {other:?}"),
        }
        if round % 300 == 0 {
            scene.is_well();
        }
    }
    assert!(refused > 500 && done > 500, "{refused} refused, {done} done");
    scene.ends_well();
}
