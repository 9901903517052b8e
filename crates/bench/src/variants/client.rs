//! The client of the variants: a connection for each client thread, and the
//! least that a client needs: no pointers, no read leases, no sharing of rings.

use super::conversation::ends;
use super::ends::{Broken, Receiving, Sending, Side};
use super::form::{Form, Messages};
use super::nap;
use crate::costs::Costs;
use crate::targets::target::{Request, Target};
use anyhow::{Context, bail, ensure};
use remora_command_line::Wake;
use remora_fabric::shm::{self, Bell, ThreadBell};
use remora_layout::slot::SlotTable;
use remora_protocol::message::{ReplyHeader, Status};
use remora_protocol::{Command, Condition, Expiry};
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Without a reply after this time the request fails, as with the product.
const TIMEOUT: Duration = Duration::from_secs(30);
/// As the product's sessions: polls for a reply for this long, then blocks.
const HYBRID_SPIN: Duration = Duration::from_micros(50);
/// Empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 128;
/// Interval at which a polling client checks the server's incarnation.
const INCARNATION_LOOK: Duration = Duration::from_millis(10);

/// A connection of its own to every shard.
pub struct VariantTarget {
    lanes: Vec<Lane>,
    slots: Box<SlotTable>,
    wait: Wait,
    /// Requests whose replies were not taken yet, the oldest first.
    requests: VecDeque<Outstanding>,
    /// Id of the oldest of them.
    first_id: u32,
    message: Vec<u8>,
    costs: Costs,
}

/// One shard.
struct Lane {
    incoming: Box<dyn Receiving>,
    outgoing: Box<dyn Sending>,
    /// Wakes the shard; none where messages are only polled for.
    bell: Option<Bell>,
    outstanding: usize,
}

struct Outstanding {
    lane: usize,
    reply: Option<Vec<u8>>,
}

/// How replies are waited for.
struct Wait {
    wake: Wake,
    naps: bool,
    bell: ThreadBell,
    socket: UnixStream,
}

/// Connects to the bench's server at `socket`.
pub fn open(socket: &Path, form: Form, wake: Wake) -> anyhow::Result<VariantTarget> {
    let connected = shm::connect(socket).context("connecting to the bench's own server")?;
    let bell = connected.thread_bell(0);
    connected.socket.set_nonblocking(true)?;
    let polls = form.messages == Messages::Indicator;
    if polls {
        nap::prepare();
    }
    let lanes = connected
        .bells
        .into_iter()
        .enumerate()
        .map(|(shard, bell)| {
            let (to_server, to_client) = (&connected.to_server, &connected.to_client);
            let seed = connected.hello.session_seed.get();
            let side = Side::of_client(to_server.clone(), to_client.clone(), shard, seed);
            let (incoming, outgoing) = ends(form.messages, &side, form.message_bytes);
            Lane { incoming, outgoing, bell: (!polls).then_some(bell), outstanding: 0 }
        })
        .collect();
    Ok(VariantTarget {
        lanes,
        slots: Box::new(connected.hello.slot_table().context("looked at when it connected")?),
        wait: Wait {
            wake: if polls { Wake::Poll } else { wake },
            naps: polls,
            bell,
            socket: connected.socket,
        },
        requests: VecDeque::new(),
        first_id: 0,
        message: Vec::new(),
        costs: Costs::default(),
    })
}

impl Wait {
    /// Waits until `take` has taken a message of the lane.
    fn wait(&mut self, incoming: &mut dyn Receiving, into: &mut Vec<u8>) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut looked = Duration::ZERO;
        // Bounded by the timeout.
        loop {
            for _ in 0..if self.wake == Wake::Event { 1 } else { POLLS_PER_CLOCK } {
                if incoming.take(into)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let waited = began.elapsed();
            ensure!(waited < TIMEOUT, "no reply from the server in {TIMEOUT:?}");
            if waited - looked > INCARNATION_LOOK {
                looked = waited;
                self.look_after_server()?;
            }
            match self.wake {
                Wake::Poll => {
                    // The server may have no core of its own.
                    if self.naps {
                        nap::nap();
                    } else if waited > HYBRID_SPIN {
                        std::thread::yield_now();
                    }
                }
                Wake::Hybrid if waited < HYBRID_SPIN => {}
                Wake::Hybrid | Wake::Event => {
                    self.bell.sleep(TIMEOUT - waited, || incoming.has_message());
                    self.look_after_server()?;
                }
            }
        }
    }

    /// Whether the server still holds its end of the socket.
    fn look_after_server(&self) -> anyhow::Result<()> {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.socket, &mut [0u8; 1][..], flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            _ => bail!("the server has ended the connection"),
        }
    }
}

impl VariantTarget {
    /// Waits for one reply of a shard and keeps it with its request.
    fn collect(&mut self, lane: usize) -> anyhow::Result<()> {
        let end = &mut self.lanes[lane];
        self.wait.wait(&mut *end.incoming, &mut self.message)?;
        end.incoming.release()?;
        end.outstanding -= 1;
        self.costs.bytes += end.outgoing.wire_bytes(self.message.len()) as u64;
        let (header, _) = ReplyHeader::ref_from_prefix(&self.message)
            .map_err(|_| Broken("a reply without a header"))?;
        let at = header.id.get().wrapping_sub(self.first_id) as usize;
        match self.requests.get_mut(at) {
            Some(Outstanding { lane: asked, reply: reply @ None }) if *asked == lane => {
                *reply = Some(std::mem::take(&mut self.message));
                Ok(())
            }
            _ => bail!(Broken("a reply to nothing")),
        }
    }

    /// Sends one request, once there is room for it and for its reply.
    fn put(&mut self, command: &Command<'_>, key: &[u8]) -> anyhow::Result<()> {
        let lane = self.slots.shard_of(key);
        let most = self.lanes[lane].outgoing.most_outstanding();
        while self.lanes[lane].outstanding >= most {
            self.collect(lane)?;
        }
        let id = self.first_id.wrapping_add(self.requests.len() as u32);
        let mut scratch = Vec::new();
        let (header, key, value) = command.encode(id, &mut scratch);
        let parts = [header.as_bytes(), key, value];
        while !self.lanes[lane].outgoing.try_send(&parts)? {
            // A request that was taken makes room; its reply shows that it was taken.
            ensure!(self.lanes[lane].outstanding > 0, "an empty buffer has no room");
            self.collect(lane)?;
        }
        let end = &mut self.lanes[lane];
        if let Some(bell) = &end.bell {
            bell.ring();
        }
        end.outstanding += 1;
        self.requests.push_back(Outstanding { lane, reply: None });
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.costs.bytes += end.outgoing.wire_bytes(bytes) as u64;
        self.costs.asked += 1;
        self.costs.round_trips += 1;
        Ok(())
    }

    /// Waits for the reply to the oldest request.
    fn oldest(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        let reply = loop {
            let oldest = self.requests.front_mut().context("a request is left without a reply")?;
            if let Some(reply) = oldest.reply.take() {
                break reply;
            }
            let lane = oldest.lane;
            self.collect(lane)?;
        };
        self.requests.pop_front();
        self.first_id = self.first_id.wrapping_add(1);
        let (header, value) = ReplyHeader::read_from_prefix(&reply)
            .map_err(|_| Broken("a reply without a header"))?;
        ensure!(header.value_bytes.get() as usize == value.len(), "a reply of another length");
        match Status::from_number(header.status) {
            Some(Status::Ok) if is_get => see(Some(value)),
            Some(Status::NotFound) if is_get => see(None),
            Some(Status::Ok) => {}
            other => bail!("the server says: {other:?}"),
        }
        // Its memory serves the next message.
        self.message = reply;
        Ok(())
    }
}

impl Target for VariantTarget {
    const IS_SHORT: bool = true;

    #[inline]
    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        self.send(Request::Get(key))?;
        self.oldest(true, see)
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.send(Request::Set(key, value))?;
        self.oldest(false, |_| {})
    }

    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()> {
        for key in keys {
            self.send(Request::Get(key))?;
        }
        for position in 0..keys.len() {
            self.oldest(true, |value| see(position, value))?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, request: Request<'_>) -> anyhow::Result<()> {
        let (key, command) = match request {
            Request::Get(key) => (key, Command::Get { key }),
            Request::Set(key, value) => {
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                (key, Command::Set { key, value, condition, expiry, get: false })
            }
        };
        self.put(&command, key)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    #[inline]
    fn receive(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        self.oldest(is_get, see)
    }

    /// Half of them, as a session does.
    fn kept_outstanding(depth: usize) -> usize {
        depth / 2
    }

    fn costs(&self) -> Costs {
        self.costs
    }
}
