//! Searches of GEO keys: which are read, which are asked, and that both return the same.

use crate::resp::tests::world::World;

/// A row of members on a parallel, a tenth of a degree apart.
fn add_row(world: &mut World, members: usize) {
    let places: String = (0..members).map(|at| format!(" {} 50 m{at}", at as f64 / 10.0)).collect();
    let (reply, _) = world.call(0, &format!("GEOADD g{places}\r\n"));
    assert_eq!(reply, format!(":{members}\r\n"));
}

/// The first search makes the members' places, the answer to the second says where they are.
fn learn(world: &mut World) {
    for _ in 0..2 {
        world.call(0, &around(7, ""));
    }
}

fn around(member: usize, options: &str) -> String {
    let longitude = member as f64 / 10.0;
    format!("GEOSEARCH g FROMLONLAT {longitude} 50 BYRADIUS 8 km {options}\r\n")
}

fn sorted(reply: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = reply.split("\r\n").collect();
    lines.sort_unstable();
    lines
}

#[test]
fn small_searches_are_read_once_the_place_is_known() {
    let mut world = World::new(1);
    add_row(&mut world, 200);
    let options =
        ["", "WITHCOORD", "WITHDIST", "WITHCOORD WITHDIST ASC", "COUNT 2", "DESC COUNT 1"];
    let asked: Vec<String> = (options.iter())
        .map(|options| world.call(0, &around(7, &format!("{options} WITHHASH"))).0)
        .collect();
    assert_eq!(world.reads().0, 0, "a score is not read");
    for (options, asked) in options.iter().zip(&asked) {
        let (read, jobs) = world.call(0, &around(7, options));
        assert_eq!(jobs, 0, "{options}");
        // The same but for the scores, and the arrays that they make.
        let about = |reply: &str| -> Vec<String> {
            let told = |line: &&str| !line.starts_with([':', '*', '$']);
            sorted(reply).into_iter().filter(told).map(Into::into).collect()
        };
        assert_eq!(about(&read), about(asked), "{options}");
    }
    let (read, _) = world.call(0, &around(7, ""));
    assert_eq!(sorted(&read), sorted("*3\r\n$2\r\nm6\r\n$2\r\nm7\r\n$2\r\nm8\r\n"));
    // A box, and the older command.
    let lines = "GEOSEARCH g FROMLONLAT 1 50 BYBOX 8 8 km\r\nGEORADIUS g 1 50 1 km\r\n";
    assert_eq!(world.call(0, lines), ("*1\r\n$3\r\nm10\r\n".repeat(2), 0));
    assert_eq!(world.reads(), (9, 0));
    for (line, jobs) in [
        ("GEOSEARCH g FROMMEMBER m7 BYRADIUS 1 km\r\n", 1),
        ("GEOSEARCH g FROMLONLAT 1 50 BYRADIUS 99 km COUNT 1 ANY\r\n", 1),
        ("GEOSEARCH g FROMLONLAT 180 50 BYRADIUS 1 km\r\n", 1),
        ("GEOSEARCHSTORE to g FROMLONLAT 1 50 BYRADIUS 1 km\r\n", 2),
        ("GEOSEARCH g FROMLONLAT 1 50 BYRADIUS 1 km\r\n", 0),
    ] {
        assert_eq!(world.call(0, line).1, jobs, "{line}");
    }
    assert_eq!(world.call(0, "ZCARD to\r\n").0, ":1\r\n");
}

/// The shard's own thread reads in place the same bytes that other threads copy.
#[test]
fn the_own_shards_key_is_read_where_it_lies() {
    let (mut own, mut other) = (World::at_home(1), World::new(1));
    for world in [&mut own, &mut other] {
        add_row(world, 200);
        learn(world);
    }
    let (before, _) = own.reads();
    for member in 0..100 {
        let search = around(member, "WITHDIST WITHCOORD ASC");
        assert_eq!(own.call(0, &search).0, other.call(0, &search).0, "{search}");
    }
    assert_eq!(own.reads(), (before + 100, 0), "all were read");
}

#[test]
fn small_keys_are_asked_for() {
    let mut world = World::new(1);
    add_row(&mut world, 128);
    for _ in 0..3 {
        assert_eq!(world.call(0, &around(7, "COUNT 1")), ("*1\r\n$2\r\nm7\r\n".into(), 1));
    }
    world.call(0, "GEOADD g 0 0 other\r\n");
    for jobs in [1, 1, 0] {
        assert_eq!(world.call(0, &around(7, "COUNT 1")), ("*1\r\n$2\r\nm7\r\n".into(), jobs));
    }
}

#[test]
fn a_connection_sees_its_own_writes() {
    let mut world = World::new(1);
    add_row(&mut world, 200);
    let search = around(7, "COUNT 1");
    learn(&mut world);
    let (replies, jobs) = world.call(0, &format!("ZREM g m7\r\n{search}{search}"));
    assert_eq!(jobs, 3);
    assert!(replies.starts_with(":1\r\n*1\r\n$2\r\nm") && !replies.contains("m7"), "{replies}");
    world.call(0, "GEOADD g 0.7 50 m7\r\n");
    assert_eq!(world.call(0, &search), ("*1\r\n$2\r\nm7\r\n".into(), 0));
}

#[test]
fn a_key_that_went_is_not_read() {
    let mut world = World::new(1);
    for (ends, found) in [
        ("DEL g\r\n", "*0\r\n"),
        ("FLUSHALL\r\n", "*0\r\n"),
        ("SET g string\r\n", "-WRONGTYPE"),
        ("MSET a 1 g string\r\n", "-WRONGTYPE"),
        (
            "GEOADD from 9 50 other\r\nGEOSEARCHSTORE g from FROMLONLAT 9 50 BYRADIUS 1 km\r\n",
            "*0\r\n",
        ),
    ] {
        world.call(0, "DEL g\r\n");
        add_row(&mut world, 200);
        let search = around(7, "COUNT 1");
        learn(&mut world);
        assert_eq!(world.call(0, &search), ("*1\r\n$2\r\nm7\r\n".into(), 0));
        world.call(0, ends);
        let (reply, jobs) = world.call(0, &search);
        assert!(reply.starts_with(found) && jobs == 1, "{ends} {reply} {jobs}");
    }
    // One that will expire is read as before.
    world.call(0, "DEL g\r\n");
    add_row(&mut world, 200);
    world.call(0, "EXPIRE g 100\r\n");
    learn(&mut world);
    assert_eq!(world.call(0, &around(7, "COUNT 1")), ("*1\r\n$2\r\nm7\r\n".into(), 0));
}

/// The connections' thread sees that the key has expired before its shard removes it.
#[test]
fn an_expired_key_is_not_read() {
    let mut world = World::new(1);
    add_row(&mut world, 200);
    world.call(0, "PEXPIREAT g 1000\r\n");
    learn(&mut world);
    for (unix_ms, jobs) in [(999, 0), (1_000, 1)] {
        world.set_time(unix_ms);
        assert_eq!(world.call(0, &around(7, "COUNT 1")).1, jobs, "at {unix_ms} ms");
    }
}
