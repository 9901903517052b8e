//! What is written is read as the same objects; what would not be is refused.

use crate::write::town;
use proptest::prelude::*;
use remora_geometry::Shape;
use remora_osm::{Limits, Unwritable, WriteError, Writer, read};
use std::collections::BTreeMap;
use std::io::Cursor;

const LIMITS: Limits = Limits { kept_bytes: 64 << 20 };

/// Objects by their ids: geometry as WKT, and tags.
type Objects = BTreeMap<u64, (String, BTreeMap<String, String>)>;

fn objects(file: &[u8]) -> Objects {
    let mut objects = Objects::new();
    read(Cursor::new(file), &[], LIMITS, &mut |_, object| {
        // What the town's extract has cut is no object.
        if let Ok(object) = object {
            let tags = serde_json::from_slice(object.tags).unwrap();
            let before = objects.insert(object.id, (object.shape.to_wkt(), tags));
            assert_eq!(before, None, "object {}", object.id);
        }
        Ok(())
    })
    .unwrap();
    objects
}

/// A file of these objects, and why others are not in it.
fn written(objects: &Objects) -> (Vec<u8>, Vec<(u64, Unwritable)>) {
    let (mut file, mut refused) = (Vec::new(), Vec::new());
    let greatest = *objects.keys().next_back().unwrap();
    let mut writer = Writer::begin(&mut file, greatest, tempfile::tempfile).unwrap();
    for (id, (wkt, tags)) in objects {
        let tags: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        match writer.object(*id, &Shape::from_wkt(wkt).unwrap(), &tags) {
            Ok(()) => {}
            Err(WriteError::Unwritable(why)) => refused.push((*id, why)),
            Err(WriteError::Io(error)) => panic!("{error}"),
        }
    }
    writer.end().unwrap();
    (file, refused)
}

fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
    tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_town_comes_back_as_the_same_elements() {
    let before = objects(&town());
    let (file, refused) = written(&before);
    assert_eq!((before.len(), refused), (7, Vec::new()));
    assert_eq!(objects(&file), before);
    assert_eq!(written(&objects(&file)).0, file, "bit by bit");
}

#[test]
fn what_would_not_come_back_is_refused() {
    let long = "ü".repeat(255);
    let ring = "((0 0,9 0,9 9,0 9,0 0))";
    let area = format!("POLYGON{ring}");
    let closed = format!("LINESTRING{}", &ring[1..ring.len() - 1]);
    let twice = "MULTIPOLYGON(((0 0,9 0,9 9,0 9,0 0),(1 1,8 1,8 8,1 1)),((1 1,8 1,8 8,1 1)))";
    let many: Vec<String> = (0..9999).map(|key| key.to_string()).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    use Unwritable::{ClosedLine, IdTag, Kind, OffGlobe, Rings, Tags, Text, Type};
    let cases: &[(&str, crate::write::Tags<'_>, Option<Unwritable>)] = &[
        ("MULTIPOINT(1 1,2 2)", &[], Some(Kind)),
        ("MULTILINESTRING((1 1,2 2))", &[], Some(Kind)),
        ("GEOMETRYCOLLECTION(POINT(1 1))", &[], Some(Kind)),
        ("POINT(180.0000001 0)", &[], Some(OffGlobe)),
        ("LINESTRING(0 0,0 -90.0000001)", &[], Some(OffGlobe)),
        ("POINT(1e15 0)", &[], Some(OffGlobe)),
        ("POINT(-180.00000004 90.00000004)", &[], None),
        ("POINT(0 0)", &[("key", &long)], None),
        ("POINT(0 0)", &[("key", &(long.clone() + "x"))], Some(Text)),
        ("POINT(0 0)", &[(&(long.clone() + "x"), "")], Some(Text)),
        ("POINT(0 0)", &[("key", "a\0b")], Some(Text)),
        ("POINT(0 0)", &many[..9998], None),
        ("POINT(0 0)", &many, Some(Tags)),
        ("POINT(0 0)", &[("remora:id", "1")], Some(IdTag)),
        (&closed, &[("building", "yes")], Some(ClosedLine)),
        (&closed, &[("building", "yes"), ("area", "no")], None),
        (&closed, &[("highway", "footway")], None),
        (&area, &[("type", "route")], Some(Type)),
        (&area, &[("type", "route"), ("area", "yes")], None),
        (&area, &[("type", "boundary")], None),
        (twice, &[], Some(Rings)),
    ];
    let wanted: Vec<_> = (0..).zip(cases).filter_map(|(id, case)| Some((id, case.2?))).collect();
    let given: Objects =
        (0..).zip(cases).map(|(id, (wkt, has, _))| (id, ((*wkt).to_owned(), tags(has)))).collect();
    let (file, refused) = written(&given);
    assert_eq!(refused, wanted);
    let back = objects(&file);
    assert_eq!(back.len(), cases.len() - wanted.len());
    assert_eq!(back[&6].0, "POINT(-180 90)");
    for (id, (wkt, mut has)) in back {
        // The one tag that is added: of an area that is a relation.
        if !given[&id].1.contains_key("type") {
            assert_eq!(has.remove("type").is_some(), id != 14 && wkt.starts_with("POLYGON"));
        }
        assert_eq!(has, given[&id].1, "{id}");
    }
}

/// More than one block of every section.
#[test]
fn many_objects_come_back() {
    let at = |number: u64| {
        let [x, y] = [number as f64 / 1000.0, (20_000.0 - number as f64) / 2000.0];
        format!("{x:?} {y:?}")
    };
    let object = |id: u64| {
        let [a, b, c] = [at(id), at(id + 7), at(2 * id + 1)];
        let (wkt, has) = match id % 5 {
            0 | 1 => (format!("POINT({a})"), tags(&[("name", &format!("{id}"))])),
            2 => (format!("LINESTRING({a},{b},{c})"), tags(&[])),
            3 => (format!("POLYGON(({a},{b},{c},{a}))"), tags(&[("building", "yes")])),
            _ => (format!("POLYGON(({a},{b},{c},{a}))"), tags(&[("type", "boundary")])),
        };
        (id, (Shape::from_wkt(&wkt).unwrap().to_wkt(), has))
    };
    let objects_given: Objects = (0..60_000).map(object).collect();
    let (file, refused) = written(&objects_given);
    assert_eq!(refused, []);
    let back = objects(&file);
    let other = back.iter().zip(&objects_given).find(|(back, given)| back != given);
    assert_eq!((other, back.len()), (None, 60_000));
}

/// A coordinate as the format has it, and a place that is rounded to it.
fn coordinate() -> impl Strategy<Value = (f64, f64)> {
    (-80_000_000..80_000_000i32, -0.49..0.49f64)
        .prop_map(|(part, beside)| (f64::from(part) / 1e7, (f64::from(part) + beside) / 1e7))
}

/// Two texts of the same geometry: rounded, and not.
fn geometry() -> impl Strategy<Value = (String, String)> {
    let corners = prop::collection::vec((coordinate(), coordinate()), 6);
    (0..6u8, corners).prop_map(|(kind, corners)| {
        let text = |of: fn((f64, f64)) -> f64| {
            let [a, b, c, d, e, f] = std::array::from_fn(|index| {
                let (x, y) = corners[index];
                [of(x), of(y)]
            });
            let at = |[x, y]: [f64; 2]| format!("{x:?} {y:?}");
            // Far from each other, so that it is clear what lies where.
            let ring = |[x, y]: [f64; 2], [dx, dy]: [f64; 2], edge: f64| {
                let [left, right] = [x + dx, x + dx + edge].map(|x| (x * 1e7).round() / 1e7);
                let [low, high] = [y + dy, y + dy + edge].map(|y| (y * 1e7).round() / 1e7);
                format!("({left:?} {low:?},{right:?} {low:?},{right:?} {high:?},{left:?} {low:?})")
            };
            let (outer, hole) = (ring(a, [0.0; 2], 9.0), ring(a, [5.0, 1.0], 2.0));
            let (other, island) = (ring(a, [-20.0, 0.0], 8.0), ring(a, [6.0, 1.5], 0.5));
            match kind {
                0 => format!("POINT({})", at(a)),
                1 => format!("LINESTRING({0},{1},{2},{0})", at(a), at(b), at(c)),
                2 => format!("POLYGON(({0},{1},{2},{3},{1},{0}))", at(a), at(d), at(e), at(f)),
                3 => format!("POLYGON({outer},{hole})"),
                4 => format!("MULTIPOLYGON(({outer},{hole}),({other}))"),
                _ => format!("MULTIPOLYGON(({outer},{hole}),({island}),({other}))"),
            }
        };
        (text(|(rounded, _)| rounded), text(|(_, beside)| beside))
    })
}

fn any_tags() -> impl Strategy<Value = BTreeMap<String, String>> {
    let text = "[^\\x00]{0,20}";
    let plain = prop::collection::btree_map(text, text, 0..4);
    let known = prop::sample::select(vec![("name", "x"), ("building", "yes"), ("", "")]);
    (plain, known).prop_map(|(mut tags, (key, value))| {
        tags.insert(key.into(), value.into());
        // What areas make of it is looked at above.
        tags.remove("type");
        tags
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_objects_come_back(
        given in prop::collection::btree_map(
            prop_oneof![0..200u64, any::<u64>(), u64::MAX - 9..=u64::MAX],
            (geometry(), any_tags()),
            1..30,
        )
    ) {
        let of = |wkt: &str| Shape::from_wkt(wkt).unwrap().to_wkt();
        let beside: Objects =
            given.iter().map(|(id, ((_, wkt), tags))| (*id, (wkt.clone(), tags.clone()))).collect();
        let (file, refused) = written(&beside);
        let mut wanted: Objects = given
            .iter()
            .map(|(id, ((wkt, _), tags))| (*id, (of(wkt), tags.clone())))
            .collect();
        for (id, why) in refused {
            // Rounding may close a line.
            prop_assert_eq!(why, Unwritable::ClosedLine);
            wanted.remove(&id);
        }
        let mut back = objects(&file);
        for (wkt, tags) in back.values_mut().filter(|(wkt, _)| wkt.contains("POLYGON")) {
            if !tags.contains_key("building") || wkt.contains("),(") {
                let added = tags.remove("type");
                prop_assert_eq!(added.as_deref(), Some("multipolygon"));
            }
        }
        prop_assert_eq!(back, wanted);
    }
}
