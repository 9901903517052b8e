//! A replay of a trace against a cache: which requests the server sees.
//!
//! The server does not see a read by a client that holds an unexpired pointer
//! to the record. The model takes the worst case: one cache of pointers for
//! all clients, so that every read under a lease goes unseen. Time is counted
//! in requests. As in the engine, a SET brings a pointer for the shortest
//! term; a GET that reaches the server doubles the record's term up to 64
//! times while a lease runs, and halves it otherwise; and a client renews a
//! lease in its last eighth if it has used it eight times (H24, H25).

/// Largest exponent of a lease term, as the engine has it: 1 to 64 s.
const MOST_POPULAR: u8 = 6;
/// Uses under a lease that make a client renew it.
const POPULAR_USES: u32 = 8;

/// A cache that holds a number of keys.
pub trait Cache {
    /// Whether a key is in it.
    fn has(&self, key: u32) -> bool;
    /// The server sees a read of a key that is in it.
    fn touched(&mut self, key: u32);
    /// Puts a key in that is not in it; another one may have to go.
    /// `is_leased` says whether some client may still read a key.
    fn insert(&mut self, key: u32, is_leased: &dyn Fn(u32) -> bool);
}

/// The result of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Requests with a key that was in the cache.
    pub hits: u64,
    /// Those of them that the policy did not see.
    pub unseen: u64,
}

#[derive(Clone, Copy, Default)]
struct Lease {
    /// Until when clients read without asking.
    until: u64,
    term: u64,
    uses: u32,
    /// End of the longest lease that the server gave out.
    given_until: u64,
    popularity: u8,
}

/// The server's knowledge of requests.
pub struct Knowledge {
    /// The shortest lease term, in requests; 0: it sees everything.
    shortest: u64,
    leases: Vec<Lease>,
}

impl Knowledge {
    /// Leases of `shortest` requests or more, on `keys` keys.
    pub fn new(shortest: u64, keys: usize) -> Self {
        Self { shortest, leases: vec![Lease::default(); keys] }
    }

    /// A read of a key that is in the cache: whether the server sees it.
    fn sees(&mut self, key: u32, now: u64) -> bool {
        if self.shortest == 0 {
            return true;
        }
        let lease = &mut self.leases[key as usize];
        if now < lease.until {
            lease.uses += 1;
            let renews = lease.uses >= POPULAR_USES && now + lease.term / 8 >= lease.until;
            if !renews {
                return false;
            }
        }
        lease.popularity = match now < lease.given_until {
            true => (lease.popularity + 1).min(MOST_POPULAR),
            false => lease.popularity.saturating_sub(1),
        };
        lease.term = self.shortest << lease.popularity;
        lease.until = now + lease.term;
        lease.given_until = lease.given_until.max(lease.until);
        lease.uses = 0;
        true
    }

    /// A SET of a key that was not in the cache.
    fn set(&mut self, key: u32, now: u64) {
        let (term, until) = (self.shortest, now + self.shortest);
        self.leases[key as usize] = Lease { term, until, ..Lease::default() };
    }
}

/// Replays the requests: a missing key is set at once.
pub fn replay(cache: &mut dyn Cache, knowledge: &mut Knowledge, requests: &[u32]) -> Outcome {
    let mut outcome = Outcome::default();
    for (now, &key) in requests.iter().enumerate() {
        let now = now as u64;
        if cache.has(key) {
            outcome.hits += 1;
            if knowledge.sees(key, now) {
                cache.touched(key);
            } else {
                outcome.unseen += 1;
            }
        } else {
            let leases = &knowledge.leases;
            cache.insert(key, &|other| leases[other as usize].given_until > now);
            knowledge.set(key, now);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_under_a_lease_are_unseen_until_it_ends_or_is_renewed() {
        let mut knowledge = Knowledge::new(100, 1);
        knowledge.set(0, 0);
        assert!(!knowledge.sees(0, 1) && !knowledge.sees(0, 99));
        assert!(knowledge.sees(0, 100), "the pointer of the SET has ended");
        // A lease of 100; used eight times, it is renewed from 188 on, for 200.
        (101..109).for_each(|now| assert!(!knowledge.sees(0, now)));
        assert!(!knowledge.sees(0, 187) && knowledge.sees(0, 188));
        assert!(!knowledge.sees(0, 387) && knowledge.sees(0, 388));
        assert_eq!(knowledge.leases[0].popularity, 0, "388 came after its end");
        assert!(Knowledge::new(0, 1).sees(0, 5));
    }
}
