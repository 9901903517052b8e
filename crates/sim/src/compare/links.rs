//! What a hop costs in virtual time: a chase, which is one READ at a hint, a get that is asked for, and a
//! get as Key-Value-Links measures against (KELI 5.3, 6.3; K16, K17, K24). The client, the rings and the
//! shard are the real ones; only times are stated ([`RDMA`], [`TWO_SIDED`]).

use super::costs::{Costs, Port, RDMA};
use super::server::Server;
use super::watched::FirstRead;
use crate::tasks::Coroutines;
use remora_client_core::{Client, Link, Options, Path, PointerCacheKind, Session, Target, Wake};
use remora_fabric::sim::{SimOptions, SimStage, SimWorld, Tasks};
use remora_layout::limits::{WHOLE_ITEM_BYTES, WHOLE_ITEMS};
use remora_layout::packed::{self, Field};
use remora_protocol::hash::HashCommand;
use remora_protocol::{Command, Condition, Expiry, Items};
use std::cell::RefCell;
use std::rc::Rc;

/// A get by two-sided messages through a listener and a worker (K16, K17): to [`RDMA`] a switch
/// of threads, 1.07 us, and for Send and Receive instead of a WRITE 0.1 us at either end (the
/// calibration's measured values).
pub const TWO_SIDED: Costs = Costs {
    name: "two-sided",
    request_ns: RDMA.request_ns + 1_070 + 100,
    thread_ask_ns: RDMA.thread_ask_ns + 100,
    ..RDMA
};

/// An application of the paper (KELI 6.2), whose hops go one after the other: counted by `remora bench links
/// --batch 1` over Liechtenstein's roads, reviews of beauty products and Twitter's graph.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// Items that it looks up by a key that it knows, for each operation.
    pub lookups: f64,
    /// Items that it reaches along links; with keys it gets them.
    pub chases: f64,
    /// Mean bytes of an item.
    pub item_bytes: usize,
    /// How many times faster it was by links than by keys (KELI 6.3).
    pub paper: f64,
}

/// A position on the map, a page, and the search over the whole graph.
pub const APPLICATIONS: [Application; 3] = [
    Application { name: "map", lookups: 1.0, chases: 156.8, item_bytes: 130, paper: 2.0 },
    Application { name: "pages", lookups: 1.0, chases: 22.8, item_bytes: 211, paper: 1.5 },
    Application { name: "search", lookups: 1.0, chases: 155_147.0, item_bytes: 325, paper: 1.75 },
];

impl Application {
    /// How many times faster it is by links than in the form with keys, each got from a two-sided store; all of
    /// its items have the mean size.
    pub fn speedup(&self) -> f64 {
        let (own, other) = (hop(&RDMA, self.item_bytes), hop(&TWO_SIDED, self.item_bytes));
        let by_keys = (self.lookups + self.chases) * other.get_ns;
        by_keys / (self.lookups * own.get_ns + self.chases * own.chase_ns)
    }
}

/// Items that are fetched, one after the other.
const ITEMS: usize = 100;
/// By this time a session has its links.
const READY_NS: u64 = 500_000_000;
/// By this time all is measured.
const ENDS_NS: u64 = 1_000_000_000;

/// Mean times and counts of a hop.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Hop {
    /// A get that is asked for, ns.
    pub get_ns: f64,
    /// A chase, ns.
    pub chase_ns: f64,
    /// Dependent trips of each.
    pub trips: (f64, f64),
    /// Bytes of each.
    pub bytes: (f64, f64),
}

impl Hop {
    /// A chase's time, of a get's.
    pub fn chase_over_get(&self) -> f64 {
        self.chase_ns / self.get_ns
    }
}

/// A hop to items of about this many bytes.
pub fn hop(costs: &Costs, item_bytes: usize) -> Hop {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let server = Server::new(&world, costs, &[4 << 20], 64);
    let texts = store(&server, item_bytes);
    let result = Rc::new(RefCell::new(Hop::default()));
    let (task, told) = ((world.clone(), server.clone()), Rc::clone(&result));
    Coroutines::spawn(&world, move || {
        let (world, server) = task;
        *told.borrow_mut() = measure(&world, &server, &texts);
        let task = Coroutines.current().expect("it runs");
        world.suspend_until(task, u64::MAX);
    });
    server.beat();
    while world.step(ENDS_NS) {}
    Coroutines::forget_all();
    world.forget_all();
    result.take()
}

/// The same items as hashes, to which the hash `index` links, and as strings, whose keys are returned.
fn store(server: &Server, item_bytes: usize) -> Vec<Vec<u8>> {
    let mut packed = Vec::new();
    for number in 0..WHOLE_ITEMS {
        // A field takes two bytes, its name's two, and its value's.
        let rest = item_bytes.saturating_sub(packed.len() + 4);
        if rest == 0 {
            break;
        }
        let name = format!("{number:02x}");
        let value = &[7; WHOLE_ITEM_BYTES][..rest.min(WHOLE_ITEM_BYTES)];
        packed::push(&mut packed, name.as_bytes(), Field::plain(value));
    }
    let mut links = Vec::new();
    let texts = (0..ITEMS).map(|number| {
        let (item, text) = (format!("item:{number:04}"), format!("text:{number:04}"));
        let (mut pairs, key) = (Vec::new(), item.as_bytes());
        for (name, field) in packed::fields(&packed) {
            Items::push(&mut pairs, name);
            Items::push_field(&mut pairs, field);
        }
        let pairs = Items::parse(&pairs).expect("it was just made");
        server.prepare(&Command::Of { key, request: HashCommand::Set { pairs }.request() });
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let key = text.as_bytes();
        server.prepare(&Command::Set { key, value: &packed, condition, expiry, get: false });
        Items::push(&mut links, number.to_string().as_bytes());
        Items::push_field(&mut links, Field { value: item.as_bytes(), is_link: true });
        text.into_bytes()
    });
    let texts = texts.collect();
    let pairs = Items::parse(&links).expect("it was just made");
    server.prepare(&Command::Of { key: b"index", request: HashCommand::Set { pairs }.request() });
    texts
}

fn measure(world: &SimWorld, server: &Server, texts: &[Vec<u8>]) -> Hop {
    let options =
        Options { wake: Wake::Event, pointer_cache: PointerCacheKind::Off, ..Options::default() };
    let parts = server.connect(&Port::default(), &SimStage::new(), &FirstRead::default(), false);
    let client = Client::over(parts, &options).expect("no process forks here");
    let mut session = client.session().expect("it is connected");
    // The first requests and READs find a read lease.
    let task = Coroutines.current().expect("it runs");
    while world.now_ns() < READY_NS {
        world.suspend_until(task, READY_NS);
    }
    // A first read without a lease is asked, and tells no hints.
    index_links(&mut session);
    let links = index_links(&mut session);
    assert_eq!(links.len(), texts.len());
    assert!(links.iter().all(|link| link.hint.is_some()), "the owner set the hints");
    let mut hop = Hop::default();
    let each = 1.0 / texts.len() as f64;
    let (from_ns, before) = (world.now_ns(), session.totals());
    for text in texts {
        let got = session.get(text, Path::Ask).expect("it answers");
        assert!(got.value.is_some());
    }
    let cost = session.totals().since(&before);
    hop.get_ns = (world.now_ns() - from_ns) as f64 * each;
    (hop.trips.0, hop.bytes.0) = (cost.round_trips as f64 * each, cost.bytes as f64 * each);
    let (from_ns, before) = (world.now_ns(), session.totals());
    for link in &links {
        let chased = session.chase(link, Path::Read).expect("it answers");
        assert!(matches!(chased.target, Target::Hash(_)));
    }
    let cost = session.totals().since(&before);
    assert_eq!((cost.asked, cost.stale_hints), (0, 0), "each is one READ");
    hop.chase_ns = (world.now_ns() - from_ns) as f64 * each;
    (hop.trips.1, hop.bytes.1) = (cost.round_trips as f64 * each, cost.bytes as f64 * each);
    hop
}

/// The links of the index, as a client reads them.
fn index_links(session: &mut Session) -> Vec<Link> {
    let index = Link { key: b"index"[..].into(), hint: None, link: None };
    let chased = session.chase(&index, Path::Read).expect("it answers");
    let Target::Hash(content) = chased.target else { panic!("it is a hash") };
    let fields = content.iter().filter(|(_, field)| field.is_link);
    fields
        .map(|(_, field)| Link { key: field.value.into(), hint: field.hint, link: None })
        .collect()
}

/// A table of hops, and of the applications.
pub fn table() -> String {
    let mut text = "bytes  get us  chase us  of a get  two-sided us  chase of it\n".to_owned();
    for bytes in [64, 256, 1024, 4096] {
        let (own, two_sided) = (hop(&RDMA, bytes), hop(&TWO_SIDED, bytes));
        let of_two_sided = own.chase_ns / two_sided.get_ns;
        text += &format!(
            "{bytes:5}  {:6.2}  {:8.2}  {:8.2}  {:12.2}  {of_two_sided:11.2}\n",
            own.get_ns / 1e3,
            own.chase_ns / 1e3,
            own.chase_over_get(),
            two_sided.get_ns / 1e3,
        );
    }
    text += "\napplication  times as fast as with two-sided gets  paper\n";
    for application in APPLICATIONS {
        let (name, paper) = (application.name, application.paper);
        text += &format!("{name:11}  {:36.2}  {paper:5.2}\n", application.speedup());
    }
    text
}
