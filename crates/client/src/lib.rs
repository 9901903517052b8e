//! The client of Remora, an in-memory data engine whose clients can read the server's memory.
//!
//! Every read-only operation has two routes. The client **asks**: a message to the server's shard,
//! and a reply. Or it **reads**: one-sided READs of the server's memory, by shared memory, RDMA or
//! TCP, without the server's processor (TCP excepted). Each result says which route served it, and
//! what it cost.
//!
//! # From connecting to a one-sided read
//!
//! Start a server: `remora serve`. It prints the path of its socket.
//!
//! ```no_run
//! use remora_client::{Address, Client, Options, Path, ServedBy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One connection for the process, one session for each thread. The best transport that both
//! // sides have is taken: shared memory on one host.
//! let client = Client::connect(&Address::unix("/run/user/1000/remora.sock"), &Options::default())?;
//! let mut session = client.session()?;
//!
//! // A change is always asked. The reply brings a pointer to the new record, and a lease.
//! session.set(b"courier:7", b"free")?;
//!
//! // One READ through that pointer fetches the record. The client checks it: checksum,
//! // generation and full key have to agree, and the session's read lease still has to hold.
//! let got = session.string(b"courier:7").by(Path::Read).get()?;
//! assert_eq!(got.value, Some(&b"free"[..]));
//! assert_eq!(got.served_by, ServedBy::Read);
//!
//! // What it cost: one pointer found in the cache, one round trip, one record.
//! assert_eq!((got.counts.hits, got.counts.round_trips, got.counts.nodes), (1, 1, 1));
//! assert_eq!((got.counts.read, got.counts.asked), (1, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # Which route
//!
//! [`Path::Choose`] is the default: the session decides for each operation from the recent cost of
//! each route and from the load in the server's heartbeats. [`Path::Ask`] and [`Path::Read`] name a
//! route. Set it for a connection ([`Options::path`]), for a session ([`Session::set_path`]) or for
//! one operation ([`StringKey::by`]). If READs do not conclude, the client asks after all, so the
//! path never changes an answer.
//!
//! | [`ServedBy`] | What happened |
//! | --- | --- |
//! | `Asked` | The server was asked at once. |
//! | `Read` | READs alone, without a retry. |
//! | `ReadAfter(n)` | READs alone, after n of them without a result: torn, or the record had moved. |
//! | `AskedAfterRead` | READs did not conclude, and the server was asked. |
//!
//! # What the counts mean
//!
//! Every result has [`Counts`], and [`Session::counts`] has their sum.
//!
//! | Count | Meaning |
//! | --- | --- |
//! | `operations` | Operations. |
//! | `round_trips` | Trips over the fabric, each of which waited for the one before: a batch of READs, or a request with its reply. They are what latency is made of. |
//! | `bytes` | Bytes that crossed the fabric, with headers. |
//! | `nodes` | Buckets, records and nodes of trees that were fetched. |
//! | `read`, `asked` | Operations concluded by READs alone; operations that the server answered. |
//! | `hits` | Lookups that found a pointer. |
//! | `stale` | READs through a pointer that found a dead or another record. |
//! | `stale_hints` | Hints of links that did not lead to the record of the link's key. |
//! | `retries` | READs repeated because the record changed meanwhile. |
//! | `lease_expired`, `renewals` | Pointers not used because their lease had ended; operations asked to renew it before. |
//! | `read_lease_lapsed` | Operations asked because the session's read lease had lapsed. |
//! | `behind_writes` | Operations asked because a write of the session to the shard was unanswered: a session sees its own writes. |
//! | `undecided` | Operations asked because READs did not decide: only the server says that a key is absent, or has expired. |
//!
//! # Types
//!
//! A handle names a key of one type, and is created again for each use; the session keeps its
//! knowledge of the object.
//!
//! ```no_run
//! use remora_client::{Area, Around, Position, Predicate, Rect, bson::rawdoc};
//!
//! # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
//! session.string(b"orders").increment(1)?;
//! session.hash(b"courier:7")?.set(&[(b"state", b"free")])?;
//! session.sorted_set(b"ratings")?.add(&[(b"courier:7", 4.8)])?;
//! session.tree(b"couriers")?.insert(7, Rect::point(2.35, 48.86)?)?;
//! let near = session.tree(b"couriers")?.nearest(2.3, 48.8, 5)?;
//! println!("{} couriers, {:?}, {} round trips", near.len(), near.served_by, near.counts.round_trips);
//! let here = Around::Position(Position::new(2.3, 48.8).expect("on the globe"));
//! session.collection("shop", "items")?.insert(&[&rawdoc! { "_id": 7, "price": 30 }])?;
//! session.collection("shop", "items")?.find_by_id(7)?;
//! session.geo(b"cities").search(here, Area::Circle { radius_m: 10_000.0 })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Links and plans
//!
//! A field of a hash may be a link, which names a key and carries a hint of where the key's record lies.
//! [`Session::link_set`] and [`Session::link_push`] write links. [`Session::chase`] follows one by one READ,
//! [`Session::chase_many`] many of them in one batch, and [`Session::run_plan`] answers a question over many
//! links, by READs or by one message.
//!
//! # Clusters
//!
//! [`ClusterClient`] is a client of all servers of a cluster. It routes each key to the primary of its
//! group, and follows failovers by itself.
//!
//! ```no_run
//! use remora_client::{ClusterClient, Error, Options};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = ["10.0.0.5:7380".parse()?, "10.0.0.6:7380".parse()?];
//! let mut session = ClusterClient::connect(&servers, &Options::default())?.session();
//! session.set(b"courier:7", b"free")?;
//! match session.increment(b"orders", 1) {
//!     Ok(orders) => println!("{orders} orders"),
//!     // Its reply was lost with a primary. It is not sent again.
//!     Err(Error::Unknown) => println!("counted, or not"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Threads and failures
//!
//! A [`Client`] is shared by the threads of a process; each takes a [`Session`] of its own.
//! The client starts no threads. An [`Error`] says whether the session is over
//! ([`Error::is_final`]): then connect again. A request that timed out may have been carried
//! out; the client never sends one twice.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod cluster;
mod collection;
mod error;
mod geo;
mod hash;
mod links;
mod list;
mod options;
mod ordered;
mod scan;
mod session;
mod set;
mod sorted;
mod string;
mod time;
mod trees;
mod views;

/// Documents, and values of their fields.
pub use bson;
pub use client::Client;
pub use cluster::{ClusterClient, ClusterCounts, ClusterSession};
pub use collection::{CollectionKey, FoundDocuments, Written};
pub use error::{Cause, ClusterConnectError, ConnectError, ConnectFailure, Error, Refusal};
pub use geo::{Area, Around, GeoKey, GeoMember, Position};
pub use hash::HashKey;
pub use list::ListKey;
pub use options::{Address, Options, PointerCache, Transport, UnknownAddress, Wake};
pub use ordered::{OrderedEntriesOf, OrderedKey};
pub use remora_client_core::{
    AllMembers, CachePolicy, Chased, ChildInfo, Counts, DataBufferCounts, Each, EachChased,
    Explanation, FatRootLimits, FieldValue, Got, HashContent, HashFields, InnerNode, KeyForm,
    LevelInfo, Link, LinkAt, LinkPlace, ListEvents, ListItems, ListTaken, NodeInfo, NodeRef,
    OrderedCache, OrderedEntries, OrderedEvents, OrderedFound, OrderedGot, OrderedHold,
    OrderedInfo, OrderedSettings, OrderedValue, Path, PlanRun, Policy, Route, ServedBy, Side,
    SortedFound, SortedMember, SortedScore, SyncPoint, Target, Why,
};
pub use remora_geometry::{Refine, Shape, ShapeError};
pub use remora_layout::rect::{BadRect, Predicate, Rect};
pub use remora_layout::tree::TreeKind;
/// Plans: questions over many keys, as data and as text.
pub use remora_plan as plan;
pub use remora_protocol::tree::ObjectId;
pub use scan::{Scan, ScannedKey};
pub use session::{ExpireWhen, KeyType, Session, Ttl};
pub use set::{Membership, SetKey};
pub use sorted::{AddWhen, Page, SortedSetKey};
pub use string::{SetOptions, StringKey};
pub use trees::{
    NewObject, TreeCount, TreeFound, TreeHit, TreeInfo, TreeKey, TreeObject, TreeReading,
    TreeSettings,
};
