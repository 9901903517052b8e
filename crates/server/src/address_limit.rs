//! How many connections and sessions there are of each address.
//!
//! Invariant: each counts until its [`AddressPermit`] ends, and the table has no address without one.

use crate::thread_counts::count;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's text.
#[derive(Debug)]
pub struct AddressLimit {
    /// Of one address, at most; 0: as many as come.
    most: usize,
    of_address: Mutex<HashMap<IpAddr, usize>>,
    /// Turned away since the start.
    pub refused: AtomicU64,
}

/// The address that counts for a client: of IPv6 its network of 64 bits, which one host may have all of.
pub fn host_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// A connection or session that counts.
#[derive(Debug, Default)]
pub struct AddressPermit(Option<(Arc<AddressLimit>, IpAddr)>);

impl AddressLimit {
    /// A limit without connections. `most` of one address; 0: as many as come.
    pub fn new(most: usize) -> Self {
        Self { most, of_address: Mutex::default(), refused: AtomicU64::new(0) }
    }

    /// One more of an address, if it may have one.
    pub fn enter(self: &Arc<Self>, peer: SocketAddr) -> Option<AddressPermit> {
        if self.most == 0 {
            return Some(AddressPermit(None));
        }
        let ip = host_of(peer);
        let mut of_address = self.lock();
        let many = of_address.entry(ip).or_default();
        if *many >= self.most {
            count(&self.refused, 1);
            return None;
        }
        *many += 1;
        Some(AddressPermit(Some((Arc::clone(self), ip))))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.of_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let Some((limit, ip)) = &self.0 else { return };
        let mut of_address = limit.lock();
        if let Some(many) = of_address.get_mut(ip) {
            *many -= 1;
            if *many == 0 {
                of_address.remove(ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_no_more() {
        let limit = Arc::new(AddressLimit::new(2));
        let peer = |text: &str| text.parse().unwrap();
        let one = limit.enter(peer("10.0.0.1:1")).unwrap();
        // The same one by IPv6.
        let two = limit.enter(peer("[::ffff:10.0.0.1]:2")).unwrap();
        assert!(limit.enter(peer("10.0.0.1:3")).is_none());
        let far =
            ["[2001:db8::1]:1", "[2001:db8::2]:1"].map(|text| limit.enter(peer(text)).unwrap());
        assert!(limit.enter(peer("[2001:db8::3]:1")).is_none());
        assert!(limit.enter(peer("[2001:db8:0:1::3]:1")).is_some());
        drop(far);
        let other = limit.enter(peer("10.0.0.2:1")).unwrap();
        drop(one);
        let three = limit.enter(peer("10.0.0.1:4")).unwrap();
        assert_eq!(limit.refused.load(std::sync::atomic::Ordering::Relaxed), 2);
        drop((two, other, three));
        assert!(limit.lock().is_empty());
        let open = Arc::new(AddressLimit::new(0));
        let all: Vec<_> = (0..9).map(|_| open.enter(peer("10.0.0.1:1")).unwrap()).collect();
        assert!(open.lock().is_empty() && all.len() == 9);
    }
}
