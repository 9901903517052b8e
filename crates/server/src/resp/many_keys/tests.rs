//! Requests of more keys than a turn takes, and the requests behind them.

use crate::resp::tests::world::{World, add_row, request};
use remora_layout::limits::{
    CONNECTION_KEYS_PER_TURN, CONNECTION_PAUSE_JOB_BYTES, CONNECTION_REQUESTS_PER_TURN,
};

#[test]
fn what_goes_in_turns_is_not_overtaken_by_what_is_executed_at_once() {
    let mut world = World::at_home(1);
    let keys: String = (0..3_000).map(|key| format!(" k{key} {key}")).collect();
    world.call(0, &request(&format!("MSET{keys}")));
    world.call(0, &request(&format!("SET large {}", "v".repeat(300_000))));
    // More keys than a turn looks up, then a change of the last of them; a value that
    // goes in pieces, then its end.
    let keys: String = (0..3_000).map(|key| format!(" k{key}")).collect();
    let lines =
        format!("MGET{keys}\r\nSET k2999 x\r\nGET k2999\r\nGET large\r\nDEL large\r\nPING\r\n");
    let (replies, jobs) = world.call(0, &lines);
    assert!(jobs < 10, "{jobs} jobs");
    let large = format!("$300000\r\n{}\r\n", "v".repeat(300_000));
    assert!(replies.contains("$4\r\n2999\r\n+OK\r\n$1\r\nx\r\n$300000"), "in order");
    assert!(replies.ends_with(&format!("{large}:1\r\n+PONG\r\n")));
}

/// Serves until all is answered: the reply, and the most keys of a turn. Another
/// connection has its turn between any two.
fn serve_in_turns(world: &mut World, lines: &str) -> (String, usize) {
    world.send(0, lines);
    let (mut turns, mut most) = (0, 0);
    loop {
        let before = world.keys_taken();
        world.send(1, "PING\r\n");
        world.serve();
        assert_eq!(world.written(1), "+PONG\r\n");
        most = most.max(world.keys_taken() - before);
        world.execute();
        turns += 1;
        assert!(turns < 100_000, "it goes on");
        if world.is_done() {
            return (world.written(0), most);
        }
    }
}

#[test]
fn a_request_of_very_many_keys_takes_turns() {
    const KEYS: usize = 20_000;
    let words = |with: fn(usize) -> String| (0..KEYS).map(with).collect::<String>();
    let keys = words(|key| format!(" key:{key}"));
    let values: String =
        (0..KEYS).map(|key| format!("${}\r\n{key}\r\n", key.to_string().len())).collect();
    // In place; read, and handed out.
    for mut world in [World::at_home(2), World::new(2)] {
        world.call(0, &request(&format!("MSET{}", words(|key| format!(" key:{key} {key}")))));
        // Later requests wait.
        for (line, reply) in [
            ("MGET", format!("*{KEYS}\r\n{values}")),
            ("EXISTS", format!(":{KEYS}\r\n")),
            ("TOUCH", format!(":{KEYS}\r\n")),
            ("DEL", format!(":{KEYS}\r\n")),
            ("UNLINK", ":0\r\n".into()),
        ] {
            let lines = request(&format!("{line}{keys}")) + "SET key:19999 19999\r\n";
            let (found, most) = serve_in_turns(&mut world, &(lines + "GET key:19999\r\n"));
            let reply = if line == "UNLINK" { ":1\r\n".into() } else { reply };
            assert!(found == reply + "+OK\r\n$5\r\n19999\r\n", "{line}");
            assert!(most <= CONNECTION_KEYS_PER_TURN + 2, "{line}: {most} keys in a turn");
        }
        let (found, _) = world.call(0, "DBSIZE\r\n");
        assert_eq!(found, ":1\r\n");
        // Nor do many requests of fewer keys take more.
        let some: String = (0..500).map(|key| format!(" key:{key}")).collect();
        let lines = request(&format!("EXISTS{some}")).repeat(40);
        let (found, most) = serve_in_turns(&mut world, &lines);
        assert_eq!(found, ":0\r\n".repeat(40));
        assert!(most <= 2 * CONNECTION_KEYS_PER_TURN, "{most} keys in a turn");
    }
}

/// RTREE.REM names objects of one tree: they are handed out and removed as keys are, in
/// place fewer in a turn.
#[test]
fn objects_of_a_tree_are_removed_in_turns() {
    const OBJECTS: usize = 3_000;
    const IDS: usize = 10_000;
    let ids: String = (0..IDS).map(|id| format!(" {id}")).collect();
    for (mut world, most_ids) in [
        (World::at_home(2), CONNECTION_REQUESTS_PER_TURN + 2),
        (World::new(2), CONNECTION_KEYS_PER_TURN + 2),
    ] {
        let is_home = most_ids < CONNECTION_KEYS_PER_TURN;
        assert_eq!(world.call(0, "RTREE.REM t 0 1 2\r\n").0, ":0\r\n", "there is no tree");
        add_row(&mut world, OBJECTS);
        // One alone is executed as any command.
        assert_eq!(world.call(0, "RTREE.REM t 7\r\n"), (":1\r\n".into(), !is_home as usize));
        let lines = request(&format!("RTREE.REM t{ids}")) + "RTREE.ADDPOINT t 8 0 0\r\n";
        let (found, most) = serve_in_turns(&mut world, &(lines + "RTREE.COUNT t 0 0 9 9\r\n"));
        assert_eq!(found, format!(":{}\r\n:1\r\n:1\r\n", OBJECTS - 1));
        assert!((most_ids / 2..=most_ids).contains(&most), "{most} ids in a turn");
        let (reply, jobs) = world.call(0, &request(&format!("RTREE.REM t{ids}")));
        let most_jobs = if is_home { 0 } else { IDS.div_ceil(CONNECTION_KEYS_PER_TURN) };
        assert_eq!((reply, jobs), (":1\r\n".into(), most_jobs));
        world.call(0, "SET s 1\r\n");
        assert!(world.call(0, "RTREE.REM s 1 2\r\n").0.starts_with("-WRONGTYPE"));
    }
}

/// Their jobs pause the connection, too.
#[test]
fn jobs_about_objects_are_counted() {
    let mut world = World::new(1);
    let ids: String = (0..60_000).map(|id| format!(" o{id}")).collect();
    world.send(0, &request(&format!("RTREE.REM t{ids}")));
    world.serve_until_idle();
    let (ids, held) = world.waiting_keys();
    assert!(ids < 60_000 && held > CONNECTION_PAUSE_JOB_BYTES, "{ids} ids, {held} bytes");
    assert_eq!(world.pending_bytes().0, held);
    assert_eq!(world.call(0, "PING\r\n").0, ":0\r\n+PONG\r\n");
    assert_eq!(world.pending_bytes(), (0, 0));
}

/// The jobs of one request pause it too, and its client may go meanwhile.
#[test]
fn jobs_of_a_request_are_handed_out_as_earlier_ones_are_answered() {
    let mut world = World::new(2);
    let keys: String = (0..5_000).map(|key| format!(" {key}{}", "k".repeat(500))).collect();
    let exists = request(&format!("EXISTS{keys}"));
    let idle = |world: &mut World| {
        world.serve_until_idle();
        world.waiting_keys().1
    };
    world.send(0, &(exists.clone() + "PING\r\n"));
    let held = idle(&mut world);
    let turn = CONNECTION_KEYS_PER_TURN * 600;
    assert!(
        (CONNECTION_PAUSE_JOB_BYTES..CONNECTION_PAUSE_JOB_BYTES + turn).contains(&held),
        "{held} bytes"
    );
    assert_eq!(world.call(0, "").0, ":0\r\n+PONG\r\n");
    world.send(0, &exists);
    idle(&mut world);
    world.cut(0);
    assert_eq!(world.open().0, 1);
    assert_eq!(world.call(1, "PING\r\n").0, "+PONG\r\n");
}

/// A connection's questions about many keys are counted until they are answered.
#[test]
fn a_connection_with_many_keys_under_way_is_paused() {
    let mut world = World::new(1);
    // The keys are long: one request's job is some bytes short of the limit that pauses.
    let keys: String = (0..15).map(|key| format!(" {key}{}", "k".repeat(4_000))).collect();
    let exists = request(&format!("EXISTS{keys}"));
    let requests = CONNECTION_PAUSE_JOB_BYTES / exists.len() + 5;
    world.send(0, &exists.repeat(requests));
    let under_way = world.serve_until_idle();
    assert!((requests - 8..requests).contains(&under_way), "{under_way} of {requests}");
    let (replies, rest) = world.call(0, "");
    assert_eq!(rest, requests, "the others go on when those are answered");
    assert_eq!(replies, ":0\r\n".repeat(requests));
    assert_eq!(world.call(0, "PING\r\n").0, "+PONG\r\n");
}

/// So is any command's question: a pipeline of long values does not gather in its shard.
#[test]
fn a_connection_with_long_jobs_under_way_is_paused() {
    const VALUE_BYTES: usize = 60_000;
    let mut world = World::new(1);
    let value = "v".repeat(VALUE_BYTES);
    for (request, reply) in [
        (request(&format!("SET k {value}")), "+OK\r\n".to_string()),
        (request(&format!("MSET k {value}")), "+OK\r\n".into()),
        (request(&format!("HSET h f {value}")), ":0\r\n".into()),
    ] {
        world.call(0, "HSET h f 1\r\n");
        world.send(0, &request.repeat(100));
        let under_way = world.serve_until_idle();
        assert_eq!(under_way, CONNECTION_PAUSE_JOB_BYTES / VALUE_BYTES + 1);
        let (held, found) = world.pending_bytes();
        let whole = under_way * VALUE_BYTES;
        assert!((whole..whole + whole / 10).contains(&held), "{held} bytes");
        assert_eq!((world.call(0, "").0, found), (reply.repeat(100), 0));
        assert_eq!(world.pending_bytes(), (0, 0));
    }
}

/// A request that continues after a shard's answer counts its results and its next question, also
/// if its client goes.
#[test]
fn bytes_of_requests_that_go_on_are_counted() {
    let mut world = World::new(2);
    let keys: String = (0..3_000).map(|key| format!(" key:{key:04} v")).collect();
    world.call(0, &request(&format!("MSET{keys}")));
    for is_cut in [false, true] {
        world.send(0, "KEYS *\r\n");
        world.serve_until_idle();
        world.begin();
        world.serve();
        world.serve_until_idle();
        let (held, _) = world.pending_bytes();
        assert!((8_000..20_000).contains(&held), "{held} bytes of a thousand keys");
        match is_cut {
            false => assert!(world.call(0, "").0.starts_with("*3000\r\n")),
            true => world.cut(0),
        }
        assert_eq!(world.pending_bytes(), (0, 0));
    }
    // A search's outcome that goes to another key.
    let members: String = (0..500).map(|at| format!(" 1.5 1.5 m{at}")).collect();
    world.call(1, &request(&format!("GEOADD g{members}")));
    world.send(1, "GEOSEARCHSTORE to g FROMLONLAT 1 1 BYRADIUS 900 km\r\n");
    world.serve_until_idle();
    while world.pending_bytes().0 < 500 {
        world.begin();
        world.serve();
    }
    let held = world.pending_bytes().0;
    assert!(held > 500 * 15, "what is stored: {held}");
    assert_eq!(world.call(1, "").0, ":500\r\n");
    assert_eq!(world.pending_bytes(), (0, 0));
}

/// INFO's count goes up with the jobs, their results and waiting replies, and down with the reply
/// or the connection.
#[test]
fn bytes_of_jobs_and_replies_are_counted_until_they_are_gone() {
    let mut world = World::new(2);
    let keys: String = (0..200).map(|key| format!(" missing:{key}")).collect();
    let value = "v".repeat(1_000);
    world.call(0, &request(&format!("SET k {value}")));
    // The first one is read, the others are asked for.
    let mget = request(&format!("MGET k{keys}"));
    for is_cut in [false, true] {
        assert_eq!(world.pending_bytes(), (0, 0));
        world.send(0, &mget);
        world.serve_until_idle();
        let (jobs, bytes) = (world.waiting_keys().1, world.pending_bytes());
        assert!(jobs > keys.len() && bytes == (jobs + value.len(), 0), "{jobs} {bytes:?}");
        world.begin();
        assert!(world.pending_bytes().1 >= 64 * 13, "a part of the answers is found");
        if is_cut {
            world.cut(0);
        } else {
            world.execute();
            world.serve_until_idle();
            // A reply that waits for an earlier one counts too.
            assert!(world.call(0, "").0.ends_with("$-1\r\n"));
            world.send(0, &(mget.clone() + "PING\r\n"));
            world.serve_until_idle();
            assert_eq!(world.pending_bytes().0, jobs + value.len() + "+PONG\r\n".len());
            assert!(world.call(0, "").0.ends_with("+PONG\r\n"));
        }
    }
    assert_eq!(world.pending_bytes(), (0, 0));
}
