//! A client's session at a simulated server.

use crate::clock::HostClock;
use remora_arena::{Mapping, ReadView, Words};
use remora_client_core::{Clock, Parts};
use remora_engine::{Shard, ShardOptions};
use remora_fabric::remote::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_fabric::sim::{SimBundle, SimJournal, SimLink, SimTarget, SimWorld};
use remora_fabric::{AnyLink, Link, RemoteAddress, Work};
use remora_layout::hello::{HELLO_MAGIC, PROTOCOL_VERSION, ServerHello};
use remora_layout::lag::Lag;
use remora_layout::limits::LARGE_BUFFER_BYTES;
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat, mailbox_bytes};
use remora_layout::slot::SlotTable;
use remora_replica::AskFor;
use remora_ring::WRITE_ID;
use remora_server::TurnView;
use remora_server::ring_session::{ClientEnd, RemoteEnd, RingParts, RingSession, SessionError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use zerocopy::FromZeros;

const MS: u64 = 1_000_000;

/// The incarnation of the server that grants it.
pub(crate) struct Granting<'l> {
    /// Number of the incarnation.
    pub incarnation: u64,
    pub shards: &'l [Shard<SimJournal>],
    /// One for each shard.
    pub journals: &'l [SimJournal],
    /// The options of each shard.
    pub options: &'l ShardOptions,
    /// The pointers that clients share.
    pub pointers: &'l Option<(Words, u64)>,
    /// When a client that is a replica is asked for an acknowledgement.
    pub replica_acks: AskFor,
    /// What the client may see of the server.
    pub view: &'l Arc<TurnView>,
}

/// The server's state of a session.
pub(crate) struct Session {
    pub number: u64,
    /// The memory that the client's links see.
    pub target: SimTarget,
    pub to_server: Words,
    pub rings: Vec<RingSession>,
    heart: AnyLink,
    beats: u64,
    pub violated: Arc<AtomicBool>,
    links: SimBundle,
}

impl Session {
    /// A session of this number, and the parts for its client, whose machine has this clock.
    pub fn grant(
        world: &SimWorld,
        granting: &Granting<'_>,
        number: u64,
        client: &HostClock,
    ) -> (Self, Parts) {
        let &Granting { incarnation, journals, options, pointers, .. } = granting;
        let shards = granting.shards.len();
        let seed = world.draw(|random| random.number());
        let to_server = Words::new(Mapping::heap(mailbox_bytes(shards)));
        let to_client = Words::new(Mapping::heap(mailbox_bytes(shards)));
        let large = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
        // The memory that the client's links see, and that the server's links see.
        let (target, back) = (SimTarget::new(), SimTarget::new());
        for (region, (shard, journal)) in (0u32..).zip(granting.shards.iter().zip(journals)) {
            target.expose(region, shard.owner().view().clone(), journal.clone());
        }
        target.mailbox(shards as u32, to_server.clone());
        back.mailbox(CLIENT_MAILBOX, to_client.clone());
        back.mailbox(CLIENT_LARGE, large.clone());
        let links = SimBundle::default();
        let link_to_client = || {
            let mut link = SimLink::new(world, &back);
            link.join(&links);
            AnyLink::Other(Box::new(link))
        };
        let violated = Arc::new(AtomicBool::new(false));
        let arenas: Arc<[ReadView]> =
            granting.shards.iter().map(|shard| shard.owner().view().clone()).collect();
        let rings = (0..shards).map(|shard| {
            RingSession::new(RingParts {
                session: number,
                seed,
                shard,
                incarnation,
                arenas: Arc::clone(&arenas),
                touched: Arc::default(),
                to_server: to_server.view(),
                link: link_to_client(),
                client: ClientEnd::Remote(RemoteEnd::unmarked(shard)),
                large: None,
                violated: Arc::clone(&violated),
                threads: Arc::default(),
                searches: Arc::default(),
                view: Arc::clone(granting.view),
            })
        });
        let mut rings: Vec<RingSession> = rings.collect();
        rings.iter_mut().for_each(|ring| ring.feeds_by(granting.replica_acks, 0));
        let heart = link_to_client();
        let tables = granting.shards.iter().map(Shard::table_ref).collect();
        let mut hello = ServerHello::new_zeroed();
        hello.magic = HELLO_MAGIC.into();
        hello.version = PROTOCOL_VERSION.into();
        hello.session = number.into();
        hello.incarnation = incarnation.into();
        hello.epoch = options.epoch.into();
        hello.session_seed = seed.into();
        hello.hash_seed = options.hash_seed.into();
        let regions = granting.shards.iter().map(|shard| shard.table_ref().region);
        hello.tell_shards(regions, &SlotTable::even(shards));
        let link = {
            let (world, target) = (world.clone(), target.clone());
            let (back, links) = (back.clone(), links.clone());
            move || {
                let mut link = SimLink::new(&world, &target);
                link.listen(&back);
                link.join(&links);
                AnyLink::Other(Box::new(link))
            }
        };
        let clock = client.clone();
        let clock = Clock::Given(Arc::new(move || clock.now_ns()));
        let session = Self { number, target, to_server, rings, heart, beats: 0, violated, links };
        let (link, pointers) = (Box::new(link), pointers.clone());
        let (to_client, large) = (to_client.view(), large.view());
        (session, Parts { hello, tables, to_client, large, link, clock, pointers })
    }

    /// Its memory is taken back; the connection is closed soon after.
    pub fn lose(self, world: &SimWorld) {
        self.target.withdraw_all();
        let closes_ns = world.draw(|random| random.below(2) * random.below(2 * MS));
        world.schedule(closes_ns, move || self.links.lose());
    }

    /// The client has left, or its process has died: nothing reaches its memory from now on.
    pub fn cut(&self) {
        self.links.lose();
    }

    /// Writes a heartbeat: of which incarnation and epoch it is, the server's clock as it is told, how old
    /// what it shows may be, and how busy it is.
    pub fn beat(
        &mut self,
        (incarnation, epoch): (u64, u64),
        (server_unix_ms, lag): (u64, Lag),
        utilisation_ppm: u32,
    ) {
        self.beats += 1;
        // A replica that shows nothing renews no read lease.
        let echoed_ns = if lag.is_unknown() { 0 } else { self.to_server.load(CLIENT_CLOCK_WORD) };
        let beat = Heartbeat {
            sequence: self.beats,
            utilisation_ppm_plus_1: utilisation_ppm + 1,
            wait_ns: 0,
            incarnation,
            epoch,
            topology: 0,
            server_unix_ms,
            echoed_client_clock_ns: echoed_ns,
            session: self.number,
            lag,
        };
        let bytes: Vec<u8> = beat.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let to = RemoteAddress { region: CLIENT_MAILBOX, offset: HEARTBEAT_WORD as u64 * 8 };
        self.heart.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
        while self.heart.poll().is_some() {}
    }
}

/// A lost link, or half a frame that came before it was.
pub(crate) fn is_lost(error: &SessionError) -> bool {
    matches!(error, SessionError::Link(_) | SessionError::TornForever)
}
