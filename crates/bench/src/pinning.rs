//! Which cores the clients take. Threads that poll need a core each, so with
//! `--wake poll` the server pins its shards from the first core up, and the
//! bench its clients to the cores after them.

use core_affinity::CoreId;
use remora_command_line::Wake;

/// Whether threads are pinned: they poll, and there is more than one core.
pub fn is_wanted(wake: Wake) -> bool {
    wake == Wake::Poll && cores().len() >= 2
}

/// Cores for the clients beside a server of `shards` shards, to be taken in
/// turn; none if they are not to be pinned, or the shards take all cores.
pub fn client_cores(wake: Wake, shards: usize) -> Vec<CoreId> {
    if !is_wanted(wake) {
        return Vec::new();
    }
    beside(cores(), shards)
}

fn cores() -> Vec<CoreId> {
    core_affinity::get_core_ids().unwrap_or_default()
}

fn beside(cores: Vec<CoreId>, shards: usize) -> Vec<CoreId> {
    cores.into_iter().skip(shards).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_keep_away_from_shards() {
        let cores: Vec<CoreId> = (0..4).map(|id| CoreId { id }).collect();
        let ids = |shards| -> Vec<usize> {
            beside(cores.clone(), shards).into_iter().map(|core| core.id).collect()
        };
        assert_eq!((ids(0), ids(1), ids(3)), (vec![0, 1, 2, 3], vec![1, 2, 3], vec![3]));
        assert!(ids(4).is_empty() && ids(9).is_empty());
        assert!(client_cores(Wake::Hybrid, 1).is_empty());
    }
}
