//! Plans: over RESP and asked natively, over several shards, beside what an oracle in the test says.

use remora_plan::{Column, Outcome, bytes, text};
use remora_protocol::Command;
use remora_protocol::message::{MORE, REPLY_HEADER_BYTES, ReplyHeader, Status};
use remora_tests::{Random, RawSession, Resp, ServerProcess, Value, wait_for, wait_until};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::FromBytes;

/// Calls a plan whose words have no spaces.
fn run(resp: &mut Resp, plan: &str) -> Value {
    resp.call(&format!("PLAN.RUN {plan}"))
}

/// The same, which has to give rows.
fn rows(resp: &mut Resp, plan: &str) -> Vec<Value> {
    match run(resp, plan) {
        Value::Array(rows) => rows,
        other => panic!("{plan}: {other:?}"),
    }
}

/// The outcome of an explained plan: the fields by their names.
fn explained(resp: &mut Resp, plan: &str) -> BTreeMap<String, Value> {
    let Value::Array(flat) = run(resp, &format!("EXPLAIN {plan}")) else { panic!("{plan}") };
    let name = |value: &Value| match value {
        Value::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    flat.chunks(2).map(|pair| (name(&pair[0]), pair[1].clone())).collect()
}

/// Asks for a plan by one frame in a ring.
struct Native(RawSession);

impl Native {
    fn connect(server: &ServerProcess) -> Self {
        Self(RawSession::connect(&server.socket()))
    }

    fn ask(&mut self, plan: &str, id: u32) {
        let words: Vec<&str> = plan.split(' ').collect();
        let plan = bytes::encode(&text::parse(&words).unwrap().plan);
        assert!(self.0.send(&Command::Plan { plan: &plan }, id));
    }

    /// The status of the next whole reply, its id, its value, and of how many parts it came.
    fn receive(&mut self) -> (Status, u32, Vec<u8>, usize) {
        let (mut value, mut parts) = (Vec::new(), 0);
        loop {
            let frame = wait_for("a reply", || self.0.receive());
            let (header, part) = ReplyHeader::read_from_prefix(&frame).unwrap();
            assert_eq!(frame.len() - REPLY_HEADER_BYTES, header.value_bytes.get() as usize);
            value.extend_from_slice(part);
            parts += 1;
            if header.flags & MORE == 0 {
                let status = Status::from_number(header.status).unwrap();
                return (status, header.id.get(), value, parts);
            }
        }
    }

    fn outcome(&mut self, plan: &str) -> (Outcome, usize) {
        self.ask(plan, 7);
        let (status, id, value, parts) = self.receive();
        assert_eq!((status, id), (Status::Ok, 7));
        (Outcome::from_bytes(&value).expect("an outcome"), parts)
    }
}

/// Rows as RESP has them.
fn as_values(outcome: &Outcome) -> Vec<Value> {
    let column = |column: &Column| match column {
        Column::Nil => Value::Null,
        Column::Text(text) => Value::bulk(&text[..]),
        Column::Fields(fields) => {
            let pair = |(name, value): &(_, _)| [Value::bulk(bulk(name)), Value::bulk(bulk(value))];
            Value::Array(fields.iter().flat_map(pair).collect())
        }
    };
    let row = |row: &Vec<Column>| Value::Array(row.iter().map(column).collect());
    outcome.rows.iter().map(row).collect()
}

fn bulk(bytes: &std::sync::Arc<[u8]>) -> Vec<u8> {
    bytes.to_vec()
}

fn row(columns: &[&str]) -> Value {
    Value::Array(columns.iter().map(|column| Value::bulk(*column)).collect())
}

/// A courier: where, and whether free.
struct Courier {
    x: f64,
    y: f64,
    is_free: bool,
    zone: usize,
}

/// Couriers in a tree, their profiles with a link to a zone each, and the zones.
fn write_couriers(resp: &mut Resp, random: &mut Random, count: usize) -> Vec<Courier> {
    for zone in 0..12 {
        assert!(!resp.call(&format!("HSET zone:{zone} name Z{zone} surge {zone}")).is_error());
    }
    let mut couriers = Vec::new();
    for id in 0..count {
        let (x, y) = (random.between(13.0, 13.8), random.between(52.3, 52.7));
        let (is_free, zone) = (random.one_in(3), random.below(12_usize));
        let status = if is_free { "free" } else { "busy" };
        let add = format!("RTREE.ADD couriers {id} {x} {y} {x} {y} FIELDS 1 status {status}");
        assert!(!resp.call(&add).is_error());
        resp.call(&format!("HSET courier:{id} name N{id} phone {id}00"));
        assert_eq!(
            resp.call(&format!("LINK.SET courier:{id} zone zone:{zone}")),
            Value::Integer(1)
        );
        couriers.push(Courier { x, y, is_free, zone });
    }
    couriers
}

#[test]
fn the_nearest_free_couriers_their_profiles_and_zones_are_one_request() {
    let server = ServerProcess::start(&["--shards=3"]);
    let mut random = Random::new(24);
    let couriers = write_couriers(&mut server.resp(), &mut random, 400);
    let (mut resp, mut native) = (server.resp(), Native::connect(&server));
    for count in [1, 5, 5, 5, 40, 2000] {
        let (x, y) = (random.between(13.0, 13.8), random.between(52.3, 52.7));
        let mut free: Vec<_> = (0..couriers.len()).filter(|id| couriers[*id].is_free).collect();
        let distance = |id: &usize| {
            let Courier { x: east, y: north, .. } = couriers[*id];
            (east - x).powi(2) + (north - y).powi(2)
        };
        free.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
        let expected: Vec<Value> = free
            .iter()
            .take(count)
            .map(|id| {
                let zone = couriers[*id].zone;
                row(&[
                    &format!("N{id}"),
                    &format!("{id}00"),
                    &format!("Z{zone}"),
                    &zone.to_string(),
                ])
            })
            .collect();
        let plan = format!(
            "FROM NEAREST couriers {x} {y} {count} WHERE status = free KEY courier: \
             GET name phone FOLLOW zone GET name surge"
        );
        let before = resp.info("total_commands_processed");
        assert_eq!(rows(&mut resp, &plan), expected);
        // The plan, and the INFO itself.
        assert_eq!(resp.info("total_commands_processed"), before + 2);
        let (outcome, _) = native.outcome(&plan);
        assert_eq!(as_values(&outcome), expected);
        assert_eq!((outcome.limit, outcome.explain.hops), (None, expected.len() as u64));
    }
}

/// A graph: each node is a hash with its next ones in a list, of links or of plain keys.
fn write_graph(resp: &mut Resp, random: &mut Random, nodes: usize) -> Vec<Vec<usize>> {
    let mut graph = Vec::new();
    for node in 0..nodes {
        let count = random.below(6_usize);
        let next: Vec<usize> = (0..count).map(|_| random.below(nodes)).collect();
        resp.call(&format!("HSET node:{node} name n{node} next list:{node} odd {}", node % 2));
        for to in &next {
            resp.call(&format!("RPUSH list:{node} node:{to}"));
        }
        graph.push(next);
    }
    graph
}

/// All nodes within some levels, breadth first, without the first one.
fn within(graph: &[Vec<usize>], from: usize, depth: usize) -> Vec<usize> {
    let (mut met, mut found) = (BTreeSet::from([from]), Vec::new());
    let mut queue = VecDeque::from([(from, 0)]);
    while let Some((at, level)) = queue.pop_front() {
        for &next in graph[at].iter().filter(|_| level < depth) {
            if met.insert(next) {
                found.push(next);
                queue.push_back((next, level + 1));
            }
        }
    }
    found
}

#[test]
fn a_walk_over_shards_meets_what_a_search_in_memory_meets() {
    for shards in ["--shards=1", "--shards=4"] {
        let server = ServerProcess::start(&[shards]);
        let mut random = Random::new(25);
        let graph = write_graph(&mut server.resp(), &mut random, 300);
        // Connections of several threads.
        let mut connections: Vec<Resp> = (0..4).map(|_| server.resp()).collect();
        let mut native = Native::connect(&server);
        for turn in 0..60 {
            let (from, depth) = (random.below(300_usize), random.within(1..7_usize));
            let expected: Vec<Value> = within(&graph, from, depth)
                .into_iter()
                .filter(|node| node % 2 == 1)
                .map(|node| row(&[&format!("node:{node}"), &format!("n{node}")]))
                .collect();
            let plan = format!(
                "FROM KEYS 1 node:{from} WALK next {depth} KEY WHERE odd = 1 GETKEY GET name"
            );
            assert_eq!(rows(&mut connections[turn % 4], &plan), expected, "{plan}");
            assert_eq!(as_values(&native.outcome(&plan).0), expected, "{plan}");
        }
    }
}

#[test]
fn all_kinds_of_starts_and_items_are_told_of() {
    let server = ServerProcess::start(&["--shards=2"]);
    let (mut resp, mut native) = (server.resp(), Native::connect(&server));
    for request in ["SET text hello", "SADD set a", "HSET h a 1 b 2", "RPUSH l h text none set h"] {
        resp.call(request);
    }
    resp.call("LINK.SET chunk 0 h 1 none 2 text");
    resp.call("HSET chunk 3 plain");
    for entry in ["1 h LINK", "2 plain", "3 text LINK"] {
        resp.call(&format!("BTREE.SET times {entry}"));
    }
    let long = "x".repeat(200_000);
    resp.call(&format!("SET long {long}"));
    let mut check = |plan: &str, expected: Vec<Value>| {
        assert_eq!(rows(&mut resp, plan), expected, "{plan}");
        assert_eq!(as_values(&native.outcome(plan).0), expected, "{plan}");
    };
    let h = || Value::Array(vec![row(&["a", "1", "b", "2"])]);
    check("FROM KEYS 4 h none set text GETALL", vec![h(), row(&["hello"])]);
    check("FROM KEYS 1 long GETALL", vec![row(&[&long])]);
    let null = Value::Array(vec![Value::bulk("text"), Value::Null]);
    check("FROM KEYS 2 h text GETKEY GET b", vec![row(&["h", "2"]), null]);
    check("FROM LIST l 0 -1 KEY GETALL", vec![h(), row(&["hello"]), h()]);
    check("FROM LIST l -2 -1 KEY GETALL", vec![h()]);
    check("FROM LIST l 1 1 KEY GETALL", vec![row(&["hello"])]);
    check("FROM LIST l 7 9 KEY GETALL", vec![]);
    check("FROM LIST l 0 -1 GETALL", vec![]);
    check("FROM LIST none 0 -1 KEY GETKEY", vec![]);
    check("FROM WINDOW none 0 0 1 1 GETKEY", vec![]);
    check("FROM NEAREST l 0 0 3 GETKEY", vec![]);
    check("FROM KEYS 1 h TAKE 1", vec![Value::Array(vec![])]);
    check("FROM KEYS 2 h chunk FIELDS GETKEY", ["h", "none", "text"].map(|key| row(&[key])).into());
    check("FROM KEYS 1 chunk FIELDS GETALL", vec![h(), row(&["hello"])]);
    let keys = ["h", "none", "text", "plain"].map(|key| row(&[key]));
    check("FROM KEYS 1 chunk FIELDS KEY GETKEY", keys.into());
    check("FROM KEYS 4 h text l none FIELDS GETKEY", vec![]);
    check("FROM KEYS 2 times text RANGE - + GETALL", vec![h(), row(&["hello"])]);
    let rows = [row(&["3", "text"]), row(&["2", "plain"])];
    check("FROM KEYS 1 times RANGE (1 3 REV COUNT 2 WITHKEYS KEY GETKEY", rows.into());
    check("FROM KEYS 1 none RANGE - + GETKEY", vec![]);
}

#[test]
fn places_of_trees_and_of_geo_keys_are_starts() {
    let server = ServerProcess::start(&["--shards=2"]);
    let (mut resp, mut random) = (server.resp(), Random::new(26));
    for id in 0..500 {
        let (x, y) = (random.between(-170.0, 170.0), random.between(-80.0, 80.0));
        resp.call(&format!("GEOADD geo {x} {y} m{id}"));
        resp.call(&format!("RTREE.ADD tree t{id} {x} {y} {x} {y}"));
    }
    let ids = |value: Value| match value {
        Value::Array(ids) => ids,
        other => panic!("{other:?}"),
    };
    let id_of = |row: Value| match row {
        Value::Array(columns) => columns[0].clone(),
        other => panic!("{other:?}"),
    };
    for _ in 0..30 {
        let (x, y) = (random.between(-170.0, 170.0), random.between(-80.0, 80.0));
        let count = random.within(1..300_usize);
        let found = rows(&mut resp, &format!("FROM NEAREST geo {x} {y} {count} GETKEY"));
        let search =
            format!("GEOSEARCH geo FROMLONLAT {x} {y} BYRADIUS 30000 km ASC COUNT {count}");
        let expected = ids(resp.call(&search));
        assert_eq!(found.into_iter().map(id_of).collect::<Vec<_>>(), expected);
        let found = rows(&mut resp, &format!("FROM NEAREST tree {x} {y} {count} GETKEY"));
        let expected = ids(resp.call(&format!("RTREE.NEAREST tree {x} {y} {count}")));
        assert_eq!(found.into_iter().map(id_of).collect::<Vec<_>>(), expected);
        // The same places lie in a window, whichever type has them.
        let (width, height) = (random.between(0.0, 200.0), random.between(0.0, 100.0));
        let window = format!("{x} {y} {} {}", x + width, y + height);
        let mut names = [("geo", "m"), ("tree", "t")].map(|(key, letter)| {
            let found = rows(&mut resp, &format!("FROM WINDOW {key} {window} GETKEY"));
            let name = |row| match id_of(row) {
                Value::Bulk(id) => String::from_utf8(id).unwrap().replace(letter, ""),
                other => panic!("{other:?}"),
            };
            found.into_iter().map(name).collect::<BTreeSet<_>>()
        });
        // GEO keys round positions.
        let [geo, tree] = &mut names;
        assert!(geo.symmetric_difference(tree).count() <= 1, "{window}");
    }
    // Members have no fields: each of them is missing.
    for start in ["NEAREST geo 0 0 7", "WINDOW geo -90 -45 90 45"] {
        let all = rows(&mut resp, &format!("FROM {start} GETKEY"));
        assert!(all.len() >= 7);
        let missing = format!("FROM {start} WHERE status MISSING GETKEY");
        assert_eq!(rows(&mut resp, &missing), all, "{start}");
        let with_field = format!("FROM {start} WHERE status = free GETKEY");
        assert!(rows(&mut resp, &with_field).is_empty(), "{start}");
    }
}

#[test]
fn bad_plans_are_refused_with_what_would_be_right() {
    let server = ServerProcess::start(&["--shards=1"]);
    let mut resp = server.resp();
    resp.call("BTREE.CREATE numbers INTEGERS");
    for (plan, why) in [
        ("FROM", "wrong number of arguments"),
        ("EXPLAIN FROM", "expected KEYS, LIST, WINDOW or NEAREST"),
        ("FROM KEYS 1 a FOLOW b", "word 5, 'FOLOW': expected a step"),
        ("FROM KEYS 0", "a plan starts from 1 to 1024 keys"),
        ("FROM KEYS 1 a WALK next 65", "WALK goes 1 to 64 levels deep"),
        ("FROM KEYS 1 a TAKE 0", "TAKE"),
        ("FROM KEYS 1 a RANGE", "expected a smallest key"),
        ("FROM KEYS 1 a RANGE +", "expected a greatest key"),
        ("FROM KEYS 1 a RANGE - + COUNT 0", "RANGE takes at least 1 entry"),
        ("FROM KEYS 1 numbers RANGE seven +", "keys of this tree are integers"),
        ("FROM KEYS 1 a LIMIT VISITS 99999999999", "VISITS is at most"),
        ("FROM NEAREST t x 1 2", "a finite number"),
        ("FROM WINDOW t 1 1 0 0", "a window has finite corners"),
    ] {
        let Value::Error(text) = run(&mut resp, plan) else { panic!("{plan}") };
        assert!(text.starts_with("ERR ") && text.contains(why), "{plan}: {text}");
    }
    let deep = format!("FROM KEYS 1 a{}", " FOLLOW a".repeat(33));
    let Value::Error(text) = run(&mut resp, &deep) else { panic!("too deep") };
    assert!(text.contains("at most 32 steps"), "{text}");
    assert!(resp.call("PLAN.RUN").is_error());
    // Bytes that are no plan.
    let mut native = Native::connect(&server);
    for plan in [&b""[..], b"nonsense", &[255; 100]] {
        assert!(native.0.send(&Command::Plan { plan }, 3));
        assert_eq!(native.receive().0, Status::Malformed);
    }
    assert_eq!(rows(&mut resp, "FROM KEYS 1 a GETALL"), []);
}

/// A complete graph, so that a walk with repetitions grows without bound.
fn write_complete(resp: &mut Resp, nodes: usize) {
    for node in 0..nodes {
        resp.call(&format!("HSET c:{node} next cl:{node}"));
        for to in 0..nodes {
            resp.call(&format!("RPUSH cl:{node} c:{to}"));
        }
    }
}

#[test]
fn limits_end_a_plan_with_the_rows_before_them_and_say_which() {
    let server = ServerProcess::start(&["--shards=3"]);
    let mut resp = server.resp();
    write_complete(&mut resp, 50);
    let walk = "FROM KEYS 1 c:0 WALK next 64 REPEAT KEY GETKEY";
    for (limits, limit, most) in [
        ("VISITS 2000", "VISITS", 2000),
        ("VISITS 1000000 LIMIT ROWS 777", "ROWS", 777),
        ("VISITS 1000000 LIMIT ROWS 100000 LIMIT BYTES 5000", "BYTES", 200),
        ("VISITS 1000000 LIMIT ROWS 100000 LIMIT REMEMBERED 300", "REMEMBERED", 300),
        ("VISITS 16000000 LIMIT ROWS 1000000 LIMIT REMEMBERED 1000000 LIMIT MS 30", "MS", 1 << 20),
    ] {
        let plan = format!("{walk} LIMIT {limits}");
        let outcome = explained(&mut resp, &plan);
        assert_eq!(outcome["limit"], Value::bulk(limit), "{plan}");
        let Value::Array(found) = &outcome["rows"] else { panic!("{plan}") };
        assert!(found.len() <= most && (!found.is_empty() || limit == "MS"), "{}", found.len());
        // Without EXPLAIN the reply could not say that rows are missing.
        let Value::Error(text) = run(&mut resp, &plan) else { panic!("{plan}") };
        assert!(text.contains(&format!("the plan reached its limit {limit} behind")), "{text}");
    }
    // A cycle ends by itself where each item counts once, and else with the steps.
    assert_eq!(rows(&mut resp, "FROM KEYS 1 c:0 WALK next 64 KEY GETKEY").len(), 49);
    resp.call("HSET ring next ring");
    let around = format!("FROM KEYS 1 ring{} GETKEY", " FOLLOW next KEY".repeat(30));
    assert_eq!(rows(&mut resp, &around), [row(&["ring"])]);
    let held = ["plans_running", "plans_waiting", "plans_reserved_bytes"];
    wait_until("nothing is held", || held.iter().all(|name| resp.info(name) == 0));
    wait_until("the limits are counted", || resp.info("plans_limited") == 10);
}

/// A plan that takes some seconds, if nothing ends it.
const LONG: &str = "FROM KEYS 1 c:0 WALK next 64 REPEAT KEY WHERE next MISSING GETKEY \
                    LIMIT VISITS 16000000 LIMIT REMEMBERED 1000000 LIMIT MS 60000";

#[test]
fn others_are_served_while_a_large_plan_runs() {
    let server = ServerProcess::start(&["--shards=2"]);
    let (mut resp, mut other) = (server.resp(), server.resp());
    write_complete(&mut resp, 60);
    let mut native = Native::connect(&server);
    resp.send(
        &[&b"PLAN.RUN"[..], b"EXPLAIN"]
            .into_iter()
            .chain(LONG.split(' ').map(str::as_bytes))
            .collect::<Vec<_>>(),
    )
    .unwrap();
    wait_until("the plan runs", || other.info("plans_running") == 1);
    // Each of these is answered while the plan runs, whichever shard has the key.
    let mut served = 0;
    for number in 0..300 {
        assert_eq!(other.call(&format!("SET k{number} {number}")), Value::ok());
        assert_eq!(other.call(&format!("GET k{number}")), Value::bulk(number.to_string()));
        let plan = format!("FROM KEYS 1 c:{} FOLLOW next KEY EACH KEY TAKE 2 GETKEY", number % 60);
        assert_eq!(rows(&mut other, &plan), [row(&["c:0"]), row(&["c:1"])]);
        // A key of the shard to which this session is attached.
        if number >= 2 {
            assert!(native.0.send(&Command::Get { key: b"k2" }, 5));
            assert_eq!(native.receive().2, b"2");
        }
        if other.info("plans_running") == 0 {
            break;
        }
        served += 1;
    }
    assert!(served >= 10, "{served} rounds while it ran");
    drop(resp);
    wait_until("it has ended", || other.info("plans_running") == 0);
}

#[test]
fn a_client_that_goes_leaves_no_plan() {
    let server = ServerProcess::start(&["--shards=2"]);
    let mut other = server.resp();
    write_complete(&mut other, 60);
    for turn in 0..6 {
        let (mut resp, mut native) = (server.resp(), Native::connect(&server));
        let words: Vec<&[u8]> =
            ["PLAN.RUN"].into_iter().chain(LONG.split(' ')).map(str::as_bytes).collect();
        resp.send(&words).unwrap();
        native.ask(LONG, 9);
        wait_until("they run", || other.info("plans_running") == 2);
        drop(resp);
        wait_until("one has gone", || other.info("plans_running") == 1);
        drop(native);
        wait_until("both have gone", || other.info("plans_running") == 0);
        assert_eq!(other.info("plans_given_up"), 2 * (turn + 1));
        // An answer to a plan that has gone is none to the next one.
        let expected: Vec<Value> = (0..60).map(|node| row(&[&format!("c:{node}")])).collect();
        let found = rows(&mut other, "FROM LIST cl:7 0 -1 KEY GETKEY");
        assert_eq!(found, expected);
    }
    wait_until("nothing is held", || other.info("plans_reserved_bytes") == 0);
}

#[test]
fn a_plan_sees_what_its_connection_wrote_before_it() {
    let server = ServerProcess::start(&["--shards=4"]);
    let mut resp = server.resp();
    let long = "v".repeat(100_000);
    for turn in 0..30 {
        let mut requests = Vec::new();
        let mut keys = String::new();
        for key in 0..40 {
            let hset = format!("HSET own:{key} at {turn} long {long}");
            let words: Vec<&[u8]> = hset.split(' ').map(str::as_bytes).collect();
            requests.extend(remora_tests::encode(&words));
            keys += &format!(" own:{key}");
        }
        let plan = format!("PLAN.RUN FROM KEYS 40{keys} GET at");
        let words: Vec<&[u8]> = plan.split(' ').map(str::as_bytes).collect();
        requests.extend(remora_tests::encode(&words));
        resp.send_raw(&requests).unwrap();
        for _ in 0..40 {
            assert!(!resp.receive().unwrap().is_error());
        }
        let expected = vec![row(&[&turn.to_string()]); 40];
        assert_eq!(resp.receive().unwrap(), Value::Array(expected));
    }
}

#[test]
fn a_long_outcome_comes_in_parts_and_plans_of_one_session_in_their_order() {
    let server = ServerProcess::start(&["--shards=2"]);
    let mut resp = server.resp();
    for key in 0..500 {
        resp.call(&format!("HSET big:{key} text {}", "y".repeat(1000 + key)));
        resp.call(&format!("RPUSH all big:{key}"));
    }
    let expected: Vec<Value> = (0..500).map(|key| row(&[&"y".repeat(1000 + key)])).collect();
    let plan = "FROM LIST all 0 -1 KEY GET text";
    assert_eq!(rows(&mut resp, plan), expected);
    let mut native = Native::connect(&server);
    let (outcome, parts) = native.outcome(plan);
    assert_eq!(as_values(&outcome), expected);
    assert!(parts > 10, "{parts}");
    for id in 0..20 {
        native.ask(if id % 2 == 0 { plan } else { "FROM KEYS 1 big:7 GETKEY" }, id);
    }
    for id in 0..20 {
        let (status, answered, value, _) = native.receive();
        assert_eq!((status, answered), (Status::Ok, id));
        let rows = Outcome::from_bytes(&value).unwrap().rows.len();
        assert_eq!(rows, if id % 2 == 0 { 500 } else { 1 });
    }
}
