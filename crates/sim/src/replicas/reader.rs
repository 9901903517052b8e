//! A client that reads at replicas. What it finds with a lag is a read that took effect at some time since
//! then: the checker of keys judges it as a call that began so long ago. So it finds what was not
//! committed, what goes back behind its lag, and expiries that come too early.

use super::counts::ReplicaCounts;
use crate::clock::HostClock;
use crate::tasks::Coroutines;
use crate::values::{Register, decode, encode};
use crate::world::World;
use remora_client_core::{Client, Database, Error, Options, Path, Session, SetOptions, Wake};
use remora_fabric::sim::Tasks;
use remora_protocol::message::Status;
use remora_server::ReplicaReads;
use std::rc::Rc;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// Numbers of readers in a history begin behind those of other clients.
const FIRST_NUMBER: u32 = 1_000;
/// Of so many operations one is a change, which is to be refused.
const CHANGE_ONE_IN: u64 = 20;
/// Longest time until a reader that was refused asks again, ns.
const REFUSED_NS: u64 = 20 * MS;

/// See the module's text.
pub struct ReplicaReader {
    number: u32,
    world: Rc<World>,
    clock: HostClock,
    options: Options,
    task: u64,
}

impl ReplicaReader {
    /// Begins the readers of a world. Their tasks.
    pub fn spawn_all(world: &Rc<World>) -> Vec<u64> {
        let Some(swarm) = &world.swarm.replicas else { return Vec::new() };
        let spawned = swarm.reader_gains_ppm.iter().zip(&swarm.reader_lags_ms).enumerate();
        let spawned = spawned.map(|(at, (&gains_ppm, &lag_ms))| {
            let base_ns = world.sim.draw(|random| random.within(&(1..=1 << 50)));
            let clock = HostClock::new(&world.sim, base_ns, gains_ppm);
            let number = FIRST_NUMBER + at as u32;
            let options = Options {
                wake: Wake::Event,
                database: Database::of_bits(world.swarm.database_of(at as u32).into()),
                pointer_cache_entries: world.swarm.cache_entries,
                timeout: world.swarm.timeout,
                max_lag: (lag_ms > 0).then(|| Duration::from_millis(lag_ms)),
                ..Options::default()
            };
            let inner = Rc::clone(world);
            Coroutines::spawn(&world.sim, move || {
                let task = Coroutines.current().expect("it runs");
                Self { number, world: inner, clock, options, task }.run();
            })
        });
        spawned.collect()
    }

    fn draw(&self, below: u64) -> u64 {
        self.world.sim.draw(|random| random.below(below))
    }

    fn pause(&self, ns: u64) {
        self.world.faults.pause(&self.world.sim, self.task, ns..=ns);
    }

    fn count(&self, count: impl FnOnce(&mut ReplicaCounts)) {
        let counts = &self.world.replicas.counts;
        let mut now = counts.get();
        count(&mut now);
        counts.set(now);
    }

    fn violate(&self, promise: &'static str, seen: String) {
        self.world.history.borrow_mut().violate(promise, format!("reader {}: {seen}", self.number));
    }

    fn run(&self) {
        while !self.world.is_over() {
            let place = {
                let places = self.world.replicas.places.borrow();
                places[self.draw(places.len() as u64) as usize].clone()
            };
            let Some((process, parts)) = place.connect_reader(&self.clock) else {
                self.pause(5 * MS);
                continue;
            };
            let number = parts.hello.session.get();
            let client = Client::over(parts, &self.options).expect("no process forks here");
            if let Err(error) = self.use_client(&client) {
                self.ended(error);
            }
            drop(client);
            let hears_ns = self.draw(50 * MS);
            Coroutines::spawn(&self.world.sim, move || {
                place.pause(hears_ns);
                place.end_reader(process, number);
            });
            self.pause(1 + self.draw(2 * MS));
        }
    }

    fn ended(&self, error: Error) {
        let now_ns = self.world.sim.now_ns();
        let mut history = self.world.history.borrow_mut();
        history.note(now_ns, self.number, format_args!("session ended: {error}"));
        drop(history);
        if matches!(error, Error::Protocol(_) | Error::Forked) {
            self.violate("nobody breaks the protocol", error.to_string());
        }
    }

    /// Until the session ends, or it goes to another replica.
    fn use_client(&self, client: &Client) -> Result<(), Error> {
        let mut session = client.session()?;
        while !self.world.is_over() && self.draw(100) > 0 {
            match self.draw(CHANGE_ONE_IN) {
                0 => self.change(&mut session),
                _ => self.read(&mut session),
            }
            .or_else(|error| if error == Error::TimedOut { Ok(()) } else { Err(error) })?;
            let mix = self.world.swarm.mix;
            if self.draw(100) < mix.think_percent {
                self.pause(self.draw(mix.think_ns));
            }
        }
        Ok(())
    }

    fn key(&self) -> Register {
        let database = self.options.database.number();
        let number = self.draw(1 + self.draw(self.world.swarm.keys.into())) as u32;
        Register { database, hash: None, number }
    }

    /// A replica takes no changes.
    fn change(&self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        let bytes = encode(key, self.world.next_number(), self.world.swarm.lengths);
        match session.set(&key.name(), &bytes, SetOptions::default()) {
            Err(Error::Refused(Status::ReadOnly)) => self.count(|counts| counts.read_only += 1),
            Err(Error::Refused(status)) => {
                self.violate("a replica takes no changes", format!("{key} is refused: {status:?}"));
            }
            Err(error) => return Err(error),
            Ok(_) => self.violate("a replica takes no changes", format!("it has set {key}")),
        }
        Ok(())
    }

    fn read(&self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        let path = [Path::Ask, Path::Read, Path::Choose][self.draw(3) as usize];
        let began_ns = self.world.sim.now_ns();
        let (value, served_by) = match session.get(&key.name(), path) {
            Ok(got) => (got.value.map(<[u8]>::to_vec), got.served_by),
            Err(error) => return self.refused(error),
        };
        let by_read = u64::from(served_by.is_read());
        self.count(|counts| {
            (counts.reads, counts.one_sided) = (counts.reads + 1, counts.one_sided + by_read)
        });
        if self.reads() == ReplicaReads::None {
            self.violate("a replica answers no reads unless it is told to", format!("{key}"));
        }
        let Some(lag) = session.lag() else {
            self.violate("a replica says how old its answers are", format!("{key}"));
            return Ok(());
        };
        if self.options.max_lag.is_some_and(|most| lag > most) {
            self.violate("no answer is older than was allowed", format!("{key}: {lag:?}"));
        }
        let found = value.as_deref().map(|value| decode(key, value, self.world.swarm.lengths));
        if found == Some(None) {
            self.violate(
                "a value is one that was written to its key",
                format!("{key}: {value:02x?}"),
            );
        }
        self.note(key, found.flatten(), (began_ns, lag));
        Ok(())
    }

    /// What was found was the committed state at some time since the lag.
    fn note(&self, key: Register, found: Option<i64>, (began_ns, lag): (u64, Duration)) {
        let lag_ns = u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = self.clock.virtual_ns(self.clock.now_ns().saturating_sub(lag_ns));
        let now_ns = self.world.sim.now_ns();
        let within_ns = (from_ns.min(began_ns), now_ns);
        let mut history = self.world.history.borrow_mut();
        history.add_stale(self.number, key, (now_ns, within_ns), found);
    }

    fn refused(&self, error: Error) -> Result<(), Error> {
        match error {
            Error::TooStale { .. } if self.options.max_lag.is_some() => {
                self.count(|counts| counts.too_stale += 1);
            }
            Error::Refused(Status::Copying) if self.reads() == ReplicaReads::Stale => {
                self.count(|counts| counts.hidden += 1);
                self.pause(1 + self.draw(REFUSED_NS));
            }
            Error::Refused(Status::NoReads) if self.reads() == ReplicaReads::None => {
                self.count(|counts| counts.no_reads += 1);
                self.pause(1 + self.draw(REFUSED_NS));
            }
            Error::Refused(_) | Error::TooStale { .. } => {
                self.violate("nothing is refused without a reason", error.to_string());
            }
            error => return Err(error),
        }
        Ok(())
    }

    fn reads(&self) -> ReplicaReads {
        self.world.swarm.replicas.as_ref().map_or(ReplicaReads::None, |of| of.reads)
    }
}
