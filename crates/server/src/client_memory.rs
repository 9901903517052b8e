//! What the buffers of RESP connections hold: of all, of each address, and of each user.
//!
//! Invariant: what a connection is counted with ends with it, and the table has no address with 0 bytes.

use crate::address_limit::host_of;
use crate::thread_counts::count;
use remora_acl::{BoundedCount, User};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much they may hold, bytes; `usize::MAX`: as much as there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientMemoryLimits {
    /// All together.
    pub total: usize,
    /// Those of one address.
    pub of_address: usize,
    /// Those of one user.
    pub of_user: usize,
}

/// See the module's text.
#[derive(Debug)]
pub struct ClientMemory {
    limits: ClientMemoryLimits,
    held: BoundedCount,
    of_address: Mutex<HashMap<IpAddr, usize>>,
    /// Connections that were closed for the limit of all, of an address, and of a user.
    pub refused: [AtomicU64; 3],
}

/// What one connection is counted with.
#[derive(Default)]
pub struct HeldMemory(Option<Held>);

struct Held {
    memory: Arc<ClientMemory>,
    address: IpAddr,
    /// The count of the user that it was when its buffers began to hold so much.
    user: Option<Arc<BoundedCount>>,
    bytes: usize,
}

const ALL: &str = "the buffers of all clients hold as much as they may (max_client_memory): send \
less at a time, and read replies";
const OF_ADDRESS: &str = "the buffers of this address hold as much as they may \
(max_client_memory_per_address): send less at a time, and read replies";
const OF_USER: &str = "the buffers of this user hold as much as they may \
(max_client_memory_per_user): send less at a time, and read replies";

impl Default for ClientMemoryLimits {
    fn default() -> Self {
        Self { total: usize::MAX, of_address: usize::MAX, of_user: usize::MAX }
    }
}

impl ClientMemory {
    /// Limits of which nothing is used.
    pub fn new(limits: ClientMemoryLimits) -> Self {
        Self {
            limits,
            held: BoundedCount::default(),
            of_address: Mutex::default(),
            refused: Default::default(),
        }
    }

    /// Bytes that all hold now.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.of_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow_address(&self, address: IpAddr, by: usize) -> bool {
        if self.limits.of_address == usize::MAX {
            return true;
        }
        let mut addresses = self.addresses();
        let now = addresses.get(&address).copied().unwrap_or_default();
        let fits = now.checked_add(by).is_some_and(|sum| sum <= self.limits.of_address);
        if fits {
            addresses.insert(address, now + by);
        }
        fits
    }

    fn shrink_address(&self, address: IpAddr, by: usize) {
        if self.limits.of_address == usize::MAX {
            return;
        }
        let mut addresses = self.addresses();
        let Some(now) = addresses.get_mut(&address) else { return };
        *now -= by;
        if *now == 0 {
            addresses.remove(&address);
        }
    }
}

impl HeldMemory {
    /// A connection from `peer`, of `user`, holds this many bytes now.
    ///
    /// # Errors
    /// It may not hold more than before, as the text says; then it is counted with as much as before.
    pub fn set(
        &mut self,
        memory: &Arc<ClientMemory>,
        (peer, user): (SocketAddr, Option<&User>),
        bytes: usize,
    ) -> Result<(), &'static str> {
        if bytes == 0 {
            self.0 = None;
            return Ok(());
        }
        let held = self.0.get_or_insert_with(|| Held {
            memory: Arc::clone(memory),
            address: host_of(peer),
            user: user.map(User::memory),
            bytes: 0,
        });
        let Some(more) = bytes.checked_sub(held.bytes) else {
            held.shrink(held.bytes - bytes);
            return Ok(());
        };
        let grown = held.grow(more);
        if held.bytes == 0 {
            self.0 = None;
        }
        grown
    }
}

impl Held {
    fn grow(&mut self, by: usize) -> Result<(), &'static str> {
        let Self { memory, address, user, .. } = self;
        let refuse = |which: usize, text| {
            count(&memory.refused[which], 1);
            Err(text)
        };
        if !memory.held.grow(by, memory.limits.total) {
            return refuse(0, ALL);
        }
        if !memory.grow_address(*address, by) {
            memory.held.shrink(by);
            return refuse(1, OF_ADDRESS);
        }
        if user.as_ref().is_some_and(|user| !user.grow(by, memory.limits.of_user)) {
            memory.held.shrink(by);
            memory.shrink_address(*address, by);
            return refuse(2, OF_USER);
        }
        self.bytes += by;
        Ok(())
    }

    fn shrink(&mut self, by: usize) {
        self.memory.held.shrink(by);
        self.memory.shrink_address(self.address, by);
        if let Some(user) = &self.user {
            user.shrink(by);
        }
        self.bytes -= by;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn memory(total: usize, of_address: usize, of_user: usize) -> Arc<ClientMemory> {
        Arc::new(ClientMemory::new(ClientMemoryLimits { total, of_address, of_user }))
    }

    fn refused(memory: &ClientMemory) -> [u64; 3] {
        memory.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn all_an_address_and_a_user_hold_so_much_and_no_more() {
        let users = crate::users::UserTable::new(crate::users::UserSettings::default()).unwrap();
        let users = users.users();
        let user = users.get(b"default").map(Arc::as_ref);
        let (near, far) = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:5".parse().unwrap());
        let mut held: [HeldMemory; 3] = Default::default();
        let of = memory(300, 200, 1000);
        held[0].set(&of, (near, user), 150).unwrap();
        assert!(held[1].set(&of, (near, user), 100).unwrap_err().contains("of this address"));
        held[1].set(&of, (far, user), 100).unwrap();
        assert!(held[1].set(&of, (far, user), 151).unwrap_err().contains("of all clients"));
        assert_eq!((of.held(), refused(&of)), (250, [1, 1, 0]));
        held[0].set(&of, (near, user), 50).unwrap();
        held[1].set(&of, (far, user), 200).unwrap();
        held = Default::default();
        assert_eq!((of.held(), of.addresses().len()), (0, 0));

        let of = memory(usize::MAX, usize::MAX, 100);
        held[0].set(&of, (near, user), 60).unwrap();
        assert!(held[1].set(&of, (far, user), 60).unwrap_err().contains("of this user"));
        held[1].set(&of, (far, None), 60).unwrap();
        // It stays a count of that user after another login.
        held[0].set(&of, (near, None), 100).unwrap();
        held[0].set(&of, (near, None), 0).unwrap();
        held[2].set(&of, (far, user), 100).unwrap();
        assert_eq!((of.held(), refused(&of)), (160, [0, 0, 1]));
        held = Default::default();
        assert_eq!((of.held(), user.unwrap().memory().get()), (0, 0));
        drop(held);
    }
}
