//! `remora export` to OpenStreetMap's PBF: there and back, and through
//! osmium, which knows nothing of ours.

use remora_tests::{FileFixture, is_skipped};
use std::path::Path;
use std::process::Command;

/// Runs osmium among the files; gives what it prints.
fn osmium(fixture: &FileFixture, line: &str) -> String {
    let output = Command::new("osmium")
        .args(line.split_whitespace())
        .current_dir(fixture.path())
        .output()
        .expect("osmium is installed: osmium-tool");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (code, out, err) = (output.status.code(), text(output.stdout), text(output.stderr));
    assert_eq!(code, Some(0), "osmium {line}: {out}{err}");
    out
}

/// Everything in a tree as lines of GeoJSON: ids, geometries, properties.
fn lines(fixture: &FileFixture, tree: &str) -> String {
    fixture.good(&format!("export places {tree} --to - --format geojsonl")).out
}

#[test]
fn a_town_comes_back_from_a_file_that_others_read() {
    let fixture = FileFixture::new();
    let town = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let town = town.join("crates/osm/tests/town.osm.pbf");
    fixture.run(&format!("import places {} --into town", town.display()));
    let before = lines(&fixture, "town");
    assert_eq!(before.lines().count(), 7);
    fixture.good("export places town --to a.osm.pbf");
    let told = fixture.good("import places a.osm.pbf --into again");
    assert!(told.out.contains("again: 7 added, 0 replaced, 0 refused"), "{}", told.out);
    assert_eq!(lines(&fixture, "again"), before);
    if is_skipped("osmium") {
        println!("not run: osmium is missing, as REMORA_SKIP says");
        return;
    }
    // It checks that elements are sorted, and that all they refer to is there.
    osmium(&fixture, "check-refs --check-relations a.osm.pbf");
    let seen = osmium(&fixture, "cat a.osm.pbf --output-format opl --output -");
    for line in [
        "n1 v0 dV c0 t i0 u Tamenity=cafe,name=Zum%20%Dichter%20%&%20%Söhne x11.5 y48.1",
        "w33 v0 dV c0 t i0 u Thighway=residential Nn",
        "r40 v0 dV c0 t i0 u Ttype=multipolygon,leisure=park Mw",
    ] {
        assert!(seen.lines().any(|seen| seen.starts_with(line)), "{line} is not in {seen}");
    }
    // A file that osmium writes of it has the same objects.
    osmium(&fixture, "cat a.osm.pbf --output b.osm.pbf");
    fixture.good("import places b.osm.pbf --into theirs");
    assert_eq!(lines(&fixture, "theirs"), before);
}

#[test]
fn a_tree_of_anything_comes_back() {
    let fixture = FileFixture::new();
    let ring = "[[0.5,0],[4,1.25],[2,-3],[0.5,0]]";
    let hole = "[[1,0],[2,0.5],[1.5,-1],[1,0]]";
    let geometries = [
        r#""Point","coordinates":[1.5,2.5]"#.to_owned(),
        r#""LineString","coordinates":[[0,0],[1,1],[2,0.1]]"#.into(),
        format!(r#""Polygon","coordinates":[{ring},{hole}]"#),
        format!(r#""Polygon","coordinates":[{ring}]"#),
        format!(r#""MultiPolygon","coordinates":[[{ring}],[[[9,9],[10,9],[9,10],[9,9]]]]"#),
        r#""Polygon","coordinates":[[[0,0],[2,0],[2,1],[0,1],[0,0]]]"#.into(),
    ];
    let mut features = Vec::new();
    for id in [0, 1, 2, 3, 4, 1 << 40, i64::MAX as u64] {
        for (index, geometry) in geometries.iter().enumerate() {
            let id = id ^ (8 * index as u64);
            // Areas get this tag in the file.
            let more = if index > 1 { r#","type":"multipolygon""# } else { "" };
            features.push(format!(
                r#"{{"geometry":{{"type":{geometry}}},"id":{id},"properties":{{"n":"{id}"{more}}},"type":"Feature"}}"#
            ));
        }
    }
    let bare = r#"{"type":"Feature","id":77,"geometry":{"type":"Point","coordinates":[7,7]},"properties":null}"#;
    features.push(bare.into());
    fixture.write("a.geojsonl", features.join("\n"));
    fixture.good("import places a.geojsonl --into t");
    let before = lines(&fixture, "t");
    assert_eq!(before.lines().count(), 43);
    fixture.good("export places t --to a.osm.pbf");
    fixture.good("import places a.osm.pbf --into u");
    assert_eq!(lines(&fixture, "u"), before);
    assert_eq!(fixture.objects("u"), fixture.objects("t"), "an object without bytes has none");
    if is_skipped("osmium") {
        println!("not run: osmium is missing, as REMORA_SKIP says");
        return;
    }
    osmium(&fixture, "check-refs --check-relations a.osm.pbf");
    let seen = osmium(&fixture, "cat a.osm.pbf --output-format opl --output -");
    assert!(seen.contains("u Tn=1,remora:id=1 x1.5 y2.5"), "{seen}");
}

#[test]
fn what_is_no_element_is_counted_and_the_rest_is_written() {
    let fixture = FileFixture::new();
    fixture.write(
        "a.geojsonl",
        r#"{"type":"Feature","id":4,"geometry":{"type":"Point","coordinates":[0.12345678,9]},"properties":{"n":5,"none":null,"all":[1,"x"]}}
{"type":"Feature","id":5,"geometry":{"type":"MultiPoint","coordinates":[[1,1],[2,2]]},"properties":null}
{"type":"Feature","id":6,"geometry":{"type":"Point","coordinates":[181,9]},"properties":null}
{"type":"Feature","id":7,"geometry":{"type":"MultiPoint","coordinates":[[1,1],[2,2]]},"properties":null}
{"type":"Feature","id":8,"geometry":{"type":"Point","coordinates":[1e300,9]},"properties":null}"#,
    );
    fixture.good("import places a.geojsonl --into mixed");
    let told = fixture.run("export places mixed --to a.osm.pbf");
    assert_eq!(told.code, Some(1));
    for line in [
        "mixed: 1 objects",
        "refused 2: only points, lines and areas are elements of OpenStreetMap (first at 5)",
        "refused 2: its place is not on the globe (first at 6)",
        "4 objects cannot be written so; all others are in a.osm.pbf",
    ] {
        assert!(told.err.contains(line), "{line} is not in {}", told.err);
    }
    fixture.good("import places a.osm.pbf --into back");
    let (place, data) = &fixture.objects("back")[&4];
    assert_eq!((place.min_x, place.min_y), (0.1234568, 9.0), "1e-7 degrees");
    let data = String::from_utf8(data.clone().unwrap()).unwrap();
    assert_eq!(data, r#"{"n":"5","none":"null","all":"[1,\"x\"]"}"#, "values become texts");
}
