//! `remora load` as a process: files and PostgreSQL, whole generations, and what goes wrong.

use remora_client_core::Path as ReadPath;
use remora_tests::{
    Finished, PostgresServer, Resp, ServerProcess, Value, options, remora, run, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

/// A server, and files beside it.
struct Fixture {
    server: ServerProcess,
    directory: TempDir,
}

impl Fixture {
    fn new(flags: &[&str]) -> Self {
        let flags = [&["--shards=2"], flags].concat();
        let server = ServerProcess::start(&flags);
        Self { server, directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// `remora load` with these words, among the files.
    fn command(&self, words: &str) -> Command {
        let mut command = remora();
        command.arg("load").args(words.split_whitespace());
        command.arg("--server").arg(self.server.resp_address().to_string());
        command.args(["--grace-ms", "300"]);
        command
            .env_remove("PGPASSWORD")
            .env_remove("PGPASSFILE")
            .env("HOME", self.directory.path());
        command.current_dir(self.directory.path());
        command
    }

    fn run(&self, words: &str) -> Finished {
        run(&mut self.command(words))
    }

    /// The same; it has to succeed.
    fn good(&self, words: &str) -> Finished {
        let finished = self.run(words);
        assert_eq!(finished.code, Some(0), "{words}: {}{}", finished.out, finished.err);
        finished
    }

    /// The same; it has to fail.
    fn fails(&self, words: &str, code: i32, why: &str) {
        let finished = self.run(words);
        assert_eq!(finished.code, Some(code), "{words}: {}{}", finished.out, finished.err);
        assert!(finished.err.contains(why), "{words}: {}", finished.err);
    }

    fn resp(&self) -> Resp {
        self.server.resp()
    }

    /// All keys of the server, sorted.
    fn keys(&self) -> Vec<String> {
        let Value::Array(keys) = self.resp().call("KEYS *") else { panic!("KEYS gives no list") };
        let mut keys: Vec<String> = keys.into_iter().map(text).collect();
        keys.sort();
        keys
    }
}

fn text(value: Value) -> String {
    let Value::Bulk(text) = value else { panic!("{value:?} is no text") };
    String::from_utf8(text).unwrap()
}

fn bulk(text: &str) -> Value {
    Value::bulk(text.to_owned())
}

fn list(values: &[&str]) -> Value {
    Value::Array(values.iter().map(|value| bulk(value)).collect())
}

/// Rows of people whose marker is `version`.
fn people(count: u64, version: u64) -> String {
    let row = |id: u64| format!("{id},{version},{}\n", id / 2);
    "id,version,boss\n".to_owned() + &(0..count).map(row).collect::<String>()
}

const PEOPLE: &str = r#"
    name = "staff"
    root = { first = "person:0" }
    [[items]]
    key = "person:{id}"
    fields = { version = { column = "version", type = "integer" } }
    links = { boss = "person:{boss}" }
"#;

#[test]
fn json_lines_become_items_links_and_lists() {
    let fixture = Fixture::new(&[]);
    fixture.write(
        "shop/products.jsonl",
        concat!(
            "{\"id\": 1, \"title\": \"Küche\", \"price\": 12.50, \"sold\": true, \"maker\": {\"id\": 7}, \"reviews\": [11, 12]}\n",
            "\n",
            "{\"id\": 2, \"title\": \"a \\\"b\\\"\\n\", \"price\": null, \"maker\": null, \"reviews\": []}\n",
        ),
    );
    fixture.write("shop/reviews.jsonl", "{\"id\":11,\"by\":\"u\"}\n{\"id\":12,\"by\":\"v\"}\n");
    let mapping = r#"
        name = "shop"
        root = { all = "products", best = "product:1" }
        [[items]]
        from = "products"
        key = "product:{id}"
        links = { maker = "maker:{maker.id}", reviews = "product:{id}:reviews" }
        [items.fields]
        title = "title"
        price = { column = "price", type = "number" }
        sold = { column = "sold", type = "boolean" }
        [[lists]]
        from = "products"
        key = "product:{id}:reviews"
        link = "review:{reviews}"
        each = "reviews"
        [[lists]]
        from = "products"
        key = "products"
        link = "product:{id}"
        [[items]]
        from = "reviews"
        key = "review:{id}"
        fields = { by = "by" }
    "#;
    fixture.write("shop.toml", mapping);
    let told = fixture.good("shop --mapping shop.toml");
    let counts = "shop: generation 1: 4 items, 3 links, 4 elements of lists from 4 rows";
    assert!(told.out.contains(counts), "{}", told.out);
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET shop generation"), bulk("1"));
    assert_eq!(resp.call("LINK.GET shop current"), list(&["shop@1"]));
    assert_eq!(resp.call("LINK.GET shop all best"), list(&["shop@1:products", "shop@1:product:1"]));
    assert_eq!(resp.call("HGET shop@1 rows"), bulk("4"));
    assert_eq!(
        resp.call("HMGET shop@1:product:1 title price sold"),
        list(&["Küche", "12.50", "1"])
    );
    assert_eq!(resp.call("HGET shop@1:product:2 title"), bulk("a \"b\"\n"));
    assert_eq!(resp.call("HEXISTS shop@1:product:2 price"), Value::Integer(0));
    assert_eq!(resp.call("HEXISTS shop@1:product:2 maker"), Value::Integer(0));
    assert_eq!(
        resp.call("LINK.GET shop@1:product:1 maker reviews"),
        list(&["shop@1:maker:7", "shop@1:product:1:reviews"])
    );
    assert_eq!(
        resp.call("LRANGE shop@1:products 0 -1"),
        list(&["shop@1:product:1", "shop@1:product:2"])
    );
    assert_eq!(
        resp.call("LRANGE shop@1:product:1:reviews 0 -1"),
        list(&["shop@1:review:11", "shop@1:review:12"])
    );
    assert_eq!(resp.call("EXISTS shop@1:product:2:reviews"), Value::Integer(0));
    // A plan begins at the root's links, or makes keys of the generation that the root names.
    for start in ["FOLLOW best", "FOLLOW current SUFFIX :product:1"] {
        let plan = format!("PLAN.RUN FROM KEYS 1 shop {start} FOLLOW reviews EACH GET by");
        assert_eq!(resp.call(&plan), Value::Array(vec![list(&["u"]), list(&["v"])]));
    }
}

/// The places of the demo (GeoNames, CC BY 4.0: data/README.md): each has a link to its country, and each
/// country a list of its places; China's is a hub.
#[test]
fn a_table_of_real_places_becomes_a_graph() {
    let fixture = Fixture::new(&[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let packed = std::fs::read(root.join("data/places.tsv.xz")).unwrap();
    fixture.write("places.tsv.xz", packed);
    let mapping = r#"
        name = "world"
        [[items]]
        key = "place:{geonameid}"
        links = { country = "country:{country}" }
        [items.fields]
        name = "name"
        latitude = { column = "latitude", type = "number" }
        population = { column = "population", type = "integer" }
        [[items]]
        key = "country:{country}"
        fields = { code = "country" }
        links = { places = "country:{country}:places" }
        [[lists]]
        key = "country:{country}:places"
        link = "place:{geonameid}"
    "#;
    fixture.write("world.toml", mapping);
    let told = fixture.good("places.tsv.xz --mapping world.toml --json");
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((&told["rows"], &told["elements"]), (&118_525.into(), &118_525.into()));
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET world@1:place:1796236 name"), bulk("Shanghai"));
    assert_eq!(resp.call("LINK.GET world@1:place:1796236 country"), list(&["world@1:country:CN"]));
    // Lists have the order of the rows: by population.
    let places = resp.call("LINK.GET world@1:country:CN places");
    assert_eq!(places, list(&["world@1:country:CN:places"]));
    let first = resp.call("LRANGE world@1:country:CN:places 0 1");
    assert_eq!(first, list(&["world@1:place:1796236", "world@1:place:1816670"]));
    let Value::Integer(length) = resp.call("LLEN world@1:country:CN:places") else { panic!() };
    assert!(length > 1000, "{length}");
}

/// The form of the graph of followers: `from to` on each line, without names of columns.
#[test]
fn a_list_of_edges_becomes_a_graph_with_its_hub() {
    const FOLLOWERS: u64 = 100_000;
    let fixture = Fixture::new(&[]);
    let edge = |user: u64| format!("{user} 0\n{user} {}\n", user / 2);
    fixture.write("edges.txt", (1..=FOLLOWERS).map(edge).collect::<String>());
    let mapping = r#"
        name = "graph"
        [csv]
        columns = ["from", "to"]
        [[items]]
        key = "user:{from}"
        fields = { name = "from" }
        links = { follows = "user:{from}:follows" }
        [[items]]
        key = "user:{to}"
        fields = { name = "to" }
        links = { followers = "user:{to}:followers" }
        [[lists]]
        key = "user:{from}:follows"
        link = "user:{to}"
        [[lists]]
        key = "user:{to}:followers"
        link = "user:{from}"
    "#;
    fixture.write("graph.toml", mapping);
    let mut command = fixture.command("edges.txt --mapping graph.toml");
    let finished = run(command.args(["--separator", " "]));
    assert_eq!(finished.code, Some(0), "{}{}", finished.out, finished.err);
    assert!(finished.out.contains(&format!("{} elements", 4 * FOLLOWERS)), "{}", finished.out);
    let mut resp = fixture.resp();
    // User 1 follows 0 twice.
    assert_eq!(resp.call("LLEN graph@1:user:0:followers"), Value::Integer(FOLLOWERS as i64 + 1));
    let last = resp.call("LRANGE graph@1:user:0:followers -1 -1");
    assert_eq!(last, list(&["graph@1:user:100000"]));
    assert_eq!(
        resp.call("LRANGE graph@1:user:7:follows 0 -1"),
        list(&["graph@1:user:0", "graph@1:user:3"])
    );
    let links = resp.call("LINK.GET graph@1:user:7 name follows followers");
    let expected =
        vec![Value::Null, bulk("graph@1:user:7:follows"), bulk("graph@1:user:7:followers")];
    assert_eq!(links, Value::Array(expected));
}

#[test]
fn what_is_bad_is_told_with_its_place_and_nothing_changes() {
    let fixture = Fixture::new(&[]);
    fixture.write("staff.toml", PEOPLE);
    fixture.write("good.csv", people(100, 1));
    fixture.write("bad.csv", "id,version,boss\n1,1,1\n2,x,1\n3,1\n,1,1\n");
    fixture.write("lacks.csv", "id,boss\n1,1\n");
    fixture.write("broken.toml", "name = \"staff\"\n[[items]\n");
    fixture.write(
        "two.toml",
        PEOPLE.to_owned() + "[[lists]]\nfrom = \"x\"\nkey = \"l\"\nlink = \"{id}\"",
    );
    // A first load that fails leaves nothing but its number.
    fixture.fails(
        "bad.csv --mapping staff.toml",
        1,
        "bad.csv, line 3, column 2 (version): \"x\" is no integer",
    );
    assert_eq!(fixture.keys(), ["{staff}@last"]);
    fixture.good("good.csv --mapping staff.toml");
    let before = fixture.keys();
    fixture.fails("bad.csv --mapping staff.toml", 1, "line 3");
    fixture.fails(
        "lacks.csv --mapping staff.toml",
        1,
        "lacks.csv: line 1: no column version, but id, boss",
    );
    fixture.fails("none.csv --mapping staff.toml", 1, "cannot read none.csv");
    assert_eq!(fixture.keys(), before);
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET staff generation"), bulk("2"));
    let error = text(resp.call("HGET staff last_error"));
    assert!(error.contains("cannot read none.csv"), "{error}");
    assert_eq!(resp.call("HEXISTS staff failed_at"), Value::Integer(1));
    // The next good one forgets it.
    fixture.good("good.csv --mapping staff.toml");
    assert_eq!(resp.call("HEXISTS staff last_error"), Value::Integer(0));

    fixture.fails("good.csv --mapping broken.toml", 2, "line 2");
    fixture.fails("good.csv --mapping two.toml", 2, "one file, the mapping names several");
    fixture.fails("good.csv --mapping staff.toml --separator ab", 2, "one byte");
    let dry = fixture.run("bad.csv --mapping staff.toml --dry-run");
    assert_eq!(dry.code, Some(1));
    for told in [
        "HSET staff@1:person:1 \"version\" \"1\"",
        "LINK.SET staff@1:person:1 \"boss\" \"staff@1:person:1\"",
        "line 3, column 2 (version)",
        "line 4: it has 2 columns, not 3",
        "line 5, column 1 (id): it has no value",
        "3 rows are bad",
    ] {
        assert!(dry.err.contains(told), "{told} is not in {}", dry.err);
    }
    assert!(dry.out.contains("staff would get 1 items, 1 links"), "{}", dry.out);
    // A key of the user's own is not taken for a root.
    resp.call("DEL staff");
    resp.call("SET staff mine");
    fixture.fails("good.csv --mapping staff.toml", 1, "the key staff is no root: a string");
    assert_eq!(resp.call("GET staff"), bulk("mine"));
}

#[test]
fn a_misspelled_member_is_told_and_nothing_is_loaded() {
    let fixture = Fixture::new(&[]);
    let mapping = |column: &str| {
        format!(
            "name = \"staff\"\n[[items]]\nkey = \"person:{{id}}\"\nfields = {{ name = \"{column}\" }}\n"
        )
    };
    fixture.write("good.toml", mapping("name"));
    fixture.write("bad.toml", mapping("nmae"));
    fixture.write("staff.jsonl", "{\"id\":1}\n{\"id\":2,\"name\":\"Ada\"}\n");
    fixture.good("staff.jsonl --mapping good.toml");
    let before = fixture.keys();
    let why = "staff.jsonl: no row has the member nmae, but id, name";
    fixture.fails("staff.jsonl --mapping bad.toml", 1, why);
    assert_eq!(fixture.keys(), before);
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET staff@1:person:2 name"), bulk("Ada"));
    let error = text(resp.call("HGET staff last_error"));
    assert!(error.contains(why), "{error}");
    fixture.fails("staff.jsonl --mapping bad.toml --dry-run", 1, why);
    fixture.good("staff.jsonl --mapping good.toml --dry-run");
}

#[test]
fn a_source_that_became_empty_keeps_the_old_unless_it_is_allowed() {
    let fixture = Fixture::new(&[]);
    fixture.write(
        "staff.toml",
        "name = \"staff\"\n[[items]]\nkey = \"person:{id}\"\nfields = { version = \"version\" }\n",
    );
    // Where nothing was, nothing is lost.
    fixture.write("staff.jsonl", "");
    fixture.good("staff.jsonl --mapping staff.toml");
    fixture.good("staff.jsonl --mapping staff.toml");
    fixture.write("staff.jsonl", "{\"id\":1,\"version\":7}\n{\"id\":2,\"version\":7}\n");
    fixture.good("staff.jsonl --mapping staff.toml");
    let before = fixture.keys();
    for empty in ["staff.jsonl", "staff.csv"] {
        fixture.write(empty, if empty == "staff.csv" { "id,version\n" } else { "\n\n" });
        let why = "the source has no rows, and generation 3 has 2 rows; --allow-empty";
        fixture.fails(&format!("{empty} --mapping staff.toml"), 1, why);
        let mut resp = fixture.resp();
        assert_eq!(resp.call("HGET staff generation"), bulk("3"));
        assert_eq!(resp.call("HGET staff@3:person:2 version"), bulk("7"));
        let error = text(resp.call("HGET staff last_error"));
        assert!(error.contains(why), "{error}");
        assert_eq!(fixture.keys(), before);
    }
    let told = fixture.good("staff.jsonl --mapping staff.toml --allow-empty");
    assert!(told.out.contains("generation 6: 0 items"), "{}", told.out);
    assert_eq!(fixture.keys(), ["staff", "staff@6", "{staff}@last"]);
    assert_eq!(fixture.resp().call("HEXISTS staff last_error"), Value::Integer(0));
}

#[test]
fn a_server_whose_memory_is_full_keeps_the_old() {
    let fixture = Fixture::new(&["--max-memory=8MiB"]);
    fixture.write("staff.toml", PEOPLE);
    fixture.write("small.csv", people(100, 1));
    fixture.write("large.csv", people(300_000, 2));
    fixture.good("small.csv --mapping staff.toml");
    let before = fixture.keys();
    fixture.fails("large.csv --mapping staff.toml", 1, "large.csv, line ");
    assert_eq!(fixture.keys(), before);
    let error = text(fixture.resp().call("HGET staff last_error"));
    assert!(error.contains("> 'maxmemory'"), "{error}");
    fixture.good("small.csv --mapping staff.toml");
}

/// Reads all people of the present generation again and again; each time all have one version.
fn read_over_resp(fixture: &Fixture, count: u64, ends: &AtomicBool, met: &AtomicU64) -> u64 {
    let mut resp = fixture.resp();
    let mut rounds = 0;
    while !ends.load(Ordering::Relaxed) {
        let current = text(resp.call("HGET staff current"));
        for id in 0..count {
            let key = format!("{current}:person:{id}");
            resp.send(&[b"HGET", key.as_bytes(), b"version"]).unwrap();
        }
        let versions: Vec<Value> = (0..count).map(|_| resp.receive().unwrap()).collect();
        if versions.contains(&Value::Null) {
            // Only a reader that was slower than the grace time finds less than all.
            assert_ne!(text(resp.call("HGET staff current")), current, "a half is seen");
            continue;
        }
        let half = versions.iter().position(|version| *version != versions[0]);
        assert_eq!(half, None, "{current} has two versions");
        met.fetch_max(text(versions[0].clone()).parse().unwrap(), Ordering::Relaxed);
        rounds += 1;
    }
    rounds
}

/// The same by READs, from the root's link and on by links.
fn read_by_links(fixture: &Fixture, count: u64, ends: &AtomicBool) -> u64 {
    let mut session = fixture.server.session_with(&options());
    let mut field = |key: &[u8], field: &[u8]| {
        let mut open = session.open_hash(key).unwrap();
        let got = session.hash_get(&mut open, field, ReadPath::Read).unwrap();
        got.value.map(<[u8]>::to_vec)
    };
    let mut rounds = 0;
    'rounds: while !ends.load(Ordering::Relaxed) {
        let first = field(b"staff", b"first").expect("the root has its link");
        let prefix = first.strip_suffix(b"0").unwrap();
        let mut versions = vec![field(&first, b"version")];
        for id in [count / 3, count / 2, count - 1] {
            let key = [prefix, id.to_string().as_bytes()].concat();
            versions.push(field(&key, b"version"));
            let boss = field(&key, b"boss").unwrap_or_default();
            versions.push(field(&boss, b"version"));
        }
        if versions.contains(&None) {
            assert_ne!(field(b"staff", b"first").unwrap(), first, "a half is seen");
            continue 'rounds;
        }
        assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
        rounds += 1;
    }
    rounds
}

#[test]
fn readers_see_the_old_or_the_new_whole_and_stay_connected() {
    const COUNT: u64 = 500;
    const VERSIONS: u64 = 6;
    let fixture = Fixture::new(&[]);
    fixture.write("staff.toml", PEOPLE);
    fixture.write("staff.csv", people(COUNT, 1));
    fixture.good("staff.csv --mapping staff.toml");
    let (ends, met) = (AtomicBool::new(false), AtomicU64::new(0));
    let reload = || {
        for version in 2..=VERSIONS {
            fixture.write("staff.csv", people(COUNT, version));
            fixture.good("staff.csv --mapping staff.toml");
        }
        wait_until("readers meet the last version", || met.load(Ordering::Relaxed) == VERSIONS);
    };
    std::thread::scope(|scope| {
        let over_resp = scope.spawn(|| read_over_resp(&fixture, COUNT, &ends, &met));
        let by_links = scope.spawn(|| read_by_links(&fixture, COUNT, &ends));
        let reloaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(reload));
        ends.store(true, Ordering::Relaxed);
        assert!(over_resp.join().unwrap() > 1);
        assert!(by_links.join().unwrap() > 1);
        reloaded.unwrap();
    });
    let keys = fixture.keys();
    assert_eq!(keys.len() as u64, COUNT + 3, "the old ones are gone: {keys:?}");
}

/// A loader in the middle of its second generation.
fn begin_second(fixture: &Fixture) -> Child {
    fixture.write("staff.toml", PEOPLE);
    fixture.write("staff.csv", people(100, 1));
    fixture.good("staff.csv --mapping staff.toml");
    fixture.write("large.csv", people(200_000, 2));
    let mut command = fixture.command("large.csv --mapping staff.toml");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut resp = fixture.resp();
    wait_until("the second generation has begun", || {
        resp.call("EXISTS staff@2:person:1000") == Value::Integer(1)
    });
    child
}

#[test]
fn what_a_killed_loader_leaves_is_removed_by_the_next() {
    let fixture = Fixture::new(&[]);
    let mut child = begin_second(&fixture);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET staff generation"), bulk("1"));
    assert_eq!(resp.call("HGET staff@1:person:99 version"), bulk("1"));
    fixture.write("staff.csv", people(50, 3));
    let told = fixture.good("staff.csv --mapping staff.toml");
    assert!(told.out.contains("generation 3"), "{}", told.out);
    assert_eq!(resp.call("HGET staff@3:person:49 version"), bulk("3"));
    assert_eq!(fixture.keys().len(), 50 + 3);
}

#[test]
fn a_loader_that_stood_still_cannot_move_the_root() {
    let fixture = Fixture::new(&[]);
    let child = begin_second(&fixture);
    let signal = |signal| kill_process(Pid::from_child(&child), signal).unwrap();
    signal(Signal::STOP);
    // Its lock expires, and another loads meanwhile.
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HGET staff generation"), bulk("1"), "it has not ended before");
    assert_eq!(resp.call("DEL {staff}@lock"), Value::Integer(1));
    fixture.write("staff.csv", people(50, 3));
    fixture.good("staff.csv --mapping staff.toml");
    signal(Signal::CONT);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(resp.call("HGET staff generation"), bulk("3"));
    assert_eq!(resp.call("HGET staff@3:person:49 version"), bulk("3"));
    // Whatever it wrote since is gone, at the latest with the next load.
    fixture.good("staff.csv --mapping staff.toml");
    assert_eq!(fixture.keys().len(), 50 + 3);
}

#[test]
fn a_load_goes_to_all_servers_of_a_cluster_and_so_does_what_is_removed() {
    let pair = crate::redis_cluster::Pair::start();
    pair.halve(0, 1);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("staff.toml", PEOPLE);
    let load = |count: u64, version: u64| {
        write("staff.csv", &people(count, version));
        let mut command = remora();
        command.args(["load", "staff.csv", "--mapping", "staff.toml", "--grace-ms", "1"]);
        command.arg("--server").arg(pair.address(1)).current_dir(directory.path());
        let finished = run(&mut command);
        assert_eq!(finished.code, Some(0), "{}{}", finished.out, finished.err);
    };
    let sizes = || {
        [0, 1].map(|at| match pair.resp(at).call("DBSIZE") {
            Value::Integer(size) => size,
            other => panic!("{other:?}"),
        })
    };
    load(1000, 1);
    let [one, other] = sizes();
    assert_eq!(one + other, 1000 + 3);
    assert!(one.min(other) > 400, "{one} and {other}");
    load(100, 2);
    let [one, other] = sizes();
    assert_eq!(one + other, 100 + 3);
}

#[test]
fn two_loaders_of_one_data_set_do_not_work_at_once() {
    let fixture = Fixture::new(&[]);
    fixture.write("staff.toml", PEOPLE);
    fixture.write("staff.csv", people(10, 1));
    fixture.resp().call("SET {staff}@lock 77-1");
    fixture.fails(
        "staff.csv --mapping staff.toml",
        1,
        "another loader is at work: {staff}@lock is 77-1",
    );
    assert_eq!(fixture.keys(), ["{staff}@lock"]);
}

#[test]
fn a_timer_loads_again_and_a_source_that_is_away_is_told() {
    let fixture = Fixture::new(&[]);
    fixture.write("staff.toml", PEOPLE);
    fixture.write("staff.csv", people(100, 1));
    let mut command = fixture.command("staff.csv --mapping staff.toml --every 1");
    let log = std::fs::File::create(fixture.directory.path().join("log")).unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let mut resp = fixture.resp();
    let version = |resp: &mut Resp| match resp.call("HGET staff current") {
        Value::Bulk(current) => {
            let current = String::from_utf8(current).unwrap();
            resp.call(&format!("HGET {current}:person:7 version"))
        }
        _ => Value::Null,
    };
    wait_until("the first load", || version(&mut resp) == bulk("1"));
    let away = fixture.directory.path().join("away.csv");
    std::fs::rename(fixture.directory.path().join("staff.csv"), &away).unwrap();
    wait_until("the root says it", || matches!(resp.call("HGET staff last_error"), Value::Bulk(_)));
    let log = || std::fs::read_to_string(fixture.directory.path().join("log")).unwrap();
    wait_until("the log says it", || log().contains("the data stay as they were: cannot read"));
    assert_eq!(version(&mut resp), bulk("1"));
    // A file is there at once and whole if it gets its name last.
    std::fs::write(&away, people(100, 2)).unwrap();
    std::fs::rename(&away, fixture.directory.path().join("staff.csv")).unwrap();
    wait_until("the next load", || version(&mut resp) == bulk("2"));
    assert_eq!(resp.call("HEXISTS staff last_error"), Value::Integer(0));
    child.kill().unwrap();
    child.wait().unwrap();
}

const SHOP: &str = r#"
    name = "shop"
    [queries]
    big = "SELECT o.id, o.buyer, sum(w.price) AS total FROM orders o JOIN wares w ON w.id = o.ware GROUP BY 1, 2;"
    tagged = "SELECT id, to_json(tags) AS tags FROM wares"
    [[items]]
    from = "buyers"
    key = "buyer:{id}"
    fields = { name = "Full \"name\"", paid = { column = "paid", type = "boolean" } }
    links = { orders = "buyer:{id}:orders" }
    [[items]]
    from = "big"
    key = "order:{id}"
    fields = { total = { column = "total", type = "number" } }
    links = { buyer = "buyer:{buyer}" }
    [[lists]]
    from = "public.orders"
    key = "buyer:{buyer}:orders"
    link = "order:{id}"
    [[lists]]
    from = "tagged"
    key = "ware:{id}:tags"
    link = "tag:{tags}"
    each = "tags"
"#;

const SHOP_TABLES: &str = r#"
    CREATE TABLE buyers (id int PRIMARY KEY, "Full ""name""" text, paid bool);
    CREATE TABLE wares (id int PRIMARY KEY, price numeric(8, 2), tags text[]);
    CREATE TABLE orders (id bigint PRIMARY KEY, buyer int REFERENCES buyers, ware int REFERENCES wares);
    INSERT INTO buyers SELECT n, 'name' || chr(9) || n, n % 2 = 0 FROM generate_series(1, 100) n;
    INSERT INTO wares SELECT n, n + 0.5, CASE WHEN n > 1 THEN ARRAY['new', 'a "' || n || '"'] END FROM generate_series(1, 10) n;
    INSERT INTO orders SELECT n, NULLIF(n % 101, 0), n % 10 + 1 FROM generate_series(1, 5000) n;
"#;

#[test]
fn tables_and_queries_of_postgresql_become_items_links_and_lists() {
    if remora_tests::is_skipped("pg_lsclusters") {
        return;
    }
    let mut database = PostgresServer::start();
    database.sql(SHOP_TABLES);
    let fixture = Fixture::new(&[]);
    fixture.write("shop.toml", SHOP);
    let load = format!("{} --mapping shop.toml", database.socket_url());
    let told = fixture.good(&load);
    assert!(told.out.contains("from 10110 rows"), "{}", told.out);
    let mut resp = fixture.resp();
    assert_eq!(resp.call("HMGET shop@1:buyer:2 name paid"), list(&["name\t2", "1"]));
    assert_eq!(resp.call("HGET shop@1:order:12 total"), bulk("3.50"));
    assert_eq!(resp.call("LINK.GET shop@1:order:12 buyer"), list(&["shop@1:buyer:12"]));
    assert_eq!(resp.call("LINK.GET shop@1:order:101 buyer"), Value::Array(vec![Value::Null]));
    let orders = resp.call("LRANGE shop@1:buyer:2:orders 0 1");
    assert_eq!(orders, list(&["shop@1:order:2", "shop@1:order:103"]));

    let tags = resp.call("LRANGE shop@1:ware:7:tags 0 -1");
    assert_eq!(tags, list(&["shop@1:tag:new", "shop@1:tag:a \"7\""]));
    assert_eq!(resp.call("EXISTS shop@1:ware:1:tags"), Value::Integer(0));

    // Passwords: none, a wrong one, from the environment, from a file, and none on the command line.
    let over_tcp = format!("{} --mapping shop.toml", database.url());
    fixture.fails(&over_tcp, 1, "PostgreSQL at 127.0.0.1");
    let with = |password: &str| run(fixture.command(&over_tcp).env("PGPASSWORD", password));
    assert_eq!(with("wrong").code, Some(1));
    assert_eq!(with(PostgresServer::PASSWORD).code, Some(0));
    let line = format!("127.0.0.1:{}:*:loader:{}", database.port(), r"pass\:word");
    fixture.write(".pgpass", line);
    fixture.fails(&over_tcp, 2, "chmod 600");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fixture.directory.path().join(".pgpass"), mode).unwrap();
    fixture.good(&over_tcp);
    let open = over_tcp.replace("loader@", "loader:secret@");
    fixture.fails(&open, 2, "PGPASSWORD");

    // A source with a mistake leaves the old data, and the loader names the mistake.
    let before = fixture.keys();
    database.sql("ALTER TABLE buyers DROP COLUMN paid");
    fixture.fails(&load, 1, "column \"paid\" does not exist");
    database.sql("ALTER TABLE buyers ADD COLUMN paid text DEFAULT 'maybe'");
    fixture.fails(&load, 1, "buyers, row 1, column paid: \"maybe\" is neither true nor false");
    database.stop();
    fixture.fails(&load, 1, "PostgreSQL at ");
    assert_eq!(fixture.keys(), before);
    let error = text(resp.call("HGET shop last_error"));
    assert!(error.contains("PostgreSQL at "), "{error}");
    database.start_again();
    database.sql("UPDATE buyers SET paid = 't'");
    fixture.good(&load);
    assert_eq!(resp.call("HEXISTS shop last_error"), Value::Integer(0));
}
