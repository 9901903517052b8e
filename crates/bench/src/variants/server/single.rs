//! One thread for each shard: it detects a message, executes it and replies
//! before it looks at the next connection, in turn (HydraDB 4.1.1, H3).

use super::connection::{Conversation, Door};
use super::rest::Rest;
use super::threads::spawn;
use super::work::{Asked, MESSAGES_PER_TURN, Store};
use core_affinity::CoreId;
use remora_layout::hash::KeyHash;
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Starts the thread; gives its door.
pub fn start(
    number: usize,
    store: Store,
    rest: Rest,
    core: Option<CoreId>,
) -> anyhow::Result<Arc<Door>> {
    let door = Door::new()?;
    rest.watch(door.as_fd())?;
    let inside = Arc::clone(&door);
    spawn(format!("shard-{number}"), core, move || run(store, &inside, rest))?;
    Ok(door)
}

fn run(mut store: Store, door: &Door, mut rest: Rest) {
    rest.begin();
    let (clock, hash_seed) = (store.clock, store.hash_seed);
    let mut conversations: Vec<Conversation> = Vec::new();
    let mut message = Vec::new();
    loop {
        if door.is_open() {
            door.pass(&mut conversations, &rest, |outgoing| outgoing);
        }
        if !conversations.iter().any(Conversation::has_message) {
            rest.wait(|| door.is_open() || conversations.iter().any(Conversation::has_message));
            continue;
        }
        let now = clock.now();
        store.tick(now);
        for conversation in &mut conversations {
            conversation.take_turn(
                MESSAGES_PER_TURN,
                &mut message,
                |message, incoming, outgoing| {
                    let asked = Asked::decode(message, |key| KeyHash::of(key, hash_seed));
                    let (header, value) = store.execute(asked, now);
                    // After processing (H16), before the reply that allows the next.
                    incoming.release()?;
                    outgoing.send(&[header.as_bytes(), value]);
                    Ok(())
                },
            );
        }
        rest.worked();
    }
}
