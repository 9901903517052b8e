//! Connections and one shard in one thread: which requests are read, which are asked, and which
//! connections are served in between.

use crate::resp::tests::world::{World, add_row, request};
use crate::resp::trees::places::{KEPT_NAME_BYTES, KEPT_NAMES};
use remora_frontend::Executor;
use remora_layout::limits::{CONNECTION_REQUESTS_PER_TURN, CONNECTIONS_PER_TURN};

#[test]
fn small_searches_are_read_once_the_place_is_known() {
    let mut world = World::new(1);
    add_row(&mut world, 3_000);
    let search = "RTREE.SEARCH t 7 0 8 1\r\n";
    let found = "*2\r\n:7\r\n:8\r\n";
    let (reply, jobs) = world.call(0, search);
    assert_eq!((reply.len(), jobs), (found.len(), 2), "the search, and where the tree is");
    assert_eq!(world.call(0, search), (found.into(), 0));
    assert_eq!(world.call(0, "RTREE.COUNT t 7 0 18 1\r\n"), (":12\r\n".into(), 0));
    let nearest = world.call(0, "RTREE.NEAREST t 7.2 0 2 WITHDIST\r\n").0;
    assert_eq!(nearest.matches("*2\r\n").count(), 3, "{nearest}");
    assert!(nearest.starts_with("*2\r\n*2\r\n:7\r\n$"), "{nearest}");
    assert_eq!(world.call(0, "RTREE.SEARCH t 7 0 99 1 LIMIT 1\r\n").0.matches(':').count(), 1);
    assert_eq!(world.reads(), (4, 0));
    // Too large: the shard's to answer.
    assert_eq!(world.call(0, "RTREE.COUNT t 0 0 2999 1\r\n"), (":3000\r\n".into(), 1));
    assert_eq!(world.call(0, "RTREE.COUNT t 0 0 1637 1\r\n"), (":1638\r\n".into(), 0));
    assert_eq!(world.reads(), (5, 1));
}

#[test]
fn ids_that_are_no_integers_are_told_by_the_owner() {
    let mut world = World::new(1);
    add_row(&mut world, 100);
    let search = "RTREE.SEARCH t 7 0 8 1\r\n";
    (0..2).for_each(|_| drop(world.call(0, search)));
    assert_eq!(world.call(0, search), ("*2\r\n:7\r\n:8\r\n".into(), 0), "it is read");
    let add = "RTREE.ADD t bike:7 7 1 7 1 DATA hi FIELDS 2 state free load 3 EX 60\r\n";
    assert_eq!(world.call(0, add).0, ":1\r\n");
    let (found, jobs) = world.call(0, search);
    assert_eq!((jobs, found.len()), (1, "*3\r\n:7\r\n:8\r\n$6\r\nbike:7\r\n".len()));
    assert!(found.contains("$6\r\nbike:7\r\n") && found.contains(":7\r\n:8\r\n"), "{found}");
    assert_eq!(world.call(0, "RTREE.COUNT t 7 0 8 1\r\n"), (":3\r\n".into(), 1));
    let nearest = world.call(0, "RTREE.NEAREST t 7 1 1\r\n");
    assert_eq!(nearest, ("*1\r\n$6\r\nbike:7\r\n".into(), 1));
    let limited = world.call(0, "RTREE.SEARCH t 7 0 8 1 LIMIT 2\r\n").0;
    assert!(limited.starts_with("*2\r\n"), "{limited}");
    // Elsewhere it is read as before.
    assert_eq!(world.call(0, "RTREE.COUNT t 8 0 9 1\r\n"), (":2\r\n".into(), 0));
    let get = "RTREE.GET t bike:7 WITHFIELDS WITHEXPIRY\r\n";
    let told = "*7\r\n$1\r\n7\r\n$1\r\n1\r\n$1\r\n7\r\n$1\r\n1\r\n$2\r\nhi\r\n\
                *4\r\n$4\r\nload\r\n$1\r\n3\r\n$5\r\nstate\r\n$4\r\nfree\r\n:60000\r\n";
    assert_eq!(world.call(0, get).0, told);
    assert_eq!(world.call(0, "RTREE.FSET t bike:7 state taken x y\r\n").0, ":1\r\n");
    let fields = world.call(0, "RTREE.FGET t bike:7 state y x\r\n").0;
    assert_eq!(fields, "*3\r\n$5\r\ntaken\r\n$-1\r\n$1\r\ny\r\n");
    for wrong in ["RTREE.FGET t nobody x\r\n", "RTREE.FSET t nobody x y\r\n"] {
        assert_eq!(world.call(0, wrong).0, "-ERR the tree has no such object\r\n");
    }
    // An integer that expires is an integer still.
    assert_eq!(world.call(0, "RTREE.ADDPOINT t 8 8 0 PX 5\r\n").0, ":0\r\n");
    assert!(world.call(0, search).0.contains(":8\r\n"));
    assert_eq!(world.call(0, "RTREE.REM t bike:7 8 7 nobody\r\n").0, ":3\r\n");
    assert_eq!(world.call(0, search), ("*0\r\n".into(), 0), "nothing is left to ask about");
}

#[test]
fn a_connection_sees_its_own_writes() {
    let mut world = World::new(2);
    add_row(&mut world, 100);
    let count = "RTREE.COUNT t 0 1 9 1\r\n";
    assert_eq!(world.call(0, count).0, ":0\r\n");
    assert_eq!(world.call(0, count), (":0\r\n".into(), 0));
    // The write is not executed yet when the count is parsed.
    let (replies, jobs) = world.call(0, &format!("RTREE.ADDPOINT t 5 5 1\r\n{count}{count}"));
    assert_eq!((replies.as_str(), jobs), (":0\r\n:1\r\n:1\r\n", 3));
    assert_eq!(world.call(0, count), (":1\r\n".into(), 0));
    // No other connection waits for a connection's write.
    world.send(1, "RTREE.REM t 5\r\n");
    world.serve();
    world.send(0, count);
    world.serve();
    assert_eq!(world.written(0), ":1\r\n");
    world.execute();
    world.serve();
    assert_eq!((world.written(1), world.call(0, count).0), (":1\r\n".into(), ":0\r\n".into()));
}

#[test]
fn a_tree_that_went_is_not_read() {
    let mut world = World::new(1);
    let count = "RTREE.COUNT t 0 0 9 1\r\n";
    for drop in ["RTREE.DROP t\r\n", "FLUSHALL\r\n"] {
        add_row(&mut world, 500);
        for jobs in [2, 0] {
            assert_eq!(world.call(0, count), (":10\r\n".into(), jobs));
        }
        world.call(0, drop);
        let (reply, jobs) = world.call(0, count);
        assert!(reply.starts_with("-ERR no such tree") && jobs == 1, "{reply} {jobs}");
        // A question about a tree that is not there teaches nothing.
        let (reply, jobs) = world.call(0, count);
        assert!(reply.starts_with("-ERR no such tree") && jobs == 2, "{reply} {jobs}");
        // One of the same name lies where it was, perhaps; it is another.
        world.call(0, "RTREE.ADDPOINT t 1 5 0\r\n");
        for jobs in [2, 0] {
            assert_eq!(world.call(0, count), (":1\r\n".into(), jobs));
        }
        world.call(0, "RTREE.DROP t\r\n");
        world.call(0, count);
    }
}

#[test]
fn names_are_forgotten_before_they_are_too_many() {
    let mut world = World::new(1);
    let names = KEPT_NAMES + 10;
    for at in 0..names {
        world.call(0, &format!("RTREE.ADDPOINT t{at} 1 0 0\r\n"));
        for jobs in [2, 0] {
            let count = format!("RTREE.COUNT t{at} 0 0 0 0\r\n");
            assert_eq!(world.call(0, &count), (":1\r\n".into(), jobs));
        }
    }
    let long = "n".repeat(KEPT_NAME_BYTES + 1);
    world.call(0, &format!("RTREE.ADDPOINT {long} 1 0 0\r\n"));
    for _ in 0..2 {
        assert_eq!(world.call(0, &format!("RTREE.COUNT {long} 0 0 0 0\r\n")).1, 1);
    }
}

/// A large reply is written a piece a turn; in each turn the other connection
/// is served.
#[test]
fn others_are_served_between_the_pieces_of_a_reply() {
    let mut world = World::new(2);
    let objects = 20_000;
    add_row(&mut world, objects);
    world.send(0, "RTREE.SEARCH t -1 -1 99999 1 WITHRECT\r\nPING\r\n");
    world.serve();
    world.execute();
    let (mut reply, mut turns, mut longest) = (String::new(), 0, 0);
    while !reply.ends_with("+PONG\r\n") {
        world.send(1, "PING\r\n");
        world.serve();
        assert_eq!(world.written(1), "+PONG\r\n");
        let piece = world.written(0);
        longest = longest.max(piece.len());
        reply.push_str(&piece);
        turns += 1;
        assert!(turns < objects, "the reply goes on");
    }
    assert!(turns > objects / 1024 && longest < 128 << 10, "{turns} turns, {longest} bytes");
    assert!(reply.starts_with("*20000\r\n*5\r\n:"));
    assert_eq!(reply.matches("*5\r\n").count(), objects);
}

#[test]
fn a_thread_executes_commands_of_its_own_shard_at_once() {
    let mut world = World::at_home(1);
    let lines =
        "SET a 1\r\nINCR a\r\nGET a\r\nMSET b 1 c 2\r\nMGET a b x\r\nDEL a b x\r\nEXISTS c c\r\n";
    let replies = "+OK\r\n:2\r\n$1\r\n2\r\n+OK\r\n*3\r\n$1\r\n2\r\n$1\r\n1\r\n$-1\r\n:2\r\n:2\r\n";
    assert_eq!(world.call(0, lines), (replies.into(), 0));
    assert_eq!(world.reads(), (0, 0));
    let counts = &world.executor.port().counts;
    // Each command once, however many keys it names.
    assert_eq!((counts.executed_here.get(), counts.commands.get()), (7, 7));
    assert_eq!(counts.keys_here.get(), 3 + 3 + 2);
    assert_eq!(counts.frontend.writes.get(), 1, "the replies of a turn leave together");
}

/// A list that goes in pieces pauses at its shard until the client reads. Later requests are not
/// executed before, and nothing is lost of either.
#[test]
fn nothing_overtakes_the_rest_of_a_long_reply() {
    let mut world = World::at_home(2);
    let fields: String = (0..30_000).map(|field| format!(" field{field} value{field}")).collect();
    world.call(0, &request(&format!("HSET h{fields}")));
    let (whole, _) = world.call(0, "HGETALL h\r\n");
    world.bound(1, 20_000);
    let large = "v".repeat(300_000);
    world.call(0, &request(&format!("SET large {large}")));
    let lines = "HGETALL h\r\nGET large\r\nHGETALL h\r\nGET large\r\nINCR n\r\n";
    let (first, _) = world.call(1, lines);
    assert!(first.len() <= 20_000, "the client does not read yet");
    assert_eq!(world.call(0, "GET n\r\n").0, "$-1\r\n");
    world.bound(1, usize::MAX);
    let (rest, _) = world.call(1, "");
    let value = format!("$300000\r\n{large}\r\n");
    assert_eq!(first + &rest, format!("{whole}{value}{whole}{value}:1\r\n"));
}

#[test]
fn a_turn_of_a_connection_and_of_all_is_bounded() {
    let mut world = World::at_home(40);
    for connection in 0..40 {
        world.send(connection, &"PING\r\n".repeat(300));
    }
    let commands = |world: &World| world.executor.port().counts.commands.get() as usize;
    world.serve();
    assert_eq!(commands(&world), CONNECTIONS_PER_TURN * CONNECTION_REQUESTS_PER_TURN);
    let quiet = 39;
    world.serve();
    world.serve();
    assert_eq!(
        world.written(quiet),
        "+PONG\r\n".repeat(CONNECTION_REQUESTS_PER_TURN),
        "its turn came"
    );
    let (rest, _) = world.call(quiet, "");
    assert_eq!(rest, "+PONG\r\n".repeat(300 - CONNECTION_REQUESTS_PER_TURN));
}

#[test]
fn a_connection_that_waits_for_nothing_goes_on_elsewhere() {
    let (mut world, mut other) = (World::at_home(3), World::at_home(1));
    world.call(0, "SELECT 3\r\n");
    for _ in 0..10 {
        world.call(1, "PING\r\n");
    }
    // The third has sent half a request.
    for _ in 0..12 {
        world.call(2, "PING\r\n");
    }
    assert!(
        world.connections.take_out(world.executor.port(), 0.0).is_none(),
        "each has a larger share"
    );
    for connection in [0, 1, 1, 2, 2, 2] {
        world.call(connection, "PING\r\n");
    }
    world.call(2, "SET k");
    let (pipe, connection) =
        world.connections.take_out(world.executor.port(), 0.7).expect("one of them");
    assert_eq!((connection.responder().serial(), world.connections.open()), (3, 2));
    other.connections.add(pipe.clone(), connection);
    other.pipes.push(pipe);
    assert_eq!(other.call(1, " v\r\n"), ("+OK\r\n".into(), 0), "it had sent the half of it");
    assert_eq!(world.call(2, ""), (String::new(), 0));
    world.call(0, "PING\r\n");
    assert!(world.connections.take_out(world.executor.port(), 1.0).is_none(), "one alone stays");
}

/// The shard's own thread reads in place the same bytes that other threads copy.
#[test]
fn the_own_shards_tree_is_read_where_it_lies() {
    let (mut own, mut other) = (World::at_home(1), World::new(1));
    for world in [&mut own, &mut other] {
        add_row(world, 3_000);
        // It learns where the tree is.
        (0..2).for_each(|_| drop(world.call(0, "RTREE.SEARCH t 7 0 8 1\r\n")));
    }
    let (before, _) = own.reads();
    let searches: Vec<String> = (0..40)
        .map(|at| format!("RTREE.SEARCH t {at} 0 {} 1 WITHRECT\r\n", at * 20))
        .chain(["RTREE.COUNT t 7 0 18 1\r\n", "RTREE.NEAREST t 7.2 0 9\r\n"].map(Into::into))
        .collect();
    for (round, change) in
        ["", "RTREE.REM t 9\r\n", "RTREE.ADDPOINT t 7 900 0\r\n"].iter().enumerate()
    {
        for world in [&mut own, &mut other] {
            drop(world.call(0, change));
        }
        for search in &searches {
            assert_eq!(own.call(0, search).0, other.call(0, search).0, "{round}: {search}");
        }
    }
    assert_eq!(own.reads(), (before + 3 * searches.len() as u64, 0), "all were read");
}

/// The connections' thread sees that the tree has expired before its shard removes it.
#[test]
fn an_expired_tree_is_not_read() {
    let mut world = World::new(1);
    add_row(&mut world, 100);
    world.call(0, "PEXPIREAT t 1000\r\n");
    let count = "RTREE.COUNT t 7 0 8 1\r\n";
    world.call(0, count);
    for (unix_ms, jobs) in [(999, 0), (1_000, 1)] {
        world.set_time(unix_ms);
        assert_eq!(world.call(0, count).1, jobs, "at {unix_ms} ms");
    }
}
