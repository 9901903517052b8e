//! `remora import` and `remora export` as processes: there and back, bad
//! input, and real places.

use remora_client_core::Rect;
use remora_tests::{FileFixture as Fixture, Random, ServerProcess};
use std::path::{Path, PathBuf};

#[test]
fn there_and_back_is_the_same() {
    let fixture = Fixture::new();
    let mut random = Random::new(3);
    let mut features = Vec::new();
    for id in 0..3000u64 {
        let [x, y, w, h] = std::array::from_fn(|_| random.below(1 << 30) as f64 / 7e6);
        let geometry = if id % 3 == 0 {
            format!(r#"{{"type":"Point","coordinates":[{x},{y}]}}"#)
        } else {
            format!(r#"{{"type":"LineString","coordinates":[[{},{y}],[{x},{}]]}}"#, x - w, y + h)
        };
        let properties = if id % 5 == 0 {
            "null".into()
        } else {
            format!(r#"{{"n":{id},"name":"ö \"{x}\""}}"#)
        };
        features.push(format!(
            r#"{{"type":"Feature","id":{},"geometry":{geometry},"properties":{properties}}}"#,
            id * 1_000_003
        ));
    }
    fixture.write(
        "a.geojson",
        format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(",")),
    );
    fixture.write("a.geojsonl", features.join("\n"));
    let told = fixture.good("import places a.geojson --into first --tree hilbert");
    assert!(told.out.contains("first: 3000 added, 0 replaced, 0 refused"), "{}", told.out);
    let first = fixture.objects("first");
    assert_eq!(first.len(), 3000);
    assert_eq!(first[&1_000_003].1.as_deref().unwrap()[..7], *b"{\"n\":1,");
    assert_eq!(first[&0].1, None);
    fixture.good("import places a.geojsonl --into lines");
    assert_eq!(fixture.objects("lines"), first);
    for name in ["b.geojson", "b.geojsonl", "b.csv"] {
        fixture.good(&format!("export places first --to {name}"));
        let tree = name.replace('.', "-");
        fixture.good(&format!("import places {name} --into {tree}"));
        assert_eq!(fixture.objects(&tree), first, "{name}");
        fixture.good(&format!("export places {tree} --to again-{name}"));
        assert_eq!(fixture.read(name), fixture.read(&format!("again-{name}")), "{name}");
        // Standard output is the same file.
        let format = name.rsplit_once('.').unwrap().1;
        let shown = fixture.good(&format!("export places first --to - --format {format}"));
        assert_eq!(shown.out.as_bytes(), fixture.read(name), "{name}");
    }
    // The same again replaces all.
    let told = fixture.good("import places b.csv --into first --json");
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((&told["added"], &told["replaced"]), (&0.into(), &3000.into()));
    assert_eq!(fixture.objects("first"), first);
    // An object without bytes takes away those of the one that it replaces.
    fixture.write("bare.csv", "id,x,y\n1000003,5,6\n");
    fixture.good("import places bare.csv --into first");
    assert_eq!(fixture.objects("first")[&1_000_003], (Rect::point(5.0, 6.0).unwrap(), None));
}

#[test]
fn what_is_bad_is_counted_and_what_is_good_is_in() {
    let fixture = Fixture::new();
    let long = "x".repeat(513);
    let rows = format!(
        "id,min_x,min_y,max_x,max_y,data\n\
         1,0,0,1,1,one\n2,0,0,x,1,\n3,5,0,1,1,\n4,0,0,NaN,1,\n5,0,0,1,inf,\n6,0,0\n{long},0,0,1,1\n\
         8,0,0,x,1,\n9,0,0,1,1,nine\n",
    );
    fixture.write("bad.csv", &rows);
    let finished = fixture.run("import places bad.csv --into t");
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    for line in [
        "t: 2 added, 0 replaced, 7 refused",
        "refused 3: a coordinate is not a number (first at 3: \"x\")",
        "refused 1: a minimum is greater than its maximum (first at 4)",
        "refused 1: its id is empty or too long (first at 8: xxx",
    ] {
        assert!(finished.out.contains(line), "{line} is not in {}", finished.out);
    }
    let kept: Vec<u64> = fixture.objects("t").into_keys().collect();
    assert_eq!(kept, [1, 9]);

    // A document that breaks off.
    let whole = r#"{"type":"FeatureCollection","features":[
        {"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":null},
        {"type":"Feature","geometry":null,"properties":null},
        {"type":"Feature","geometry":{"type":"Point","coordinates":[3,4]},"proper"#;
    fixture.write("bad.geojson", whole);
    let finished = fixture.run("import places bad.geojson --into u");
    assert_eq!(finished.code, Some(1));
    assert!(finished.out.contains("u: 1 added, 0 replaced, 1 refused"), "{}", finished.out);
    assert!(finished.err.contains("after 2 features"), "{}", finished.err);
    assert_eq!(fixture.objects("u").into_keys().collect::<Vec<u64>>(), [0]);

    for (line, why) in [
        ("import places none.csv --into t", "cannot read none.csv"),
        ("import places bad --into t", "--format"),
        ("import places bad.csv --into t --id-column key", "no column key"),
        ("import places bad.geojson --into t --id-column key", "for tables"),
        ("import places bad.csv --into t --bounds 1,0,0,1", "inverted"),
        ("import places bad.csv --into t --capacity 2", "--capacity"),
        ("export places t --to t.shp", "--format"),
        ("export places t --to none/t.csv", "cannot write none/t.csv"),
    ] {
        let finished = fixture.run(line);
        assert_eq!(finished.code, Some(2), "{line}: {}", finished.err);
        assert!(finished.err.contains(why), "{line}: {}", finished.err);
    }
    let finished = fixture.run("export places nothing --to n.csv");
    assert_eq!(finished.code, Some(1));
    assert!(finished.err.contains("no tree nothing"), "{}", finished.err);
    let names: Vec<_> = std::fs::read_dir(fixture.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "no half of a file is left: {names:?}");
}

#[test]
fn a_server_whose_memory_is_full_ends_the_import_and_keeps_what_it_took() {
    let mut fixture = Fixture::new();
    fixture.server = ServerProcess::start(&["--shards=1", "--max-memory=4MiB"]);
    let data = "d".repeat(1000);
    let rows: String = (0..20_000).map(|id| format!("{id},{id},0,{data}\n")).collect();
    fixture.write("large.csv", format!("id,x,y,data\n{rows}"));
    let finished = fixture.run("import places large.csv --into t --json");
    assert_eq!(finished.code, Some(1));
    assert!(finished.err.contains("max_memory"), "{}", finished.err);
    let told: serde_json::Value = serde_json::from_str(&finished.out).unwrap();
    let added = told["added"].as_u64().unwrap();
    assert!((1000..4000).contains(&added), "{added}");
    assert_eq!(fixture.objects("t").len() as u64, added, "the count is the server's");
}

#[test]
fn an_import_of_which_nothing_is_taken_leaves_no_tree() {
    let fixture = Fixture::new();
    fixture.write("no.geojson", "this is no JSON");
    fixture.write("no.csv", "name,size\na,1\n");
    fixture.write("no.osm.pbf", "this is no PBF");
    fixture.write("all-bad.csv", "id,x,y\n1,east,5\n");
    fixture.write("good.csv", "id,x,y\n1,2,5\n");
    fixture.write("empty.csv", "id,x,y\n");
    for name in ["no.geojson", "no.csv", "no.osm.pbf", "all-bad.csv"] {
        assert_ne!(fixture.run(&format!("import places {name} --into t")).code, Some(0), "{name}");
        let told = fixture.run("export places t --to - --format csv");
        assert!(told.err.contains("no tree t"), "{name}: {}{}", told.out, told.err);
    }
    // One that was there stays as it was.
    fixture.good("import places good.csv --into t");
    let before = fixture.objects("t");
    let told = fixture.run("import places no.geojson --into t");
    assert_eq!(told.code, Some(1), "{}", told.err);
    assert_eq!(fixture.objects("t"), before);
    let told = fixture.good("import places good.csv --into t");
    assert!(told.err.contains("t is there: objects are added to it"), "{}", told.err);
    // A file without objects is a tree without any.
    fixture.good("import places empty.csv --into none");
    assert_eq!(fixture.objects("none").len(), 0);
}

/// GeoJSON in, GeoJSON out: geometries of every kind come back as they were.
#[test]
fn geometries_come_back_as_they_were() {
    let fixture = Fixture::new();
    let ring = "[[0.5,0],[4,1.25],[2,-3],[0.5,0]]";
    let geometries = [
        r#"{"type":"Point","coordinates":[1.5,2.5]}"#.to_owned(),
        r#"{"type":"LineString","coordinates":[[0,0],[1,1],[2,0.1]]}"#.into(),
        format!(r#"{{"type":"Polygon","coordinates":[{ring},[[1,0],[2,0.5],[1.5,-1],[1,0]]]}}"#),
        r#"{"type":"MultiPoint","coordinates":[[1,5],[3,2]]}"#.into(),
        r#"{"type":"MultiLineString","coordinates":[[[3,2],[1,5]],[[7,7],[8,8]]]}"#.into(),
        format!(
            r#"{{"type":"MultiPolygon","coordinates":[[{ring}],[[[9,9],[10,9],[9,10],[9,9]]]]}}"#
        ),
        format!(
            r#"{{"type":"GeometryCollection","geometries":[{{"type":"Point","coordinates":[1,2]}},{{"type":"Polygon","coordinates":[{ring}]}}]}}"#
        ),
        r#"{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,1],[0,1],[0,0]]]}"#.into(),
    ];
    let features: Vec<String> = (0..)
        .zip(&geometries)
        .map(|(id, geometry)| {
            format!(
                r#"{{"type":"Feature","id":{id},"geometry":{geometry},"properties":{{"n":{id}}}}}"#
            )
        })
        .collect();
    fixture.write("a.geojsonl", features.join("\n"));
    let told = fixture.good("import places a.geojsonl --into t");
    assert!(told.out.contains("t: 8 added, 0 replaced, 0 refused"), "{}", told.out);
    let values = |text: &[u8]| -> Vec<serde_json::Value> {
        let lines = std::str::from_utf8(text).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    fixture.good("export places t --to b.geojsonl");
    // Numbers without a fraction are written with one.
    let text = |values: Vec<serde_json::Value>| serde_json::to_string(&values).unwrap();
    let plain = |text: String| text.replace(".0,", ",").replace(".0]", "]");
    let wanted = values(features.join("\n").as_bytes());
    assert_eq!(plain(text(values(&fixture.read("b.geojsonl")))), plain(text(wanted)));
    for name in ["c.csv", "c.geojson"] {
        fixture.good(&format!("export places t --to {name}"));
        fixture.good(&format!("import places {name} --into {}", name.replace('.', "-")));
        fixture.good(&format!("export places {} --to again.geojsonl", name.replace('.', "-")));
        assert_eq!(fixture.read("again.geojsonl"), fixture.read("b.geojsonl"), "{name}");
    }
    // Boxes take away the geometries of what they replace.
    fixture.good("import places a.geojsonl --into t --boxes");
    fixture.good("export places t --to d.csv");
    assert!(fixture.read("d.csv").starts_with(b"id,min_x,min_y,max_x,max_y,data\n"));
}

#[test]
fn openstreetmap_comes_by_its_elements() {
    let fixture = Fixture::new();
    let town = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let town = town.join("crates/osm/tests/town.osm.pbf");
    let finished = fixture.run(&format!("import places {} --into town", town.display()));
    assert_eq!(finished.code, Some(1), "what the extract has cut off is refused");
    for line in [
        "town: 7 added, 0 replaced, 3 refused",
        "refused 1: some of its nodes are not in the file (first at 7: way 35)",
        "refused 1: some of its ways are not in the file (first at 9: relation 41)",
        "refused 1: its ways make no closed rings (first at 10: relation 42)",
    ] {
        assert!(finished.out.contains(line), "{line} is not in {}", finished.out);
    }
    let objects = fixture.objects("town");
    let (node, way, relation) = (4, 4 * 33 + 1, 4 * 40 + 2);
    let tags = r#"{"amenity":"cafe","name":"Zum Dichter & Söhne"}"#;
    assert_eq!(objects[&node], (Rect::point(11.5, 48.1).unwrap(), Some(tags.as_bytes().to_vec())));
    let road = Rect::new(11.5, 11.504, 48.1, 48.104).unwrap();
    assert_eq!((objects[&way].0, objects[&relation].0), (road, road));
    let mut session = fixture.server.session();
    let shape = |place: remora_client_core::TreeObject<'_>| {
        remora_geometry::Shape::from_wkb(place.geometry.expect("a geometry")).unwrap().to_wkt()
    };
    let park = shape(session.place(b"town", relation).unwrap().unwrap());
    assert!(park.starts_with("POLYGON((11.5 48.1,11.504 48.1,"), "{park}");
    let street = shape(session.place(b"town", way).unwrap().unwrap());
    assert_eq!(street, "LINESTRING(11.5 48.1,11.501 48.101,11.502 48.102,11.504 48.104)");
    assert_eq!(session.place(b"town", node).unwrap().unwrap().geometry, None, "a point");
    drop(session);
    let told = fixture.good(&format!(
        "import places {} --into cafes --filter amenity=cafe --filter leisure=pitch",
        town.display()
    ));
    assert!(told.out.contains("cafes: 1 added, 0 replaced, 0 refused"), "{}", told.out);

    // One that breaks off adds nothing: it is read to its end before objects come.
    let bytes = std::fs::read(&town).unwrap();
    fixture.write("half.osm.pbf", &bytes[..bytes.len() / 2]);
    let finished = fixture.run("import places half.osm.pbf --into half");
    assert_eq!(finished.code, Some(1));
    assert!(finished.out.contains("half: 0 added"), "{}", finished.out);
    assert!(finished.err.contains("end too early"), "{}", finished.err);
    for (line, why) in [
        ("import places - --into t --format pbf", "name a file"),
        ("import places half.osm.pbf --into t --filter =x", "KEY"),
        ("import places half.osm.pbf --into t --id-column id", "for tables"),
        ("import places a.geojson --into t --filter amenity", "for PBF"),
    ] {
        let finished = fixture.run(line);
        assert_eq!(finished.code, Some(2), "{line}: {}", finished.err);
        assert!(finished.err.contains(why), "{line}: {}", finished.err);
    }
}

#[test]
fn real_places_come_from_a_table_with_its_own_columns() {
    let fixture = Fixture::new();
    let packed: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("data/places.tsv.xz");
    let line = format!(
        "import places {} --into world --id-column geonameid --data-column name",
        packed.display()
    );
    let told = fixture.good(&line);
    assert!(told.out.contains("world: 118525 added, 0 replaced, 0 refused"), "{}", told.out);
    let mut session = fixture.server.session();
    let place = session.place(b"world", 1_796_236).unwrap().expect("Shanghai is there");
    assert_eq!(place.data, Some(&b"Shanghai"[..]));
    assert_eq!(place.rect, Rect::point(121.45806, 31.22222).unwrap());
    drop(session);
    assert_eq!(fixture.objects("world").len(), 118_525);
}

#[test]
fn documents_there_and_back_are_the_same() {
    let fixture = Fixture::new();
    let mut lines = String::new();
    for id in 0..700 {
        lines.push_str(&format!(
            "{{\"n\": {{\"$numberLong\": \"{id}\"}}, \"x\": {id}.5, \"_id\": {id}, \"tags\": [\"a\", {{\"k\": null}}]}}\n"
        ));
    }
    fixture.write("a.jsonl", &lines);
    let told = fixture.good("import documents a.jsonl --into db.lines");
    assert_eq!(told.out, "db.lines: 700 added, 0 refused\n");
    let digest = |name: &str| fixture.digest_of(name);
    let first = digest("db.lines");
    for name in ["b.json", "b.bson"] {
        fixture.good(&format!("export documents db.lines --to {name}"));
        let collection = format!("db.{}", name.replace('.', "-"));
        fixture.good(&format!("import documents {name} --into {collection}"));
        assert_eq!(digest(&collection), first, "{name}");
        fixture.good(&format!("export documents {collection} --to again-{name}"));
        assert_eq!(fixture.read(name), fixture.read(&format!("again-{name}")), "{name}");
    }
    // An array of documents is the same as documents one after the other.
    let array = format!("[{}]", lines.trim_end().replace('\n', ","));
    fixture.write("array.json", array);
    fixture.good("import documents array.json --into db.array");
    assert_eq!(digest("db.array"), first);
}

#[test]
fn bad_documents_are_counted_and_good_ones_are_in() {
    let fixture = Fixture::new();
    fixture
        .write("bad.json", "{\"_id\": 1} 7 {\"_id\": 1} {\"_id\": {\"$oid\": \"z\"}} {\"_id\": 2}");
    let finished = fixture.run("import documents bad.json --into db.c");
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    for line in [
        "db.c: 2 added, 3 refused",
        "refused 2: it is no document (first at 2",
        "refused 1: the server refused it (first at 3: E11000 duplicate key error collection: db.c",
    ] {
        assert!(finished.out.contains(line), "{line}: {}", finished.out);
    }
    fixture.write("cut.bson", b"\x05\0\0\0\0\x16\0\0\0".as_slice());
    let finished = fixture.run("import documents cut.bson --into db.d");
    assert!(finished.err.contains("document 2 ends early"), "{}", finished.err);
    for (command, why) in [
        ("import documents bad.json --into db", "DATABASE.COLLECTION"),
        ("import documents bad.txt --into db.c", "--format"),
        ("export documents db.none --to x.json", "no collection db.none"),
    ] {
        let finished = fixture.run(command);
        assert!(finished.code != Some(0) && finished.err.contains(why), "{}", finished.err);
    }
}
