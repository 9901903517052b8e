//! Every bound of the system: a name, a unit and a reason.
//! Relations between bounds are const assertions at the end of the file.

mod documents;
mod users;

pub use documents::*;
pub use users::*;

/// Bytes in a word: the unit that is never torn on any transport we use.
pub const WORD_BYTES: usize = 8;
/// Bytes in a cache line; frames and buckets are aligned to it so that one
/// line transfer is enough for a small message (HydraDB 4.1.3).
pub const CACHE_LINE_BYTES: usize = 64;
/// Granularity of slots in an arena. With 32-bit slot numbers it allows
/// arenas of 64 GiB.
pub const SLOT_UNIT_BYTES: usize = 16;
/// Largest arena that a 32-bit slot number can address.
pub const MAX_ARENA_BYTES: u64 = (SLOT_UNIT_BYTES as u64) << 32;
/// Smallest arena: header, a table of one page and one span of slots.
pub const MIN_ARENA_BYTES: u64 = 1 << 20;

/// Longest key (HydraDB 4.1.3, H12). It fits one frame with its header.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Longest value: sixteen of the chunks of 4 MB in which HydraDB 6 (H12) keeps file blocks. One
/// READ, or one move, of a longer record would delay everything behind it for too long.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// Longest key and value together that one frame carries inline, beside its
/// own header and that of a request or reply.
pub const MAX_INLINE_BYTES: usize = MAX_FRAME_BYTES - 256;

/// A reply's value beyond this is sent in pieces, while other commands run:
/// copying it at once would hold them up for some 10 us.
pub const STREAM_BYTES: usize = 64 << 10;
/// APPEND, SETRANGE and SETBIT change a value longer than this in place: a new record would cost
/// more than its readers lose when they have to ask the server.
pub const ASK_ONLY_BYTES: usize = 16 << 10;
/// An ask-only record that grows gets this part of its length as spare room, so that the cost of
/// many small appends is proportional to the appended bytes.
pub const ASK_ONLY_SLACK_SHARE: usize = 4;
/// The shard makes an ask-only record readable again when no command has changed it for this long,
/// in seconds.
pub const REPUBLISH_AFTER_S: u64 = 1;
/// Bytes that one tick of a shard checksums to republish: about 100 us.
pub const REPUBLISH_TICK_BYTES: usize = 1 << 20;

/// Jobs that a shard executes in one turn: those from other shards' connections, and those that its
/// own connections left over.
pub const JOBS_PER_TURN: usize = 64;
/// Waiting requests that a shard serves at once after a change of their key; the next command or
/// turn continues. As many as a turn has jobs. One that waits for several keys counts for each.
pub const SERVED_AT_ONCE: usize = JOBS_PER_TURN;
/// Keys that one request waits for: it leaves all their queues at once, which takes some 100 us.
pub const MAX_WAITED_KEYS: usize = 1024;
/// Longest encoded command that a request over a ring waits with: one that takes something has a key,
/// and little beside it.
pub const MAX_WAITING_COMMAND_BYTES: usize = MAX_KEY_BYTES + 256;
/// Bytes of a client's requests over a ring that have waited over shards and have ended, but that a shard has
/// not let go of yet: twice what a shard's thread works off in a turn.
pub const MAX_ENDED_WAIT_BYTES: usize = 2 * JOBS_PER_TURN * MAX_WAITING_COMMAND_BYTES;
/// Heap bytes that count for a waiting request: its name, its claim and its place among all.
pub const WAITER_BYTES: usize = 256;
/// Heap bytes that count for each of its keys, beside the encoded command: a place in a queue.
pub const WAITER_KEY_BYTES: usize = 128;
/// Heap bytes that count for a queue, beside its key: a first node of places, and its entries by hash.
pub const WAITER_QUEUE_BYTES: usize = 1024;
/// Bytes of requests behind one that waits for keys that a connection reads, to find the end of its
/// stream. If a client sends more, only the kernel's report of an end ends its wait.
pub const BLOCKED_INPUT_BYTES: usize = 64 << 10;
/// Keys of one job that a shard executes with it; a shard splits a job with more keys. So all jobs
/// of a turn have no more keys than one request executes at once.
pub const JOB_KEYS_AT_ONCE: usize = 16;
/// Keys of one job with many keys that a turn executes: as many as a turn has jobs.
pub const JOB_KEYS_PER_TURN: usize = JOBS_PER_TURN;
/// In-flight mail from one shard's thread to another: each mail is what one turn gathered. A
/// receiver that falls further behind gets larger mail, not more of it.
pub const MAIL_UNDER_WAY: usize = 16;
/// Turns of a busy shard between two looks at its sockets: a look costs about as
/// much as one request.
pub const TURNS_PER_SOCKET_LOOK: u32 = 8;
/// A frame that stays incomplete for this long ends its session: an honest
/// peer finishes a frame within microseconds.
pub const TORN_FRAME_MS: u64 = 1_000;

/// If the operator sets no number of shards, one of so many physical cores gets no shard: the
/// kernel's network work, the control thread and clients of this machine need time too. One core of
/// each eight is a share that grows with the network's work.
pub const CORES_PER_SPARE: usize = 8;

/// Memory that each shard gets at least if the operator sets no number of shards, bytes: room for
/// the largest value and its successor.
pub const DEFAULT_SHARD_BYTES: u64 = 2 * MAX_VALUE_BYTES as u64;

/// Greatest service level of an RDMA packet: the local header has four bits.
pub const MAX_SERVICE_LEVEL: u8 = 15;

/// Shards of one server. Bounded by the file descriptors that one control
/// message can carry (two for each shard, SCM_MAX_FD is 253).
pub const MAX_SHARDS: usize = 64;
/// Turns of a shard whose replies a remote client receives together, while more of its requests
/// wait in the ring: one write for up to so many times sixteen.
pub const TURNS_TOGETHER: u32 = 4;
/// Memory that a sender keeps for assembling frames after it has posted them.
pub const RUN_KEPT_BYTES: usize = 16 << 10;
/// Sessions (client connections over rings) of one server.
pub const MAX_SESSIONS: usize = 1024;

/// Clients that have said hello and wait for a queue pair; the server tells any further client to
/// come again. At some milliseconds each, no client waits longer than it takes to come again.
pub const MAX_SET_UPS_WAITING: usize = 256;
/// Queue pairs whose clients have not yet sent their own end: the most that silent clients can
/// hold. A client takes some 20 ms to make its end, so this is as many as a server can make in that
/// time.
pub const MAX_HALF_OPEN: usize = 16;
/// Clients that have asked for no session yet: one more ends the oldest of them. As many as there can be
/// sessions: one that speaks at once is served, however many are silent.
pub const MAX_SILENT_CLIENTS: usize = MAX_SESSIONS;
/// The server tells a client that has waited this long for a queue pair to come again, before the
/// client takes the silence for an answer, in ms.
pub const SET_UP_WAIT_MS: u64 = 2_000;
/// Time that the control thread spends on making and ending sessions between two looks at its
/// heartbeats, in microseconds, plus one step: a fifth of a heartbeat.
pub const SET_UP_TURN_US: u64 = HEARTBEAT_MS * 1_000 / 5;
/// READs that one client may have in flight at the server's device, as the default and as the
/// maximum: most devices accept this many.
pub const MAX_READS_PER_CLIENT: u8 = 16;

/// Longest READ: the longest key and value with their headers are one READ,
/// with most of 1 MiB in hand.
pub const MAX_READ_BYTES: usize = 65 << 20;
/// Longest WRITE, on every transport: four times a ring. The link copies the bytes when the client
/// posts the WRITE, so the limit has to be far below what a link buffers.
pub const MAX_WRITE_BYTES: usize = 1 << 20;

/// An end asks for a READ over TCP in pieces of this size, so that nothing else on the connection
/// waits long behind a large one.
pub const TCP_PIECE_BYTES: usize = 256 << 10;
/// READ bytes that one end has asked for and not yet received (headers included). It bounds what a
/// target has to buffer, whatever the peer asks for; at 50 us a round trip it still fills 20 GB/s.
pub const READ_WINDOW_BYTES: usize = 1 << 20;
/// Bytes that one end of a connection buffers for a peer that does not read; beyond it the link
/// fails. All response rings at once fit twice.
pub const MAX_OUTBOUND_BYTES: usize = 34 << 20;
/// In-flight operations of one end, which the other has not yet answered; beyond it the link fails.
/// Sixty-four threads with a thousand each.
pub const MAX_POSTED: usize = 1 << 16;
/// Bytes that one system call fetches at most. An agent also takes at most this many bytes from one
/// connection in a turn before it looks at the next connection.
pub const TCP_RECEIVE_BYTES: usize = 64 << 10;
/// Frames of one connection that a turn executes at most, and a piece of READ bytes at most: a
/// shard's thread executes them, and they must not delay its other work by more than some tens of
/// microseconds. A batch of READs of a search fits.
pub const TCP_FRAMES_PER_TURN: usize = 256;
/// Connections of sessions that a turn of a shard's thread serves at most. It also stops serving
/// further connections after so many READ bytes. The others wait for the next turn, behind rings,
/// mail and RESP connections.
pub const AGENT_CONNECTIONS_PER_TURN: usize = 16;
/// See [`AGENT_CONNECTIONS_PER_TURN`]; bytes.
pub const AGENT_READ_BYTES_PER_TURN: usize = TCP_PIECE_BYTES;
/// A shard polls for a moment after a turn in which at most so many requests came over TCP and no
/// others came: a wake-up costs about as much as so many requests. A larger batch pays for its
/// wake-up.
pub const AGENT_POLL_REQUESTS: u64 = 8;
/// Memory for frames that a connection keeps after it has sent them: replies of some turns of a
/// shard.
pub const OUTBOUND_KEPT_BYTES: usize = 16 << 10;
/// Unsignalled WRITEs that a target executes before it acknowledges them, if it sends nothing else:
/// the initiator keeps some tens of bytes for each.
pub const UNSIGNALLED_WRITES: u64 = 64;
/// Writes to a socket, or doorbells, that a shard makes in a row because other threads have added
/// frames meanwhile. After that it leaves the remaining frames to the agent. A client's thread
/// leaves them to the thread that reads the socket.
pub const SENDS_IN_A_ROW: u32 = 4;
/// Regions that one end can expose to its peer: arenas and a mailbox.
pub const MAX_REGIONS: usize = 256;
/// TCP probes an idle connection after this time, in seconds: a peer whose machine died sends no
/// farewell.
pub const TCP_KEEPALIVE_IDLE_S: u64 = 10;
/// Seconds between probes.
pub const TCP_KEEPALIVE_INTERVAL_S: u64 = 5;
/// Unanswered probes after which the peer is dead.
pub const TCP_KEEPALIVE_PROBES: u32 = 3;
/// Sent bytes that stay unacknowledged for this long mean a dead peer, ms.
pub const TCP_USER_TIMEOUT_MS: u32 = 25_000;

/// The server writes a heartbeat into each mailbox this often (Catfish 4.1: Inv).
pub const HEARTBEAT_MS: u64 = 10;
/// While no client is active the server looks for active ones this often.
pub const IDLE_HEARTBEAT_MS: u64 = 100;
/// Duration of a read lease, counted from the echoed client clock. Twenty heartbeats: a busy
/// machine may lose some without harm.
pub const READ_LEASE_MS: u64 = 200;
/// A clock may run this much too fast or too slow, far beyond any crystal:
/// every promise about time holds for two clocks that err in opposite ways.
pub const CLOCK_DRIFT_PERCENT: u64 = 10;
/// Subtracted from the read lease for clock drift, and added to the time that a new incarnation
/// waits.
pub const READ_LEASE_MARGIN_MS: u64 = READ_LEASE_MS * CLOCK_DRIFT_PERCENT / 100;
/// What a reader that bounds the server's clock adds to the time that passed on
/// its own clock, per cent: both clocks may drift, and the server's is slewed.
pub const READER_CLOCK_PERCENT: u64 = 25;
/// While the server's clock follows the wall clock it runs at most this much
/// faster or slower than the monotonic clock, parts per million.
pub const CLOCK_SLEW_PPM: u64 = 20_000;
/// The server slews its clock by this much at a time, ms; heartbeats report as much more.
pub const CLOCK_SLEW_MS: u64 = 1;
/// The server ignores a difference to the wall clock below this, ms: both values are truncated.
pub const CLOCK_TOLERANCE_MS: u64 = 2;
/// If the wall clock is ahead by more than this, ms, the server's clock follows by a step, and the
/// server tells its readers before: slewing would take longer than a minute.
pub const CLOCK_STEP_MS: u64 = 1_000;
/// While no client wants heartbeats the server compares its clock this often, ms.
pub const CLOCK_LOOK_MS: u64 = 1_000;
/// The server discards a comparison of both clocks that took longer than this, ms.
pub const CLOCK_LOOK_TAKES_MS: u64 = 5;
/// After a timed-out request, a client takes the server for dead if no heartbeat has followed a
/// clock that the client wrote at least this long ago, ms: an idle server has looked for that clock
/// ten times.
pub const SERVER_SILENT_MS: u64 = 1_000;
/// A client refreshes the clock in its mailbox when it is older than this.
pub const CLOCK_REFRESH_MS: u64 = 2;
/// A client looks for a new heartbeat this often.
pub const HEARTBEAT_LOOK_US: u64 = 1_000;

/// Shortest lease term (HydraDB 4.2.3).
pub const LEASE_MIN_S: u64 = 1;
/// Longest lease term (HydraDB 4.2.3).
pub const LEASE_MAX_S: u64 = 64;
/// Longest lease that a server can be configured to grant (benches): leases are compared modulo
/// 2^16 s, half of which is the future.
pub const LEASE_CONFIG_MAX_S: u64 = 1 << 14;
/// A sixteenth of the arena may wait for leases, unless `quarantine_bytes` says otherwise. Beyond
/// it the allocator reuses the oldest slots early, which generation and checksum make safe.
pub const QUARANTINE_SHARE: u64 = 16;
/// An arena has a reserve of an eighth of its memory behind it, for a shard that applies the log of
/// another. Such a shard has its records elsewhere than the other, and free memory in other pieces.
/// Of eleven replicas of full primaries with an eighth more memory none ran out of it (decision
/// 0061).
pub const RESERVE_SHARE: u64 = 8;
/// A shard that evicts, and has more in use than its memory since it applied a log, evicts so many
/// bytes in a tick at most: about as long a turn as that of a change that makes room.
pub const LENT_TURN_BYTES: u64 = 2 * SPAN_BYTES as u64;

/// Free memory, the reserve included, without which no part of a change of two shards begins: more than
/// the removal of one element or member ever writes, so that the second part is not refused.
pub const JOINT_ROOM_BYTES: u64 = 4 * SPAN_BYTES as u64;

/// Unit of the arena's page allocator: small enough that a large record wastes
/// little, large enough that 64 GiB are 16 M units.
pub const PAGE_BYTES: usize = 4 << 10;
/// A span: the pages that small slots of one class are carved from. At 64 KiB
/// the end that is too short for a slot of 80 bytes is 0.02 %.
pub const SPAN_BYTES: usize = 64 << 10;
/// Slots of up to this size are carved from spans; larger ones get pages of
/// their own.
pub const SMALL_SLOT_BYTES: usize = 8 << 10;

/// Partly used spans of one class that the allocator compares when it looks for the sparsest: the
/// lists are sorted by quarters already.
pub const SPARSE_LOOKS: usize = 4;
/// Spans' worth of arena (64 KiB each, 1 GiB in all) that one search for the cheapest window looks
/// at; the next search continues where it ended.
pub const DEFRAGMENT_SCAN_SPANS: usize = 1 << 14;
/// Searches for a window until one is found: 8 GiB in all.
pub const DEFRAGMENT_SCANS: usize = 8;
/// Windows that one allocation tries to empty before it takes memory for full: the cheapest window
/// may fail because one of its records finds no slot elsewhere.
pub const DEFRAGMENT_WINDOWS: usize = 16;
/// Bytes that one allocation may move, in windows of the wanted size.
pub const DEFRAGMENT_MOVED_WINDOWS: u64 = 4;
/// Records that the eviction policy examines for one victim; then it takes the next record,
/// whatever the policy asked for: some tens of microseconds. A few records are enough unless nearly
/// everything is in use.
pub const VICTIM_LOOKS: u32 = 256;
/// Records evicted for one small record before records are moved: often one
/// of them leaves a slot of the wanted class, which costs no move.
pub const EVICTIONS_BEFORE_MOVES: u32 = 16;
/// Times that an evicting shard makes room for one command, each time twice as much as before, and
/// executes the command again. So all evictions for a command stay in proportion to what the
/// command wants.
pub const ROOM_TRIES: u32 = 4;
/// Before an evicting shard moves records, it has this much free beyond what the command wants: the
/// moved records need slots.
pub const EVICTION_SLACK_BYTES: u64 = SPAN_BYTES as u64;
/// Slots touched by other threads' reads that those threads report to a shard between two of its
/// turns; beyond it the earliest reports are lost.
pub const TOUCH_HINTS: usize = 1024;

/// READs of one operation that may fail validation before the client asks.
pub const READ_RETRIES: u32 = 3;
/// Buckets that one walk visits in an overflow chain before it asks instead.
pub const CHAIN_BUCKETS: usize = 8;
/// A table splits a bucket when it has more than so many quarters of a record
/// for each bucket: 5.25 records. Fewer cost more than 16 bytes of table for
/// each record, more make lookups visit more overflow buckets.
pub const BUCKET_LOAD_QUARTERS: u64 = 21;
/// Chunks of one doubling of a table: at most a 32nd of it lies idle.
pub const CHUNKS_PER_DOUBLING: u64 = 32;
/// Names of an object that lies whole in its record, at most: as Redis's
/// `hash-max-listpack-entries`; a change rewrites the whole record.
pub const WHOLE_ITEMS: usize = 128;
/// Bytes of a name or a value in such an object, at most: as Redis's
/// `hash-max-listpack-value`.
pub const WHOLE_ITEM_BYTES: usize = 64;
/// Entries of a list that lies whole in its record, at most.
pub const WHOLE_ENTRIES: usize = 128;
/// Bytes of the entries of such a list, at most: each change writes them anew.
pub const WHOLE_ENTRIES_BYTES: usize = 1024;
/// Entries of a chunk of a list, at most (K5).
pub const CHUNK_ENTRIES: usize = 100;
/// Bytes of the entries of such a chunk, at most; a longer entry has a chunk of its own.
pub const CHUNK_BYTES: usize = 8 << 10;
/// Bytes of the longest chunk that a client reads one-sidedly: one of [`CHUNK_BYTES`] in its slot.
pub const CHUNK_READ_BYTES: usize = CHUNK_BYTES + CHUNK_BYTES / 4;
/// Hints of links that a shard looks at in one second, at most, because clients say that they lead nowhere.
/// Each costs a lookup or two: some 10 ms of the second.
pub const LINK_MENDS_PER_SECOND: u64 = 20_000;
/// Chunks that one turn of a search in a list looks at, for LREM and LINSERT: some ten microseconds
/// with short elements. More, if more was added to the list since the last turn.
pub const LIST_TURN_CHUNKS: u64 = 256;
/// Bytes of entries that a turn of such a search, or of LRANGE and LPOS, looks at, about.
pub const LIST_TURN_BYTES: usize = 256 << 10;
/// Chunks that a client walks one-sidedly for a range of a list, at most: each of them is a round
/// trip. Further ones are asked for.
pub const LIST_READ_CHUNKS: u64 = 8;
/// Members of a set that is packed as integers, at most: as Redis's `set-max-intset-entries`.
pub const WHOLE_INTEGERS: usize = 512;
/// Entries of a node of a sorted set's tree: fewer cost more memory, more make each change rewrite more.
pub const SORTED_FAN_OUT: usize = 64;
/// Members of a large sorted set that get scores in one change: for each of them it takes a node of the
/// tree beforehand, at worst. More are several changes of one command.
pub const SORTED_CHANGE_MEMBERS: usize = 16;
/// Members that one turn removes from a large sorted set, or that one step of an operation removes at
/// most: each is a change of a tree. About a millisecond.
pub const SORTED_TURN_CHANGES: usize = 512;
/// Members in a bin of a large object of members, on average: more make a change rewrite more, fewer cost
/// more memory for each.
pub const BIN_MEMBERS: u64 = 8;
/// Members in a bin, at most: members whose hashes lead to a full one become parts of their own. Without
/// chosen members no bin comes near it.
pub const BIN_MOST_MEMBERS: usize = 64;
/// Members that one turn of a read of several sets takes from its table, or lookups that it makes.
pub const COMBINE_TURN_MEMBERS: usize = 4_096;
/// Times that one union or intersection with weights may name one key: each is a multiplication for each
/// of its members, some thousands in one turn.
pub const MAX_WEIGHTS: usize = 256;
/// Elements that SORT takes, at most: the connection's thread keeps their places and weights, some tens of
/// megabytes.
pub const MAX_SORT_ELEMENTS: usize = 1 << 20;
/// Elements that one turn of SORT looks at, or comparisons that it makes, about: that takes some hundred
/// microseconds.
pub const SORT_TURN_ELEMENTS: usize = 4_096;
/// Bytes of elements that one turn of SORT looks at, about.
pub const SORT_TURN_BYTES: usize = 1 << 20;
/// Options GET of one SORT.
pub const MAX_SORT_GETS: usize = 256;
/// Names and values in one command about fields, or about several keys: the command is one turn of
/// its shard, which therefore takes some tens of milliseconds at most.
pub const MAX_COMMAND_ITEMS: usize = 65_536;
/// Members of a sorted set with their scores in one command, for the same reason: each one is a change
/// of a tree.
pub const MAX_COMMAND_MEMBERS: usize = 8_192;
/// Different elements of an object that one turn draws by lot, at most, and at most a quarter of all:
/// more are chosen by a read of all of them. Less than a millisecond.
pub const DRAWN_AT_ONCE: u64 = 1024;
/// Buckets that such a turn looks at for each of them, about: beyond them the object has lost most of
/// its elements.
pub const DRAWN_BUCKETS: u64 = 8;
/// Members that SPOP of more than [`MAX_COMMAND_ITEMS`] takes in one turn, as one change; their bytes.
pub const POP_TURN_MEMBERS: u64 = 8_192;
/// See [`POP_TURN_MEMBERS`].
pub const POP_TURN_BYTES: u64 = 1 << 20;
/// Bytes of members that such a SPOP gives, about: then it ends.
pub const POP_REPLY_BYTES: usize = MAX_REPLY_BYTES / 2;
/// Approximate bytes that one turn of a read of an object's parts returns: one reply's.
pub const PARTS_TURN_BYTES: usize = 48 << 10;
/// Buckets that such a turn looks at, at most: a table from which most parts were removed has many
/// empty ones. With short fields a turn's bytes lie in about as many. Less than 0.1 ms.
pub const PARTS_TURN_BUCKETS: u64 = 1024;
/// The largest share of the shard's memory that holds old parts for reads in turns of objects that
/// change meanwhile. Beyond it the shard aborts the longest of these reads.
pub const KEPT_PARTS_SHARE: u64 = 8;
/// Longest glob pattern: of SCAN, HSCAN, KEYS, CONFIG GET and COMMAND LIST.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// Parts that one step of a scan looks at, at most, whatever COUNT says: a
/// fraction of a millisecond.
pub const SCAN_PARTS: u64 = 4_096;
/// Approximate bytes of names that such a step compares with a pattern: some milliseconds with the
/// longest pattern.
pub const SCAN_BYTES: usize = 256 << 10;
/// Chunks in which an object's table allocates a doubling: fewer than a shard's, because the
/// directory lies in the object's root record. At most a quarter of the table is allocated ahead of
/// its use.
pub const OBJECT_CHUNKS_PER_DOUBLING: u64 = 4;
/// Parts per bucket of an object's table, in quarters, above which it grows: more than for a
/// shard's table, because parts are small and their buckets must cost little in comparison. At this
/// load half of the chains have a second bucket.
pub const OBJECT_LOAD_QUARTERS: u64 = 28;
/// Buckets that an object's table begins with, in the root record: enough for the
/// objects that have just become too large for one record.
pub const OBJECT_BASE_BUCKETS: u64 = 32;
/// Buckets of the smallest chunk: one page.
pub const SMALLEST_CHUNK_BUCKETS: u64 = 64;
/// Doublings of a table: as many as the directory in the header page has room for. From one page of
/// buckets they lead to 2^29 buckets, 32 GiB of them.
pub const MAX_DOUBLINGS: u32 = 23;
/// New keys for which a table does not try to grow after the arena had no
/// room for it: memory seldom comes back within a few microseconds.
pub const GROW_PAUSE_INSERTS: u32 = 256;
/// Records that one walk fetches for one key before it asks instead. A
/// second candidate means two equal 16-bit signatures in one bucket.
pub const WALK_CANDIDATES: usize = 7;

/// Smallest capacity of a tree's node, in entries: a full node and one more entry make two nodes of
/// at least two.
pub const MIN_NODE_ENTRIES: usize = 4;
/// Largest capacity of a tree's node: 40 KiB, which one READ still fetches within some
/// microseconds.
pub const MAX_NODE_ENTRIES: usize = 1024;
/// Entries of a node unless told otherwise (Catfish 5.3.1; measured in
/// docs/performance.md).
pub const NODE_ENTRIES: usize = 30;
/// Levels of a tree at most: 2^32 nodes of two entries each have fewer.
pub const MAX_TREE_HEIGHT: u8 = 40;
/// Times that one walk over a tree restarts before it asks the server instead. Each restart means
/// that a change has taken entries out of nodes meanwhile.
pub const WALK_RESTARTS: u32 = 8;
/// Times that one walk fetches a node again because the owner was changing it. More than for a
/// record, as a walk visits many nodes.
pub const WALK_RETRIES: u32 = 32;
/// Smallest fan-out of a B+tree: a full node and one more entry make two nodes of at least two.
pub const MIN_FAN_OUT: usize = 4;
/// Largest fan-out of a B+tree: the heads of a node, 2 KiB, still fit the first-level cache.
pub const MAX_FAN_OUT: usize = 256;
/// Bytes of a B+tree's key, at most: four of them, as fences, and two entries fit a small node.
pub const MAX_ORDERED_KEY_BYTES: usize = 1 << 10;
/// Bytes of a B+tree's node, at most: offsets in it are 16 bits, in whole words.
pub const MAX_ORDERED_NODE_BYTES: usize = (64 << 10) - 64;
/// Bytes of a value that lies in a B+tree's leaf, at most.
pub const MAX_ORDERED_VALUE_BYTES: usize = 1 << 10;
/// Entries of a B+tree's node by default.
pub const ORDERED_FAN_OUT: usize = 32;
/// Bytes of a value of an ordered tree, at most: one that does not lie in a leaf lies in a record.
/// It fits a frame with its key, so that a turn of a range, a piece of a dump and a reader's landing
/// place stay small.
pub const MAX_ORDERED_LONG_BYTES: usize = 64 << 10;
/// Bytes of records with values of an ordered tree that a reader fetches at a time, at most: so many
/// land in its memory.
pub const LONG_READ_BYTES: usize = 256 << 10;
/// Longest value in a B+tree's leaf by default.
pub const ORDERED_VALUE_BYTES: usize = 256;
/// Keys that one turn of a shard reads of a range, and bytes of them and their values, about.
pub const RANGE_TURN_KEYS: usize = 512;
/// See above.
pub const RANGE_TURN_BYTES: usize = 64 << 10;
/// Right links in a row that one walk over a B+tree follows: each means that a split was published
/// whose parent the walk read before.
pub const WALK_RIGHT_LINKS: u32 = 16;
/// Inner nodes that one walk over a B+tree goes down before it asks: twice the levels of the largest
/// tree that fits a region with the default fan-out. Deep nodes add to the levels while others hold
/// their addresses.
pub const WALK_DEPTH: u32 = 32;
/// Addresses of one B+tree that others hold at a time, each for each epoch that handed it out: the
/// children of the 4096 nodes of 16 branches that a switch's node set has.
pub const MAX_HELD_ADDRESSES: usize = 64 << 10;
/// Levels of inner nodes that one request hands out.
pub const MAX_HELD_LEVELS: usize = 8;
/// Bytes of nodes that one request hands out, at most: one turn of a shard copies them.
pub const MAX_HOLD_BYTES: usize = 256 << 10;
/// Time for which a request may hold addresses, in ms: ten minutes. A holder renews it.
pub const MAX_HOLD_MS: u64 = 600_000;
/// Looks of one turn of a shard at nodes of B+trees that are to be mended, each with one change at
/// the most: some microseconds each.
pub const MEND_TURN_NODES: usize = 8;
/// Nodes of a B+tree that may join a neighbour and are noted until they are looked at, 24 bytes each.
/// If there are more, all nodes of their level are looked at.
pub const MAX_MENDED_NODES: usize = 16 << 10;
/// B+trees of one shard of which others hold addresses at a time.
pub const MAX_HELD_TREES: usize = 4096;
/// B+trees that one turn of a shard looks at because epochs end there, or nodes wait.
pub const MEND_TURN_TREES: usize = 64;
/// One of so many lookups of a B+tree is counted, on average: it costs a second way down.
pub const ACCESS_SAMPLE_LOOKUPS: u32 = 256;
/// Samples after which all counts of a B+tree are halved: later lookups count more.
pub const ACCESS_HALVING_SAMPLES: u32 = 1 << 16;
/// Inner nodes of a B+tree whose accesses are counted: as many as a switch's node set has.
pub const MAX_ACCESS_NODES: usize = 4096;
/// Nodes of a level that one request lists, at most.
pub const MAX_LISTED_NODES: usize = 1024;
/// Epochs that hold addresses of one B+tree at a time.
pub const MAX_HELD_EPOCHS: usize = 64;
/// Nodes are carved from runs of pages: the first run holds a few, of an ordered
/// tree one; each later one as much as all before it, up to this many bytes.
pub const NODE_RUN_BYTES: usize = 256 << 10;
/// Bytes of a sorted set's member: a part of a large set has a name of one more, as a key.
pub const MAX_SORTED_MEMBER_BYTES: usize = MAX_KEY_BYTES - 1;
/// Members of a GEO key up to which a command looks at them one by one; with more the key has a
/// tree.
pub const GEO_TREE_MEMBERS: u64 = 64;
/// Bytes that an object in a tree may carry: with its rectangle and its tree's
/// name they fit a frame.
pub const MAX_OBJECT_BYTES: usize = 16 << 10;
/// Bytes of an object's id that is no integer: names and URNs fit, and a
/// thousand of them are far below a reply's limit.
pub const MAX_OBJECT_ID_BYTES: usize = 512;
/// Fields of an object: a tree's object has few fields, unlike a document.
pub const MAX_FIELDS: usize = 64;
/// Bytes of all fields of an object, 4 more for each: with its geometry and its
/// bytes they fit a frame.
pub const MAX_FIELDS_BYTES: usize = 8 << 10;
/// Words that one request resolves: as many as one request refines.
pub const MAX_RESOLVE_WORDS: usize = MAX_REFINE_IDS;
/// Words that one turn of a shard resolves: some cache misses each, less than 0.1 ms.
pub const RESOLVE_TURN_WORDS: usize = 256;
/// Expired objects that one turn removes: each removal is a change of its tree, so that all take
/// about 0.3 ms.
pub const EXPIRE_TURN_OBJECTS: usize = 64;
/// Bytes of a geometry in WKB: some 4,000 coordinates. With its object's bytes
/// and a tree's name it fits a frame; two of them are compared in one turn of
/// a shard.
pub const MAX_GEOMETRY_BYTES: usize = 64 << 10;
/// Characters of a geometry in WKT: coordinates with all their digits take
/// three times what they take in WKB.
pub const MAX_GEOMETRY_TEXT: usize = 4 * MAX_GEOMETRY_BYTES;
/// Collections inside each other in one geometry: real ones have one or two.
pub const MAX_GEOMETRY_DEPTH: usize = 8;
/// Largest absolute value of a geometry's coordinate: the orientation test multiplies two
/// differences, and the product stays finite.
pub const MAX_GEOMETRY_COORDINATE: f64 = 1e150;
/// Most objects that a search for the nearest gives: they fit a frame.
pub const MAX_NEAREST: usize = SEARCH_FRAME_OBJECTS;
/// Bytes of a plan in a message: some thousand keys, or as many conditions and names as it may have.
pub const MAX_PLAN_BYTES: usize = 1 << 20;
/// Plans that one thread runs at once; more wait for their turn.
pub const PLANS_AT_ONCE: usize = 64;
/// Bytes that the plans may hold that one thread runs at once, by their limits; more plans wait. One
/// that may hold more runs alone.
pub const PLANS_HELD_BYTES: u64 = 256 << 20;
/// A thread takes answers of plans' questions until they have led to so many visits in one turn: some
/// 0.2 ms. One batch of answers may exceed it.
pub const PLAN_TURN_VISITS: usize = 1024;
/// Work of a shard for plans' questions in one turn: keys, elements and objects.
pub const PLAN_TURN_WORK: usize = 256;
/// Work of a search for the nearest in one turn of its shard: nodes that it visits for the first
/// time, and objects whose expiry it checks: some 0.2 ms.
pub const NEAREST_TURN_WORK: u64 = 2048;
/// Work that it repeats in one turn because its tree has changed: nodes and objects as above. The
/// border of some hundred thousand objects.
pub const NEAREST_AGAIN_WORK: u64 = 8192;
/// Nodes that wait for one search for the nearest, 24 bytes each.
pub const NEAREST_WAITING_NODES: usize = 1 << 17;
/// Most objects in one reply of a search.
pub const SEARCH_FRAME_OBJECTS: usize = 2_000;
/// Nodes that a search visits in one turn of its shard: less than 0.1 ms.
pub const SEARCH_TURN_NODES: u64 = 512;
/// A turn of a search ends when it has found so many bytes of objects.
pub const SEARCH_TURN_BYTES: usize = 24 << 10;
/// Bytes of nodes that a thread reads by a walk for one search of a tree, its own shard's or
/// another's: 256 nodes of 30 entries. The owner executes a larger search in turns, and walks over
/// plain references.
pub const READ_SEARCH_NODE_BYTES: usize = 320 << 10;
/// Objects of such a search: the search keeps them until its end, and they fit one reply as entries
/// of 40 bytes.
pub const READ_SEARCH_OBJECTS: usize = STREAM_BYTES / 40;
/// A turn of a refined search ends when it has compared geometries of so many
/// bytes: the longest one.
pub const REFINE_TURN_BYTES: usize = MAX_GEOMETRY_BYTES;
/// It also ends when it has done so much comparison work: orientations computed, boxes and segments
/// looked at. A comparison then pauses behind its present segment; some hundred microseconds, with
/// the longest geometries a few milliseconds.
pub const REFINE_TURN_WORK: u64 = 8_192;
/// Bytes that an object without a geometry counts for in [`REFINE_TURN_BYTES`].
pub const REFINE_LEAST_BYTES: usize = 256;
/// Objects that one request asks a server to refine.
pub const MAX_REFINE_IDS: usize = 1_000;
/// Record locations of one tree that a session keeps; when there are more, it discards all of them
/// and starts again.
pub const MAX_KEPT_RECORDS: usize = 1 << 18;
/// In-flight READs of objects' records of one refined search.
pub const MAX_RECORD_READS: usize = 64;
/// In-flight READs of nodes of one search.
pub const MAX_ISSUED: usize = 64;
/// Cached nodes that one search uses; each needs a READ of its version.
pub const MAX_VERSION_CHECKS: usize = 256;
/// Most objects that one message brings for a tree that the server will build.
pub const STAGE_OBJECTS: usize = 1_000;
/// Work of one request that builds a tree from staged objects, counted in objects that the sort
/// looks at; an object that is written into a leaf counts as eight. Some hundred microseconds.
pub const BUILD_TURN_WORK: usize = 32_768;
/// The server drops what is staged for a tree after so many seconds without an addition: long
/// enough for a client with a slow source of objects, short enough that a dead client's memory
/// comes back.
pub const STAGE_IDLE_S: u64 = 30;

/// The table of pointers that a machine's clients share: two million hints of a line each. Memory
/// backs only the used lines.
pub const POINTER_TABLE_BYTES: usize = 128 << 20;
/// Lines of that table in which one hash may stand: at half load hardly any hint displaces another,
/// and a lookup without a hit reads half a kilobyte.
pub const POINTER_WINDOW_LINES: usize = 8;
/// Client processes of a machine that tell each other that they walk trees (C24), each by a word of
/// the table that they share: more than a machine has cores to walk with.
pub const MACHINE_CLIENTS: usize = 64;

/// The buffer of a client process for large replies: two of the largest at once. Memory backs only
/// the used pages, and the process gives them back after use.
pub const LARGE_BUFFER_BYTES: usize = 2 * MAX_VALUE_BYTES;
/// Memory for large replies that a client registers over RDMA, unless its load
/// or its options say otherwise: RDMA_Mongo's 50 MB (4.2, M11).
pub const DATA_BUFFER_BYTES: usize = 50_000_000;
/// The first buffer that a client registers over RDMA, when a reply first
/// needs one; later ones are as long as all before them together.
pub const DATA_BUFFER_STEP_BYTES: usize = 1 << 20;
/// The server registers an arena with an RDMA device in pieces of this length: short enough that
/// several threads share the work and that progress is visible, long enough that a device has few
/// keys to cache.
pub const REGISTER_PIECE_BYTES: usize = 1 << 30;
/// Pieces of one arena: those of the largest.
pub const MAX_PIECES: usize = (MAX_ARENA_BYTES / REGISTER_PIECE_BYTES as u64) as usize;
/// Threads that register memory: the kernel zeroes and pins pages, and from about this number on
/// memory is the limit, not the cores.
pub const MAX_REGISTER_THREADS: usize = 8;
/// Bytes of one large value that a shard moves in one turn, by a ring, a link or for RESP: some
/// microseconds, after which it serves others. A frame carries as many. Four times as many save
/// RESP less than 2 % of its instructions.
pub const STREAM_PIECE_BYTES: usize = 64 << 10;
/// Values that one ring pair transfers at once, in either direction: each holds memory of the
/// shard.
pub const MAX_STREAMS: usize = 16;
/// Held-back replies of one ring pair, which wait until they are durable or wait behind a large
/// value. Above this number its further requests wait in the ring (back-pressure): as many as a
/// RESP connection has in flight.
pub const HELD_REPLIES: usize = 1024;
/// Bytes of such replies, with the same effect.
pub const HELD_REPLY_BYTES: usize = 1 << 20;
/// Held replies that one turn hands to RESP connections once they are durable.
pub const RELEASED_REPLIES: usize = 1024;
/// The server abandons an upload after so many seconds without a piece, unless `upload_idle_s` says
/// otherwise: twice the time that a client waits for an answer.
pub const UPLOAD_IDLE_S: u64 = 10;
/// Longest `upload_idle_s`: it bounds how long a silent client can hold memory.
pub const UPLOAD_IDLE_MAX_S: u64 = 3_600;
/// The client gives pages of the buffer for large replies back to the system after use if they have
/// at least so many bytes.
pub const DISCARD_BYTES: usize = 1 << 20;
/// Bytes that may wait in a TCP connection before a large value waits too.
pub const STREAM_AHEAD_BYTES: usize = 1 << 20;
/// Sessions (threads) that share one client process's connection: 12 bits of a request's id hold
/// the number, and each session costs an inbox. Over shared memory the first [`MAX_RING_SETS`] of
/// them have rings of their own.
pub const MAX_CLIENT_SESSIONS: usize = 4096;
/// Operations in flight that one client session keeps for one shard.
pub const MAX_IN_FLIGHT: usize = 1024;

/// Keys that one turn of FLUSHALL removes before other work runs, and buckets that it looks at; the
/// last bucket may exceed the bound. Some ten microseconds.
pub const FLUSH_TURN_KEYS: u64 = 256;
/// See [`FLUSH_TURN_KEYS`].
pub const FLUSH_TURN_BUCKETS: u64 = 512;
/// Parts of a removed object that one turn releases: so many records, or one run of nodes. Some ten
/// microseconds.
pub const RELEASE_RECORDS: usize = 128;
/// Release turns that a tick, or a changing command, makes while removed objects hold memory. A
/// command pays for its own room.
pub const RELEASE_TURNS: usize = 4;

/// Changed keys of one shard, not yet durable, that the shard tracks one by one: 4 MiB at most. With
/// more, replies wait for the newest change of all keys.
pub const PENDING_KEYS: usize = 65_536;
/// Records that one turn makes live after their changes are durable: some ten microseconds.
pub const SHOW_TURN_RECORDS: usize = 1024;
/// Free bytes, beside its own, that a command needs while removed objects hold memory: two runs of
/// nodes, and what records round up to.
pub const RELEASE_ROOM_BYTES: u64 = 4 * NODE_RUN_BYTES as u64;

/// Runs of pages that a shard reserves or gives back in one command for the heap memory of types: 4
/// MiB, more than a table of objects grows by at once.
pub const COVER_TURN_RUNS: usize = 64;
/// Buckets that one step of a scan visits: some ten microseconds.
pub const SCAN_TURN_BUCKETS: usize = 256;
/// A step of a scan ends when it has found so many bytes of keys: with the
/// longest key more they fit a frame.
pub const SCAN_TURN_BYTES: usize = 24 << 10;
/// Random places that one search for any key examines without a result before it goes from bucket
/// to bucket.
pub const RANDOM_KEY_TRIES: u64 = 256;
/// Buckets that the search then examines in one turn: those of a step of a scan.
pub const RANDOM_KEY_BUCKETS: u64 = SCAN_TURN_BUCKETS as u64;
/// Parts of an object in one piece of a dump, and buckets that the shard examines for them: less
/// than a millisecond, also where the parts go into a tree.
pub const DUMP_PIECE_PARTS: usize = 128;
/// A piece of a dump ends when it has so many bytes.
pub const DUMP_PIECE_BYTES: usize = 64 << 10;
/// Objects of parts that a shard gives to other shards at a time, and as many that it receives.
pub const MAX_MOVES: usize = 64;
/// Keys that a shard holds at a time while it moves them to another shard: each connection moves
/// one at a time.
pub const MAX_HELD_RECORDS: usize = RESP_MAX_CONNECTIONS;

/// Work of one turn of a snapshot: so many keys, parts of objects and buckets, and so many bytes.
/// The last bucket, or the last piece of an object, may exceed it. Some ten microseconds.
pub const SNAPSHOT_TURN_KEYS: usize = 256;
/// See [`SNAPSHOT_TURN_KEYS`].
pub const SNAPSHOT_TURN_BYTES: usize = 256 << 10;
/// A snapshot writes a longer string in pieces of this length.
pub const SNAPSHOT_PIECE_BYTES: usize = 64 << 10;
/// Bytes of a snapshot that are not taken yet, beyond which it writes no more keys.
pub const SNAPSHOT_BUFFER_BYTES: usize = 1 << 20;
/// Bytes beyond which it is given up: changes go on, and its output is not taken. As much as
/// the log keeps for a reader.
pub const SNAPSHOT_HELD_BYTES: usize = LOG_HELD_BYTES;
/// Longest operation in a snapshot: the log keeps no longer entry.
pub const SNAPSHOT_OPERATION_BYTES: usize = LOG_HELD_BYTES / 2;
/// Keys that a snapshot leaves for later because something is under way in them; with more it
/// waits.
pub const SNAPSHOT_LATE_KEYS: usize = 64;
/// A snapshot is given up after so many seconds in which it could only wait for operations that
/// had begun before it: their clients continue them, and so they do not end by themselves.
pub const SNAPSHOT_WAIT_S: u64 = 600;

/// Bytes of operation log that a shard keeps in memory while no reader holds them; for replicas that are
/// away it keeps as many as it is configured to.
pub const OPLOG_BYTES: usize = 1 << 20;
/// Bytes of it that a shard keeps for readers that hold them: twice the longest
/// entry of one key, so that such an entry breaks no hold by itself.
pub const LOG_HELD_BYTES: usize = 160 << 20;
/// Room that the longest entry of one key takes, in whole segments: a segment has room for three of
/// the longest frames.
pub const LOG_ENTRY_ROOM_BYTES: usize =
    ((MAX_KEY_BYTES + MAX_VALUE_BYTES) / (3 * LOG_PIECE_BYTES) + 2) * (OPLOG_BYTES / LOG_SEGMENTS);
/// While fewer bytes are left for readers that hold entries, changes are refused: one more entry of
/// one key, and the removals that make room for it, break no hold.
pub const LOG_ROOM_BYTES: usize = LOG_ENTRY_ROOM_BYTES + 4 * OPLOG_BYTES;
/// While fewer are left, no key is evicted, as the change that wants room still has to be logged.
pub const LOG_EVICTION_ROOM_BYTES: usize = LOG_ENTRY_ROOM_BYTES + 2 * OPLOG_BYTES;
/// While fewer are left, keys that have expired stay, and commands do not find them: a disk that
/// takes nothing lets a shard keep so much less than the rest of its log.
pub const LOG_EXPIRY_ROOM_BYTES: usize = LOG_HELD_BYTES - (32 << 20);
/// Entries after which a primary asks a replica for an acknowledgement: "several tens" (HydraDB
/// 5.2).
pub const ASK_ENTRIES: u64 = 32;
/// Unit in which heartbeats and replies tell how old what a replica shows may be, us: a tenth of the
/// shortest time in which it is renewed.
pub const LAG_UNIT_US: u64 = 100;
/// A replica takes what its primary says of its clock as a lower bound of that clock, and believes
/// the greatest of this long, ms: what came later than usual says less.
pub const PRIMARY_TIME_MS: u64 = 1_000;
/// A replica judges expiries by the time of its data, but by no time that is more than this behind its clock,
/// ms: while it hears nothing, keys that should be gone are not shown for longer.
pub const REPLICA_EXPIRY_MS: u64 = 10_000;
/// Clocks of a replica that its primary has echoed, and whose commit positions are not applied yet,
/// for each log: two seconds of heartbeats before some are left out.
pub const LAG_MARKS: usize = 256;
/// Longest message to a replica: it has room for the longest frame of the log.
pub const FEED_BYTES: usize = MAX_FRAME_BYTES - FRAME_ALIGN_BYTES;
/// A replica's thread is woken over shared memory once a message has so many bytes, together with
/// those before it for which it was not. Otherwise it is woken once a millisecond at most, as each
/// signal costs the primary more than an entry: what lies in its memory counts without it.
pub const FEED_WAKE_BYTES: usize = RING_BYTES / 8;
/// Batches of entries on their way to one shard of a replica.
pub const APPLY_BATCHES: u64 = 16;
/// Places in the log of a primary that a shard of a replica knows while they are on their way to its
/// disk. Beyond that some are told of later.
pub const DURABLE_PLACES: usize = 1024;
/// Entries, or operations of a copy, that a shard of a replica applies in one turn.
pub const APPLY_TURN_ENTRIES: usize = 256;
/// A copy for which a replica has made no room for so long begins anew, s: longer than read leases
/// last, which a replica waits for first, and than it takes to remove what it had. The shard's snapshot
/// is open meanwhile, and other copies and BGSAVE wait for it.
pub const COPY_BLOCKED_S: u64 = 30;
/// A replica that has no memory for an entry for so long copies its primary anew, ms: what may still
/// free some, such as a download that ends, has had its time. Each further copy for that reason waits
/// twice as long, up to [`COPY_FOR_ROOM_MAX_MS`], as it loads the primary and may not help either.
pub const COPY_FOR_ROOM_MS: u64 = 5_000;
/// See [`COPY_FOR_ROOM_MS`].
pub const COPY_FOR_ROOM_MAX_MS: u64 = 600_000;
/// An entry that a shard of a replica refuses for a reason that time does not mend is tried again
/// with the next tick, after a second, and then after twice as long each time, up to this, s.
pub const APPLY_AGAIN_MAX_S: u64 = 64;
/// Time until a replica that has lost its primary tries again, at first and at most, ms.
pub const FOLLOW_AGAIN_MS: u64 = 50;
/// See [`FOLLOW_AGAIN_MS`].
pub const FOLLOW_AGAIN_MAX_MS: u64 = 2000;
/// Longest text with which a server refuses that its log is followed, bytes.
pub const FEED_REASON_BYTES: usize = 256;
/// Changes of the role (`REPLICAOF`, `RESYNC`) that wait for the one under way; more are refused.
pub const ROLE_CHANGES_WAITING: usize = 16;
/// Time that a change of the role waits for the shards, ms, counted from their last progress: a
/// turn of a shard takes far less.
pub const ROLE_TIMEOUT_MS: u64 = 10_000;
/// How often a replica tells the log how far the copy of its primary has come, ms.
pub const COPY_TOLD_EVERY_MS: u64 = 2_000;
/// While fewer bytes of log are left, nothing is kept for replicas that lag: before changes are
/// refused they lose their place, and get a copy.
pub const FEED_ROOM_BYTES: usize = LOG_HELD_BYTES - (64 << 20);
/// A replica that has not stored an entry for this long leaves the in-sync set, ms: longer than a
/// pause of the network or of the scheduler, shorter than a client waits for a reply.
pub const IN_SYNC_TIMEOUT_MS: u64 = 1000;
/// Time between two looks at how far the log was, ms: so much longer a laggard may stay, and so
/// little a replica may lag that comes back.
pub const IN_SYNC_LOOK_MS: u64 = 50;
/// A shard that has not looked for so long has stood still itself, ms: its replicas get so much more
/// time, once in a timeout.
pub const IN_SYNC_STALL_MS: u64 = 250;
/// Most replicas that a server may ask for before it acknowledges.
pub const MAX_MIN_REPLICAS: usize = 16;
/// Replicas that a shard counts: each turn compares all of them. Further ones get its log, and nothing
/// waits for them.
pub const MAX_COUNTED_REPLICAS: usize = 64;
/// Messages to one replica in one turn of the shard.
pub const FEED_MESSAGES_PER_TURN: usize = 4;
/// Greatest epoch that a replica takes from a primary: the next one after it is a number, too. Each
/// start of a server takes one, so none comes here.
pub const MAX_EPOCH: u64 = 1 << 48;
/// Greatest sequence that a replica takes from a primary: positions of all shards add up. Ten
/// million entries a second reach it after a hundred years.
pub const MAX_SEQUENCE: u64 = 1 << 55;
/// Bytes of entries that a replica keeps while they wait for their commit position. At this bound it
/// takes nothing more out of its ring, and the primary has to wait.
pub const FEED_WAITING_BYTES: usize = 8 << 20;
/// Runs of a shard's log on their way to the disk's thread.
pub const LOG_RUNS_UNDER_WAY: usize = 8;
/// Bytes of frames that a shard hands over at a time, more only for one longer frame.
pub const LOG_RUN_BYTES: usize = 1 << 20;
/// Bytes of runs that one write takes.
pub const LOG_GROUP_BYTES: usize = 8 << 20;
/// Bytes that are written and not synced beyond which the disk's thread takes no more: it keeps
/// them for the case that the sync fails.
pub const LOG_UNSYNCED_BYTES: usize = 64 << 20;
/// From so many on they are synced at once, not at the end of the second.
pub const LOG_UNSYNCED_SOON_BYTES: usize = 16 << 20;
/// Time between two syncs of a log whose changes do not wait for them, ms.
pub const LOG_SYNC_MS: u64 = 1000;
/// Time after the last run until a mark says that it is synced, ms.
pub const LOG_QUIET_MS: u64 = 100;
/// A log to which nothing is written gets a mark with the time so often, ms: by so much the time may
/// go back after a kill, if the machine's clock has gone back too.
pub const LOG_MARK_MS: u64 = 60_000;
/// Time between two looks whether the data directory is still where it was, ms.
pub const LOG_LOOK_MS: u64 = 500;
/// Time until a failed disk is tried again, at first and at most, ms.
pub const LOG_MEND_MIN_MS: u64 = 100;
/// See [`LOG_MEND_MIN_MS`].
pub const LOG_MEND_MAX_MS: u64 = 2000;
/// Longest chunk of a snapshot's file, bytes.
pub const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a segment of the log on a disk.
pub const LOG_SEGMENT_FILE_BYTES: u64 = 64 << 20;
/// Segments that the log drops its oldest entries by: a quarter at a time.
pub const LOG_SEGMENTS: usize = 4;
/// Work of one turn of a digest: so many buckets, records, parts of objects or KiB of values. Some
/// hundred microseconds, except for one long value.
pub const DIGEST_TURN_PARTS: usize = 2048;
/// A digest restarts when a change happens meanwhile; after so many restarts the server refuses it.
pub const DIGEST_RESTARTS: u32 = 8;
/// Longest body of one of the log's frames: the log splits a longer entry into pieces.
pub const LOG_PIECE_BYTES: usize = 64 << 10;

// Clusters.

/// Members of a cluster: with their addresses they fit one node of the coordinator.
pub const MAX_MEMBERS: usize = 2048;
/// Groups of a cluster: half as many, as a group without a replica has nothing to fail over to.
pub const MAX_GROUPS: usize = MAX_MEMBERS / 2;
/// Longest name of a group, bytes: longer than people type.
pub const MAX_GROUP_NAME_BYTES: usize = 32;
/// Longest address of a member, bytes: most hosts' names with a port, or the path of a Unix socket,
/// which ends at 107.
pub const MAX_MEMBER_ADDRESS_BYTES: usize = 128;
/// Longest topology, bytes. A ZooKeeper refuses requests of 1 MiB (`jute.maxbuffer`); the rest is for
/// the head of a request.
pub const MAX_TOPOLOGY_BYTES: usize = 1_000_000;
/// A client gets a topology in parts of so many bytes: one frame for each, and most topologies are
/// shorter.
pub const TOPOLOGY_PART_BYTES: usize = 64 << 10;
/// Requests of one member to the coordinator that wait for their answers: it has a handful of things
/// to ask, each again some times at most.
pub const COORDINATOR_REQUESTS: usize = 64;
/// A member that has read something of the coordinator's because it has changed reads its next change so
/// long after that at the earliest, us for each KiB: a quarter of a MiB a second for each member, however
/// large the cluster is, and however fast it changes. What a member waits for it has told anyway:
/// requests that are refused deliver the newest topology, and so do messages of a later epoch.
pub const READ_AGAIN_US_PER_KIB: u64 = 4_000;
/// How long a primary may acknowledge and echo clocks without the word of its in-sync set, ms, from
/// when it asked: ten heartbeats, so that a busy machine may lose some.
pub const PRIMARY_LEASE_MS: u64 = 10 * HEARTBEAT_MS;
/// Subtracted from that lease for clock drift, and added to the time that a new primary waits, ms.
pub const PRIMARY_LEASE_MARGIN_MS: u64 = PRIMARY_LEASE_MS * CLOCK_DRIFT_PERCENT / 100;
/// Of the time between two ticks no more counts as passed, ms, where a clock that jumps forward could
/// do harm: a late tick or two.
pub const FENCE_TICK_MAX_MS: u64 = 3 * HEARTBEAT_MS;
/// A member of the in-sync set that has not confirmed the lease for so long leaves the set, ms: longer
/// than a busy machine stands still. Nothing is acknowledged meanwhile.
pub const SILENT_REPLICA_MS: u64 = 500;
/// A primary whose lease has lapsed for so long, ms, gives up if its replicas could go on without it:
/// before it would leave them out, and not at once when it stood still itself.
pub const CUT_OFF_MS: u64 = 300;
/// A replica that left the in-sync set comes back after this, ms, and after twice as much each
/// further time, as it makes all changes wait each time that it leaves,
pub const RETURN_BACKOFF_MS: u64 = 1_000;
/// up to this, ms. Behind so long a time without leaving it begins anew.
pub const RETURN_BACKOFF_MAX_MS: u64 = 60_000;
/// Bytes of the log of one shard of its primary, as it came, that a replica keeps in memory: if it is
/// promoted, the others need no copy if they lack no more than that.
pub const FEED_TAIL_BYTES: usize = 1 << 20;
/// Servers of its cluster to which a server keeps connections for messages: the members of a group,
/// and watchers.
pub const PEER_LINKS: usize = 64;
/// A connection over which nothing was sent for so long, ms, makes room for another server: ten times as
/// long as a watcher waits before it asks again, so that none is taken that is in use.
pub const PEER_IDLE_MS: u64 = 10 * WITHDRAW_SILENT_AGAIN_MS;
/// Threads that carry messages, with those of connections that made room and wait for their last answer.
pub const PEER_THREADS: usize = 2 * PEER_LINKS;
/// Messages that wait for each of them; more are dropped, as a network would.
pub const PEER_MESSAGES: usize = 64;
/// A server that does not take a message within this time, ms, gets it no more: a fence has to be
/// answered in less.
pub const PEER_TIMEOUT_MS: u64 = 300;
/// A server without a session at its coordinator tries to open one this often, ms.
pub const COORDINATOR_CONNECT_AGAIN_MS: u64 = 1_000;
/// Time between two attempts to connect to ZooKeeper, ms: a server that was started again is found soon,
/// and one that is away costs little,
pub const ZOOKEEPER_CONNECT_PAUSE_MS: u64 = 100;
/// or so long, ms, after it has refused again and again what a session needs: people change its access
/// rights.
pub const ZOOKEEPER_REFUSED_PAUSE_MAX_MS: u64 = 10_000;
/// Time that a look at why TLS to ZooKeeper fails gives one server to accept, and for its handshake, ms;
pub const ZOOKEEPER_TLS_LOOK_MS: u64 = 500;
/// and time between the beginnings of two looks, ms: short against the time of a command that waits.
pub const ZOOKEEPER_TLS_PAUSE_MS: u64 = 2_000;
/// Time that closing a session at ZooKeeper may take, ms: it ends by itself, too.
pub const ZOOKEEPER_CLOSE_MS: u64 = 1_000;
/// Time that one server has for its hello, and to tell the topology, when a client asks servers in turn,
/// ms: some heartbeats of a busy machine.
pub const TOPOLOGY_PROBE_MS: u64 = 300;
/// Sessions that a client of a cluster keeps from one question for the topology to the next.
pub const TOPOLOGY_PROBES_KEPT: usize = 8;
/// The first of the times that a primary has for its hello, ms: a machine answers within it, and one that is
/// gone costs no more. Each further one is twice as long.
pub const CLUSTER_FIRST_HELLO_MS: u64 = 250;
/// The longest of the first pauses before an operation of a client begins again, ms: about the time that a
/// server takes for a change of its role,
pub const CLUSTER_FIRST_PAUSE_MS: u64 = 2;
/// and of any later one, ms: it is what a client's notice of a new primary may cost.
pub const CLUSTER_PAUSE_MAX_MS: u64 = 50;
/// Messages of other servers that wait for the thread of the cluster; more are dropped.
pub const CLUSTER_MAIL: usize = 256;
/// A member asks the coordinator this often to be present, ms, while another session is: its own of
/// before, mostly.
pub const ENTER_AGAIN_MS: u64 = 100;
/// A member that has heard of a later epoch than it knows asks for the newest topology this often, ms.
pub const REFRESH_MS: u64 = 100;
/// A member whose proposal was overtaken makes another within this time, ms,
pub const PROPOSE_AGAIN_MS: u64 = 8;
/// which doubles this often: 1,000 members that start at once are recorded within seconds.
pub const PROPOSE_AGAIN_DOUBLINGS: u32 = 8;
/// A primary that hands its epoch over waits so long for what is in flight, ms, and leads on then.
pub const HAND_OVER_TIMEOUT_MS: u64 = 1_000;
/// A primary that has released its epoch, or has stepped aside as it is cut off, waits so long for
/// another one, ms. Then it asks to lead the next epoch, or leads on.
pub const RELEASED_TIMEOUT_MS: u64 = 2_000;
/// A promoted server that could not apply what it had received tries again after this, ms.
pub const LEAD_AGAIN_MS: u64 = 1_000;
/// A primary whose disk has refused to note that it leads tries again after this, ms.
pub const LED_EPOCH_AGAIN_MS: u64 = 1_000;
/// A watcher asks a member to withdraw its ring again after this, ms.
pub const WITHDRAW_AGAIN_MS: u64 = 50;
/// and after this, ms, once it has said that the failover waits: many groups may wait at once.
pub const WITHDRAW_SILENT_AGAIN_MS: u64 = 1_000;
/// A failover that takes longer, ms, says what it waits for: longer than all that is in order.
pub const WAIT_IS_SAID_MS: u64 = 1_000;
/// A watcher waits so long for all of an in-sync set that could lead, ms, then for one.
pub const WITHDRAW_ALL_MS: u64 = 200;
/// Failovers that a watcher has under way at once; the others wait.
pub const FAILOVERS_AT_ONCE: usize = 16;
/// A group that fails over again soon waits so long first, ms, twice as long each further time,
pub const FAILOVER_BACKOFF_MS: u64 = 100;
/// up to this, ms.
pub const FAILOVER_BACKOFF_MAX_MS: u64 = 10_000;
/// A primary that has led for so many of these waits shortens the next one: 800 ms at the least, which is
/// less than any session that notices a death. After so many of the longest wait it begins anew.
pub const FAILOVER_HELD_BACKOFFS: u64 = 8;

// RESP connections, and the work that a shard's thread does for them.

/// Arguments of one RESP command, as Redis.
pub const RESP_MAX_ARGS: usize = 1 << 20;
/// Longest inline RESP command (as Redis: 64 KiB).
pub const RESP_MAX_INLINE_BYTES: usize = 64 << 10;
/// If more output than this waits for a RESP client, its requests wait too (back-pressure): a slow
/// reader delays only itself.
pub const CONNECTION_PAUSE_OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of values in one RESP reply: the longest value.
pub const MAX_REPLY_BYTES: usize = MAX_VALUE_BYTES;
/// If the number of items is known in advance, the shard sends a reply to a RESP connection in
/// pieces of about so many bytes of items, each piece after the one before is written.
pub const CONNECTION_PIECE_BYTES: usize = 256 << 10;
/// If more requests than this of one RESP connection wait for shards, its further requests wait
/// too.
pub const CONNECTION_PAUSE_PENDING: usize = 1024;
/// If the jobs of one RESP connection have more bytes than this, its further requests wait until
/// some jobs are answered. Together with one further request this bounds the memory that the
/// connection can hold in other shards.
pub const CONNECTION_PAUSE_JOB_BYTES: usize = 1 << 20;
/// The server closes the connection of a RESP client with more unread reply bytes than this. The
/// longest reply, with the lengths of its parts, fits behind the output at which the connection
/// pauses and the requests that came before the pause.
pub const CONNECTION_MAX_OUTPUT_BYTES: usize = 160 << 20;
/// Bytes of messages that answer no request, as a subscriber's, that a connection may leave unread
/// before it is closed: some ten thousand of them.
pub const CONNECTION_MAX_PUSHED_BYTES: usize = 1 << 20;
/// Unparsed bytes of one RESP command after which the server closes the connection: the longest key
/// and value, with most of 1 MiB in hand.
pub const MAX_REQUEST_BYTES: usize = 65 << 20;
/// If the server keeps more than this of a RESP request and no further bytes come, it gives the
/// request up, as it does with an upload over rings. It keeps less for every connection anyway.
pub const STALL_BYTES: usize = RESP_MAX_INLINE_BYTES;
/// The memory of a connection's buffers is counted in such steps, at its turns, against what clients may
/// have together, an address's, and a user's. Less than one step is free: small requests do not fail because
/// others send large ones. So 640 MB of all connections are not counted, and what TLS keeps of each, some
/// 100 KiB.
pub const CLIENT_MEMORY_STEP: usize = 64 << 10;
/// RESP connections that a shard's thread serves before it looks at its rings, its
/// mail and its sockets again.
pub const CONNECTIONS_PER_TURN: usize = 16;
/// Requests of one RESP connection that its thread executes before it serves
/// the next one: some tens of microseconds, and several times what pipelines
/// usually hold, so that their replies leave in one write.
pub const CONNECTION_REQUESTS_PER_TURN: usize = 128;
/// Bytes that its thread sends to one RESP connection before it serves the next one: some hundred
/// microseconds. Without the bound a client that reads fast enough would keep the thread.
pub const CONNECTION_SEND_BYTES_PER_TURN: usize = 1 << 20;
/// Requests of one RESP connection that the thread parses before it executes the first of them, so
/// that it prefetches their cache lines side by side: about as many lines as a core can have in
/// flight at once, at two lines a request.
pub const CONNECTION_REQUESTS_AHEAD: usize = 16;
/// Keys of one RESP request that its thread looks up, or hands to their shards, in one turn of the
/// connection. That takes some hundred microseconds; a request with more keys continues in the next
/// turn. Requests of a turn count as one more for each
/// `CONNECTION_KEYS_PER_TURN / CONNECTION_REQUESTS_PER_TURN` of their words, so that all of a turn
/// name at most about twice as many keys.
pub const CONNECTION_KEYS_PER_TURN: usize = 1024;
/// How often a shard's thread checks whether it should move a RESP connection to a thread with less
/// work, ms: long against a turn, short against a client's life.
pub const RESP_BALANCE_MS: u64 = 100;
/// A thread that is busy for a smaller share of its time moves no connection.
pub const RESP_BALANCE_BUSY_PERCENT: u64 = 50;
/// Longest name of a RESP connection, and longest value that CLIENT SETINFO sets: longer than the
/// names that programs use; with three of them each, all connections keep 30 MiB.
pub const RESP_MAX_CLIENT_NAME_BYTES: usize = 1024;
/// RESP connections of one server.
pub const RESP_MAX_CONNECTIONS: usize = 10_000;
/// TCP connections that the kernel keeps for a listener until the server accepts them: as many as Linux
/// allows by default (`net.core.somaxconn`). The first packet of one more is dropped, and its client
/// sends it again a second later.
pub const TCP_BACKLOG: i32 = 4096;

// Message rings, and how a shard polls them.

/// One message ring; 256 KiB for each connection, as Catfish 5.2 uses.
pub const RING_BYTES: usize = 256 << 10;
/// Ring sets of one client process over shared memory: as many as a word of ready
/// bits names. Sessions beyond them share sets.
pub const MAX_RING_SETS: usize = 64;
/// A session's own ring wraps to its start behind this many bytes, if the receiver has consumed the
/// bytes there: a session with few small in-flight frames stays in the first page of a ring.
pub const RING_LAP_BYTES: usize = 3 << 10;
/// On such a ring the consumer returns credit each time it has consumed this much: half a lap, a
/// dozen small frames. Credit is then one store, without a wake-up.
pub const LAP_CREDIT_BYTES: usize = RING_LAP_BYTES / 2;
/// With longer frames, the lap and the bytes consumed for one credit are longer: this many frames
/// for a credit, twice as many for a lap.
pub const LAP_CREDIT_FRAMES: usize = 8;
/// Longest frame, header included. Two of them and the credit not yet given
/// back fit a ring, so that a frame always finds room once everything before
/// it has been consumed, wherever the tail stands.
pub const MAX_FRAME_BYTES: usize = 96 << 10;
/// Frames start on cache lines: a small message is one line transfer.
pub const FRAME_ALIGN_BYTES: usize = CACHE_LINE_BYTES;
/// The consumer returns credit each time it has consumed this much: a quarter
/// of the ring, so that the producer seldom waits and credit is cheap.
pub const CREDIT_BYTES: usize = RING_BYTES / 4;
/// Frames a shard takes from one ring before it looks at the next one
/// (round-robin, HydraDB 4.1.1), and the depth of its prefetching.
pub const FRAMES_PER_TURN: usize = 16;
/// If a client process has had no work in its rings for so long, in microseconds, the shard parks
/// it: the shard looks at it again when it rings the doorbell. Longer than the gaps in a busy
/// phase; a doorbell costs both sides some microseconds.
pub const PARK_AFTER_US: u64 = 1_000;
/// Idle client processes that a shard keeps polling: so few words cost less than the system call
/// that looks for doorbells.
pub const KEPT_UNPARKED: usize = 4;
/// A busy shard with parked processes looks for their doorbells this often, in
/// microseconds: the system call then takes less than 2 % of its time.
pub const DOORBELL_LOOK_US: u64 = 50;
/// Reply bytes that a client accepts for one search or list, as a multiple of the server's largest
/// arena: the results of a search lie in one arena, and an object that moves meanwhile may be
/// returned again. If a server sends more, the client ends the connection.
pub const SEARCH_REPLY_ARENAS: u64 = 2;
/// Lower bound of that number, bytes, however small the arenas: a list may name one field many
/// times, and has [`MAX_REPLY_BYTES`] whatever the arena; late replies to earlier searches count,
/// too.
pub const MIN_SEARCH_REPLY_BYTES: u64 = 1 << 28;
/// Upper bound of that number, bytes, however large an arena a server claims to have: a hundred
/// million objects.
pub const MAX_SEARCH_REPLY_BYTES: u64 = 1 << 32;

const _: () = assert!(LOG_PIECE_BYTES + 64 <= OPLOG_BYTES / LOG_SEGMENTS);
const _: () = assert!(LOG_PIECE_BYTES + 64 <= FEED_BYTES && ASK_ENTRIES > 1);
const _: () = assert!(LOG_ROOM_BYTES < FEED_ROOM_BYTES);
const _: () = assert!(MAX_MIN_REPLICAS < MAX_COUNTED_REPLICAS);
const _: () = assert!(MAX_TOPOLOGY_BYTES < (1 << 20) - 1024);
const _: () = assert!(TOPOLOGY_PART_BYTES <= MAX_INLINE_BYTES);
const _: () = assert!(LAG_UNIT_US * 10 <= HEARTBEAT_MS * 1_000 && LAG_MARKS > 2);
const _: () = assert!(IN_SYNC_LOOK_MS < IN_SYNC_STALL_MS && IN_SYNC_STALL_MS < IN_SYNC_TIMEOUT_MS);
const _: () = assert!(2 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) + OPLOG_BYTES < LOG_HELD_BYTES);
const _: () = assert!(LOG_ROOM_BYTES + 4 * OPLOG_BYTES < LOG_EXPIRY_ROOM_BYTES);
const _: () = assert!(LOG_RUN_BYTES <= LOG_GROUP_BYTES && LOG_GROUP_BYTES <= LOG_UNSYNCED_BYTES);
const _: () = assert!(SNAPSHOT_BUFFER_BYTES + 2 * SNAPSHOT_TURN_BYTES < SNAPSHOT_HELD_BYTES);
const _: () = assert!(MAX_KEY_BYTES + MAX_VALUE_BYTES + 1024 < SNAPSHOT_OPERATION_BYTES);
const _: () = assert!(JOBS_PER_TURN * JOB_KEYS_AT_ONCE <= CONNECTION_KEYS_PER_TURN);
const _: () = assert!(MAX_KEY_BYTES < MAX_INLINE_BYTES && MAX_INLINE_BYTES < MAX_FRAME_BYTES);
const _: () = assert!(MAX_KEY_BYTES < 1 << 20 && MAX_VALUE_BYTES < 1 << 32);
const _: () = assert!(MAX_KEY_BYTES + MAX_VALUE_BYTES < MAX_READ_BYTES);
const _: () = assert!(SPAN_BYTES.is_multiple_of(PAGE_BYTES) && SMALL_SLOT_BYTES <= SPAN_BYTES);
const _: () = assert!(PAGE_BYTES.is_multiple_of(SLOT_UNIT_BYTES));
// Ask-only records have pages of their own.
const _: () = assert!(SMALL_SLOT_BYTES < ASK_ONLY_BYTES);
const _: () = assert!(STREAM_BYTES <= MAX_INLINE_BYTES);
const _: () = assert!(READ_SEARCH_OBJECTS <= SEARCH_FRAME_OBJECTS);
const _: () = assert!(
    MAX_GEOMETRY_BYTES + MAX_OBJECT_BYTES + MAX_FIELDS_BYTES + MAX_OBJECT_ID_BYTES + 1024
        <= MAX_INLINE_BYTES
);
const _: () = assert!(STREAM_PIECE_BYTES <= MAX_INLINE_BYTES);
const _: () = assert!(MAX_ORDERED_KEY_BYTES + MAX_ORDERED_LONG_BYTES + 64 <= MAX_INLINE_BYTES);
const _: () = assert!(READ_LEASE_MARGIN_MS < READ_LEASE_MS && 4 * HEARTBEAT_MS < READ_LEASE_MS);
// The longest read lease on a slow clock ends within the shortest wait on a fast one.
const _: () = assert!(
    (READ_LEASE_MS - READ_LEASE_MARGIN_MS) * (100 + CLOCK_DRIFT_PERCENT)
        <= (READ_LEASE_MS + READ_LEASE_MARGIN_MS) * (100 - CLOCK_DRIFT_PERCENT)
);
// So does the lease of a primary.
const _: () = assert!(
    (PRIMARY_LEASE_MS - PRIMARY_LEASE_MARGIN_MS) * (100 + CLOCK_DRIFT_PERCENT)
        <= (PRIMARY_LEASE_MS + PRIMARY_LEASE_MARGIN_MS) * (100 - CLOCK_DRIFT_PERCENT)
);
const _: () = assert!(PRIMARY_LEASE_MS + CUT_OFF_MS + 2 * FENCE_TICK_MAX_MS < SILENT_REPLICA_MS);
// A fast server's clock that is slewed forward stays within the margin that a slow reader adds.
const _: () = assert!(
    (100 + CLOCK_DRIFT_PERCENT) * (1_000_000 + CLOCK_SLEW_PPM) * 100
        <= (100 - CLOCK_DRIFT_PERCENT) * (100 + READER_CLOCK_PERCENT) * 1_000_000
);
const _: () = assert!(CLOCK_SLEW_MS < CLOCK_TOLERANCE_MS && CLOCK_TOLERANCE_MS < CLOCK_STEP_MS);
const _: () = assert!(IDLE_HEARTBEAT_MS + HEARTBEAT_MS < READ_LEASE_MS - READ_LEASE_MARGIN_MS);
const _: () = assert!(10 * IDLE_HEARTBEAT_MS <= SERVER_SILENT_MS);
const _: () = assert!(LEASE_MAX_S < 1 << 15);
const _: () = assert!(MAX_CLIENT_SESSIONS <= 1 << 16 && MAX_IN_FLIGHT < 1 << 16);
const _: () = assert!(2 * MAX_SHARDS + 5 <= 253);
const _: () = assert!((POINTER_TABLE_BYTES / CACHE_LINE_BYTES).is_power_of_two());
const _: () = assert!(MAX_SHARDS < MAX_REGIONS);
const _: () = assert!(MAX_FRAME_BYTES <= MAX_WRITE_BYTES);
const _: () = assert!(MAX_WRITE_BYTES <= u32::MAX as usize);
const _: () = assert!(2 * TCP_PIECE_BYTES <= READ_WINDOW_BYTES);
const _: () = assert!(
    2 * MAX_SHARDS * RING_BYTES + READ_WINDOW_BYTES + MAX_WRITE_BYTES <= MAX_OUTBOUND_BYTES
);
const _: () = assert!(MAX_KEY_BYTES + MAX_VALUE_BYTES + 1024 <= MAX_REQUEST_BYTES);
// A value's length takes up to 16 bytes of a reply.
const _: () = assert!(
    CONNECTION_PAUSE_OUTPUT_BYTES
        + MAX_REPLY_BYTES
        + 16 * (RESP_MAX_ARGS + 1)
        + CONNECTION_PAUSE_PENDING * STREAM_BYTES
        <= CONNECTION_MAX_OUTPUT_BYTES
);
const _: () = assert!(4 * MAX_REPLY_BYTES as u64 <= MIN_SEARCH_REPLY_BYTES);
const _: () = assert!(2 * MAX_FRAME_BYTES + CREDIT_BYTES <= RING_BYTES);
const _: () = assert!(RING_BYTES.is_multiple_of(FRAME_ALIGN_BYTES));
const _: () = assert!(RING_LAP_BYTES < RING_BYTES && LAP_CREDIT_BYTES <= CREDIT_BYTES);
// The bits of a word, and a mask takes a session's number to its set.
const _: () = assert!(MAX_RING_SETS == u64::BITS as usize && MAX_RING_SETS.is_power_of_two());
const _: () = assert!(MAX_RING_SETS <= MAX_CLIENT_SESSIONS);
