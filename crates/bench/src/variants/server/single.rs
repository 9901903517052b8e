//! One thread for each shard: it detects a message, executes it and replies
//! before it looks at the next connection, in turn (HydraDB 4.1.1, H3).

use super::connection::{AcceptQueue, Conversation};
use super::rest::Rest;
use super::threads::spawn;
use super::work::{DecodedRequest, MESSAGES_PER_TURN, Store};
use core_affinity::CoreId;
use remora_layout::hash::KeyHash;
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Starts the thread; gives its accept_queue.
pub fn start(
    number: usize,
    store: Store,
    rest: Rest,
    core: Option<CoreId>,
) -> anyhow::Result<Arc<AcceptQueue>> {
    let accept_queue = AcceptQueue::new()?;
    rest.watch(accept_queue.as_fd())?;
    let inside = Arc::clone(&accept_queue);
    spawn(format!("shard-{number}"), core, move || run(store, &inside, rest))?;
    Ok(accept_queue)
}

fn run(mut store: Store, accept_queue: &AcceptQueue, mut rest: Rest) {
    rest.begin();
    let (clock, hash_seed) = (store.clock, store.hash_seed);
    let mut conversations: Vec<Conversation> = Vec::new();
    let mut message = Vec::new();
    loop {
        if accept_queue.is_open() {
            accept_queue.pass(&mut conversations, &rest, |outgoing| outgoing);
        }
        if !conversations.iter().any(Conversation::has_message) {
            rest.wait(|| {
                accept_queue.is_open() || conversations.iter().any(Conversation::has_message)
            });
            continue;
        }
        let now = clock.now();
        store.tick(now);
        for conversation in &mut conversations {
            conversation.take_turn(
                MESSAGES_PER_TURN,
                &mut message,
                |message, incoming, outgoing| {
                    let asked = DecodedRequest::decode(message, |key| KeyHash::of(key, hash_seed));
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
