//! One reliable connection (RC): a queue of operations to a peer's memory.

use super::completions::Completions;
use super::errors::{VerbsError, checked};
use super::library::may_release;
use super::objects::Domain;
use super::packets::Packets;
use super::places::{Carriage, Gid};
use super::registration::Registration;
use super::window::Window;
use remora_layout::limits::MAX_READS_PER_CLIENT;
use remora_layout::verbs::VerbsEnd;
use remora_verbs_sys::*;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operations that may be in flight. The queue takes no more; the connection holds the others back.
const SEND_DEPTH: u32 = 256;
/// Immediates that may have come and not been taken.
const RECEIVE_DEPTH: u32 = 1024;
/// WRITEs up to this length go along with their request, if the device can.
const INLINE_BYTES: u32 = 128;
/// READs that may be under way on the wire.
const READ_DEPTH: i32 = MAX_READS_PER_CLIENT as i32;
/// A packet is sent again after 4.096 us * 2^14 = 67 ms without an answer: so a READ that was lost
/// once completes before the read lease has lapsed, which lasts 180 ms
/// (docs/decisions/0020-lost-packets.md has the measurements) ...
const TIMEOUT: u8 = 14;
/// ... and given up after as many tries. Seven would mean for ever on some
/// devices.
const RETRIES: u8 = 6;
/// A peer that has no room for another immediate is asked again as often ...
const ROOM_RETRIES: u8 = 6;
/// ... every 491.52 ms: a process may stand still for 3 s (IBTA 9.7.5.2.8).
const ROOM_TIMER: u8 = 31;

/// The number of a receive request, which is no operation.
pub(super) const RECEIVE: u64 = 0;
/// The same: the binding of a window.
pub(super) const BIND: u64 = u64::MAX;

/// The effect of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Fetches.
    Read,
    /// Stores, and tells the peer this if there is something to tell.
    Write(Option<u32>),
}

/// One operation on registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub verb: Verb,
    /// Address and key of this end.
    pub local: (u64, u32),
    /// Address and key at the peer.
    pub remote: (u64, u32),
    /// How many bytes.
    pub bytes: u32,
    /// Whether it gives a completion. One that fails always does.
    pub is_signalled: bool,
}

/// A queue pair with its completions.
pub struct QueuePair {
    domain: Arc<Domain>,
    /// Of both its queues.
    pub completions: Arc<Completions>,
    raw: NonNull<ibv_qp>,
    inline_bytes: u32,
    send_depth: u32,
    receive_depth: u32,
}

// SAFETY: libibverbs is safe for threads.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A fresh one, not connected.
    pub fn new(domain: &Arc<Domain>) -> Result<Self, VerbsError> {
        let library = domain.context.library;
        let limits = &domain.context.limits;
        let depth = |wanted: u32| wanted.min(limits.max_qp_wr.max(1) as u32);
        let (send, receive) = (depth(SEND_DEPTH), depth(RECEIVE_DEPTH));
        let completions = Completions::new(Arc::clone(&domain.context), send + receive + 1)?;
        // SAFETY: plain data, valid as zeros.
        let mut wanted: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        wanted.send_cq = completions.raw();
        wanted.recv_cq = completions.raw();
        wanted.qp_type = IBV_QPT_RC;
        let mut raw = None;
        // A device that cannot take small WRITEs along says so by refusing.
        for inline in [INLINE_BYTES, 0] {
            wanted.cap = ibv_qp_cap {
                max_send_wr: send,
                max_recv_wr: receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
            };
            // SAFETY: a live domain, and queues of the same device.
            raw = NonNull::new(unsafe { library.ibv_create_qp(domain.raw.as_ptr(), &mut wanted) });
            if raw.is_some() {
                break;
            }
        }
        let raw = raw.ok_or_else(|| VerbsError::Failed {
            step: "make a queue pair",
            why: std::io::Error::last_os_error(),
        })?;
        let inline_bytes = wanted.cap.max_inline_data.min(INLINE_BYTES);
        let domain = Arc::clone(domain);
        let (send_depth, receive_depth) = (send, receive);
        Ok(Self { domain, completions, raw, inline_bytes, send_depth, receive_depth })
    }

    /// The library's object, for what this type does not do. It lives as long.
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// The peer needs this description of the local end.
    pub fn end(&self, place: &Gid, psn: u32) -> Result<VerbsEnd, VerbsError> {
        let context = &self.domain.context;
        let reads = context.limits.max_qp_rd_atom.clamp(1, READ_DEPTH) as u8;
        Ok(VerbsEnd {
            gid: place.gid,
            qp_number: self.number().into(),
            psn: (psn & 0xff_ffff).into(),
            lid: context.lid(place.port)?.into(),
            mtu: context.active_mtu(place.port)? as u8,
            read_depth: reads,
        })
    }

    /// Connects to the peer's end: from now on the peer may do all that its keys allow.
    pub(super) fn connect(
        &self,
        place: &Gid,
        packets: &Packets,
        own: &VerbsEnd,
        peer: &VerbsEnd,
    ) -> Result<(), VerbsError> {
        // SAFETY: plain data, valid as zeros.
        let mut init: ibv_qp_attr = unsafe { std::mem::zeroed() };
        init.qp_state = IBV_QPS_INIT;
        init.port_num = place.port;
        init.pkey_index = packets.pkey_index;
        init.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        self.modify(
            "set up a queue pair",
            &mut init,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        )?;
        for _ in 0..self.receive_depth {
            self.expect_immediate()?;
        }
        let (mut receive, mask) = receiving(place, packets, own, peer);
        self.modify("reach the peer's queue pair", &mut receive, mask)?;
        // SAFETY: plain data, valid as zeros.
        let mut send: ibv_qp_attr = unsafe { std::mem::zeroed() };
        send.qp_state = IBV_QPS_RTS;
        send.timeout = TIMEOUT;
        send.retry_cnt = RETRIES;
        send.rnr_retry = ROOM_RETRIES;
        send.sq_psn = own.psn.get();
        let initiates = self.domain.context.limits.max_qp_init_rd_atom.clamp(1, READ_DEPTH);
        send.max_rd_atomic = peer.read_depth.clamp(1, initiates as u8);
        self.modify(
            "make a queue pair ready",
            &mut send,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// No further operation is executed or sent; those in flight fail.
    fn break_off(&self) {
        // SAFETY: plain data, valid as zeros.
        let mut error: ibv_qp_attr = unsafe { std::mem::zeroed() };
        error.qp_state = IBV_QPS_ERR;
        // It fails only where the queue pair is already in that state.
        let _ = self.modify("end a queue pair", &mut error, IBV_QP_STATE);
    }

    fn modify(
        &self,
        step: &'static str,
        attributes: &mut ibv_qp_attr,
        mask: u32,
    ) -> Result<(), VerbsError> {
        let library = self.domain.context.library;
        // SAFETY: a live queue pair, and attributes as the mask says.
        let code = unsafe { library.ibv_modify_qp(self.raw.as_ptr(), attributes, mask as i32) };
        checked(step, code)
    }

    /// Completions that there may be at a time.
    pub(super) fn entries(&self) -> u32 {
        self.send_depth + self.receive_depth + 1
    }

    /// Operations that may be under way.
    pub fn send_depth(&self) -> u32 {
        self.send_depth
    }

    /// Makes room for one more immediate.
    pub fn expect_immediate(&self) -> Result<(), VerbsError> {
        let mut request = ibv_recv_wr {
            wr_id: RECEIVE,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; the request names no memory and is copied.
        let code = unsafe {
            let post = (*(*self.raw.as_ptr()).context).ops.post_recv.expect("providers receive");
            post(self.raw.as_ptr(), &mut request, &mut bad)
        };
        checked("make room for an immediate", code)
    }

    /// The next completion, looked for without sleeping; `None` if there is
    /// none for so long.
    pub fn next_completion(&self, timeout: Duration) -> Option<ibv_wc> {
        let began = Instant::now();
        // SAFETY: plain data, valid as zeros.
        let mut taken: [ibv_wc; 1] = unsafe { std::mem::zeroed() };
        while self.completions.poll(&mut taken) == 0 {
            if began.elapsed() > timeout {
                return None;
            }
            std::thread::yield_now();
        }
        Some(taken[0])
    }

    /// Posts operations with one doorbell, all or those before the first that the queue has no room
    /// for; returns their number.
    ///
    /// # Safety
    /// The local memory stays registered and allocated until the operation has completed, or the
    /// queue pair is gone; the caller does not look at the target memory of a READ before.
    pub unsafe fn post(&self, requests: &[Request]) -> usize {
        let mut places: Vec<ibv_sge> = requests
            .iter()
            .map(|request| ibv_sge {
                addr: request.local.0,
                length: request.bytes,
                lkey: request.local.1,
            })
            .collect();
        let mut posts: Vec<ibv_send_wr> = Vec::with_capacity(requests.len());
        for (request, place) in requests.iter().zip(&mut places) {
            // SAFETY: plain data, valid as zeros.
            let mut post: ibv_send_wr = unsafe { std::mem::zeroed() };
            post.wr_id = request.id;
            post.sg_list = place;
            post.num_sge = (request.bytes > 0) as i32;
            post.wr.rdma.remote_addr = request.remote.0;
            post.wr.rdma.rkey = request.remote.1;
            post.send_flags = if request.is_signalled { IBV_SEND_SIGNALED } else { 0 };
            post.opcode = match request.verb {
                Verb::Read => IBV_WR_RDMA_READ,
                Verb::Write(None) => IBV_WR_RDMA_WRITE,
                Verb::Write(Some(_)) => IBV_WR_RDMA_WRITE_WITH_IMM,
            };
            if let Verb::Write(imm) = request.verb {
                if request.bytes <= self.inline_bytes {
                    post.send_flags |= IBV_SEND_INLINE;
                }
                if let Some(imm) = imm {
                    post.send_flags |= IBV_SEND_SOLICITED;
                    post.__bindgen_anon_1.imm_data = imm.to_be();
                }
            }
            posts.push(post);
        }
        for at in 1..posts.len() {
            let next = ptr::from_mut(&mut posts[at]);
            posts[at - 1].next = next;
        }
        let Some(first) = posts.first_mut().map(ptr::from_mut) else { return 0 };
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: a live queue pair; the chain is well formed and copied; the
        // memory that it names is the caller's promise.
        let code = unsafe {
            let post = (*(*self.raw.as_ptr()).context).ops.post_send.expect("providers send");
            post(self.raw.as_ptr(), first, &mut bad)
        };
        if code == 0 {
            return posts.len();
        }
        posts.iter().position(|post| ptr::eq(post, bad)).unwrap_or(0)
    }

    /// Binds a window to memory: this queue pair's peer, and no other, may
    /// WRITE there. The completion has the number [`BIND`].
    pub(super) fn bind(&self, window: &Window, memory: &Registration) -> Result<(), VerbsError> {
        // SAFETY: plain data, valid as zeros.
        let mut post: ibv_send_wr = unsafe { std::mem::zeroed() };
        post.wr_id = BIND;
        post.opcode = IBV_WR_BIND_MW;
        post.send_flags = IBV_SEND_SIGNALED;
        post.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: window.raw.as_ptr(),
            rkey: window.rkey,
            bind_info: ibv_mw_bind_info {
                mr: memory.raw(),
                addr: memory.address(),
                length: memory.bytes() as u64,
                mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
            },
        };
        let mut bad = ptr::null_mut();
        // SAFETY: live objects of one domain; the request is copied.
        let code = unsafe {
            let send = (*(*self.raw.as_ptr()).context).ops.post_send.expect("providers send");
            send(self.raw.as_ptr(), &mut post, &mut bad)
        };
        checked("bind a memory window", code)
    }
}

/// What the device has to know before the peer's operations come, and which attributes these are.
fn receiving(
    place: &Gid,
    packets: &Packets,
    own: &VerbsEnd,
    peer: &VerbsEnd,
) -> (ibv_qp_attr, u32) {
    // SAFETY: plain data, valid as zeros.
    let mut receive: ibv_qp_attr = unsafe { std::mem::zeroed() };
    receive.qp_state = IBV_QPS_RTR;
    receive.path_mtu = u32::from(own.mtu.min(peer.mtu).clamp(1, 5));
    receive.dest_qp_num = peer.qp_number.get();
    receive.rq_psn = peer.psn.get();
    receive.max_dest_rd_atomic = own.read_depth;
    receive.min_rnr_timer = ROOM_TIMER;
    receive.ah_attr.port_num = place.port;
    receive.ah_attr.dlid = peer.lid.get();
    receive.ah_attr.sl = packets.service_level;
    receive.ah_attr.is_global = (place.carriage != Carriage::InfiniBand) as u8;
    receive.ah_attr.grh.dgid = ibv_gid { raw: peer.gid };
    receive.ah_attr.grh.sgid_index = place.gid_index;
    receive.ah_attr.grh.hop_limit = 64;
    receive.ah_attr.grh.traffic_class = packets.traffic_class;
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    (receive, mask)
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !may_release() {
            return;
        }
        let (context, number) = (&self.domain.context, self.number());
        // SAFETY: made once. When this returns the device executes no further operation for it, and
        // no thread handles an event of it.
        let code = unsafe { context.library.ibv_destroy_qp(self.raw.as_ptr()) };
        context.forget(number);
        if let Err(error) = checked("give a queue pair back", code) {
            // It still is one.
            self.break_off();
            tracing::warn!(%error, "a queue pair stays in use");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::serving_at_most;
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn the_device_serves_a_client_as_many_reads_as_the_settings_say() {
        let place = Gid {
            device: "rxe0".into(),
            port: 1,
            gid_index: 1,
            gid: [1; 16],
            carriage: Carriage::RoceV2,
            netdev: None,
            is_active: true,
        };
        // The device could serve eight. The client asks for more by its own end.
        let device = VerbsEnd { read_depth: 8, ..VerbsEnd::new_zeroed() };
        let client = VerbsEnd { read_depth: u8::MAX, ..VerbsEnd::new_zeroed() };
        for (reads, served) in [(1, 1), (3, 3), (8, 8), (MAX_READS_PER_CLIENT, 8)] {
            let own = serving_at_most(device, reads);
            let (receive, mask) = receiving(&place, &Packets::default(), &own, &client);
            assert_eq!(receive.max_dest_rd_atomic, served);
            assert_ne!(mask & IBV_QP_MAX_DEST_RD_ATOMIC, 0, "the device takes the number");
        }
    }
}
