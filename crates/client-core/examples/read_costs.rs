//! The client's own cost of READs, for counting instructions under callgrind: run it with two
//! numbers of rounds, and divide the difference. The server runs beside it.
//!
//! `valgrind --tool=callgrind target/release/examples/read_costs SOCKET MODE ROUNDS`, MODE one
//! of `fill` (once, first), `cached`, `cold`, `many`, `single`, `multi`.

use remora_client_core::{
    Issue, Options, Path, PointerCacheKind, Predicate, Query, Rect, Session, SetOptions, TreeRead,
};

const KEYS: u64 = 4096;
const OBJECTS: u64 = 100_000;

fn random(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("SOCKET MODE ROUNDS");
    let (socket, mode) = (std::path::PathBuf::from(next()), next());
    let rounds: u64 = next().parse().expect("a number");
    let pointer_cache = match mode.as_str() {
        "cached" => PointerCacheKind::Private,
        _ => PointerCacheKind::Off,
    };
    let timeout = std::time::Duration::from_secs(60);
    let options = Options { pointer_cache, timeout, ..Options::default() };
    let mut session = Session::connect(&socket, &options).expect("a server");
    let mut state = 0x9e37_79b9_7f4a_7c15;
    if mode == "fill" {
        for key in 0..KEYS {
            session.set(&key.to_le_bytes(), &[7; 32], SetOptions::default()).expect("room");
        }
        session.drop_tree(b"places").expect("no answer");
        session.create_tree(b"places", &Default::default()).expect("no answer");
        let point = |state: &mut u64| Rect::point(random(state), random(state)).expect("finite");
        let mut all = (0..OBJECTS).map(|id| (id, point(&mut state)));
        session.load_tree(b"places", &mut all, &mut |_| {}).expect("room");
        return;
    }
    let mut found = 0;
    if mode == "single" || mode == "multi" {
        let issue = if mode == "single" { Issue::Single } else { Issue::Multi };
        let tree = session.open_tree(b"places").expect("no answer").expect("filled");
        let mut tree = tree.reading(TreeRead { issue, ..TreeRead::default() });
        for _ in 0..rounds {
            let (x, y) = (random(&mut state) * 0.97, random(&mut state) * 0.97);
            let window = Rect::new(x, x + 0.03, y, y + 0.03).expect("finite");
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let all = session.search_tree(&mut tree, &query, Path::Read).expect("no answer");
            found += all.objects.len() as u64;
        }
    } else if mode == "many" {
        let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
        for round in 0..rounds {
            let from = (round * 16 % KEYS) as usize;
            let some: Vec<&[u8]> = keys[from..from + 16].iter().map(|key| &key[..]).collect();
            let each = &mut |_: usize, value: Option<&[u8]>, _| found += value.is_some() as u64;
            session.get_batch(&some, Path::Read, each).expect("no answer");
        }
    } else {
        for round in 0..rounds {
            let key = if mode == "cached" { round % 16 } else { round % KEYS };
            let path = if round < 16 { Path::Ask } else { Path::Read };
            let got = session.get(&key.to_le_bytes(), path).expect("no answer");
            found += got.value.is_some() as u64;
        }
    }
    println!("{mode}: {rounds} rounds, {found} found, {:?}", session.totals());
}
