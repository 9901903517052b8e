//! Any bytes as the messages of a primary to a replica, as the entries of its log and the operations
//! of its copies, which a shard carries out, and as what a replica says to a primary: nothing panics,
//! and nobody has what was never written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_arena::{NoJournal, Owner};
use remora_engine::{FollowedLog, Now, Origin, Shard, ShardOptions};
use remora_layout::limits::FEED_BYTES;
use remora_log::{Log, LogKey, LogOptions};
use remora_protocol::replication::{Acknowledge, Follow};
use remora_replica::{AskFor, Feed, Follower};
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1, since_start_s: 1 };

fuzz_target!(|input: Vec<(u8, Vec<u8>)>| {
    let mut primary = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
    let (mut feed, mut follower) = (None::<Feed>, Follower::default());
    let mut copy = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
    copy.begin_following((0, 1), false);
    copy.follow_log(FollowedLog { log: 0, logs: 1, key: 1, position: None });
    let mut log = Log::new(LogOptions::new(LogKey::new(1, 0), 0, 1));
    for (choice, bytes) in &input {
        match choice % 6 {
            4 => {
                log.append([bytes, &[], &[]]);
                let mut entries = log.entries();
                let Some(entry) = entries.pop() else { continue };
                copy.follow_at(0, (entry.sequence - 1, 1));
                // What is refused comes again.
                for _ in 0..2 {
                    let _ = copy.apply(&entry.entry(), &Origin::WHOLE, NOW);
                    copy.tick(NOW);
                }
            }
            5 => {
                let _ = copy.load(bytes, &Origin::WHOLE, NOW);
            }
            0 => {
                if follower.hear(bytes).is_err() {
                    follower.ask(0);
                }
            }
            1 => {
                if let Ok((follow, _)) = Follow::read_from_prefix(bytes) {
                    feed.iter_mut().for_each(|feed| feed.end(&mut primary));
                    feed = Some(Feed::begin((&mut primary, 1), &follow, AskFor::Some));
                }
            }
            2 => {
                if let (Some(feed), Ok((told, _))) = (&mut feed, Acknowledge::read_from_prefix(bytes))
                {
                    let _ = feed.take(&mut primary, told);
                }
            }
            _ => {
                let mut message = Vec::new();
                if let Some(feed) = &mut feed {
                    feed.next_message(&mut primary, NOW, &mut message);
                }
                assert!(message.len() <= FEED_BYTES);
                if choice & 8 != 0 {
                    let _ = follower.hear(&message);
                }
            }
        }
        let stored = feed.as_ref().and_then(Feed::stored).unwrap_or(0);
        assert!(stored <= primary.last_sequence());
    }
    copy.digest();
});
