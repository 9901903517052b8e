//! Memory of one NUMA node (HydraDB 4.1.2, H5).
//!
//! The node is a preference, not a requirement: once the node is full, slow memory of another node
//! is better than no memory.

use rustix::io::Errno;

/// Highest node number that can be named, plus one: Linux has at most 2^10.
const MAX_NODES: usize = 1 << 10;
const MASK_WORDS: usize = MAX_NODES / u64::BITS as usize;

/// Asks the kernel to take the pages of a range from `node` where it can. Pages that have been
/// touched stay where they are.
///
/// # Safety
/// `base` and `bytes` are a whole mapping of the caller's.
pub(crate) unsafe fn prefer_node(base: *mut u8, bytes: usize, node: u32) -> Result<(), Errno> {
    let node = node as usize;
    if node >= MAX_NODES {
        return Err(Errno::INVAL);
    }
    let mut mask = [0u64; MASK_WORDS];
    mask[node / 64] |= 1 << (node % 64);
    // SAFETY: mbind(2) changes the policy of the range that the caller vouches for, and no byte of
    // it. The kernel reads one bit less than the given count.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base,
            bytes,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            MAX_NODES + 1,
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        let error = std::io::Error::last_os_error().raw_os_error();
        Err(error.map_or(Errno::INVAL, Errno::from_raw_os_error))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{Region, RegionKind};

    /// Nodes with memory, as the kernel lists them; node 0 if the kernel lists none.
    fn nodes() -> Vec<u32> {
        let list = std::fs::read_to_string("/sys/devices/system/node/has_memory");
        let list = list.unwrap_or_else(|_| "0".into());
        let ranges = list.trim().split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        });
        ranges.flatten().collect()
    }

    /// The line of /proc/self/numa_maps about the mapping at `base`.
    fn numa_map(base: *const u8) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
        let start = format!("{:x} ", base as usize);
        maps.lines().find(|line| line.starts_with(&start)).map(str::to_owned)
    }

    /// On a machine of one node this shows the policy; on one of several, that
    /// each arena's pages lie where they should.
    #[test]
    fn an_arena_lies_on_the_node_that_it_was_told() {
        const BYTES: usize = 1 << 20;
        for node in nodes() {
            let region = Region::create("numa", RegionKind::Readable, BYTES).unwrap();
            if let Err(refused) = region.prefer_node(node) {
                // A container's filter of system calls may forbid mbind.
                println!("not run: {refused:?}");
                return;
            }
            for word in (0..BYTES / 8).step_by(512) {
                region.words().store(word, 1);
            }
            let Some(line) = numa_map(region.base()) else {
                println!("not run: the kernel shows no numa_maps");
                return;
            };
            assert!(line.contains(&format!(" prefer:{node} ")), "{line}");
            let elsewhere = line.split(' ').filter(|field| {
                let count = field.strip_prefix('N').and_then(|field| field.split_once('='));
                count.is_some_and(|(at, _)| at != node.to_string())
            });
            assert_eq!(elsewhere.count(), 0, "{line}");
            assert!(line.contains(&format!(" N{node}=")), "{line}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let region = Region::create("numa", RegionKind::Readable, 1 << 20).unwrap();
        for node in [MAX_NODES as u32 - 1, MAX_NODES as u32, u32::MAX] {
            assert!(region.prefer_node(node).is_err(), "{node}");
        }
    }
}
