//! The conformance body between two real RDMA devices, or over one device's
//! loopback. They need a device: the virtual machine of `make rxe` runs them
//! (feature `rxe`), with `REMORA_TEST_DEVICES=TARGET,INITIATOR`.

use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{self, EchoBed, TestBed};
use remora_fabric::verbs::{
    Connection, Parts, PeerArena, PeerRegion, Registration, Unconnected, VerbsLink, access,
    bind_window, key_of, open,
};
use remora_fabric::{Link, LinkError, RemoteAddress, Work};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Region of the initiator that the target writes.
const LOCAL: u32 = 0;

fn control() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    echo: AtomicBool,
    told: Mutex<Vec<(u32, u64)>>,
}

/// What is READ is registered in so many pieces.
struct Bed<const PIECES: usize> {
    readable: Words,
    mailbox: Words,
    local: Words,
    link: VerbsLink,
    target: Arc<Connection>,
    shared: Arc<Shared>,
    agent: Option<JoinHandle<()>>,
}

/// The agent: sleeps until an immediate comes, and answers it if it is to.
fn agent_turn(target: &Connection, shared: &Shared, back: &mut VerbsLink) {
    target.arm(false);
    if shared.echo.load(Ordering::Relaxed) {
        let told = std::mem::take(&mut *shared.told.lock().unwrap());
        for (_, word) in told {
            let to = RemoteAddress { region: LOCAL, offset: 0 };
            let bytes = word.to_le_bytes();
            back.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: Some(0) }]);
        }
        while back.poll().is_some() {}
    }
    let nap = Duration::from_millis(20).try_into().unwrap();
    let _ = poll(&mut [PollFd::new(target, PollFlags::IN)], Some(&nap));
}

impl<const PIECES: usize> TestBed for Bed<PIECES> {
    type Link = VerbsLink;

    fn new(region_bytes: usize) -> Self {
        let devices = std::env::var("REMORA_TEST_DEVICES").unwrap_or_default();
        let mut devices = devices.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        let [far_device, near_device] = [(); 2].map(|()| Vec::from_iter(devices.next()));
        let (near_control, far_control) = control();
        let (far_domain, far_place) = open(None, &far_device).unwrap();
        let (near_domain, near_place) = open(None, &near_device).unwrap();
        let [readable, mailbox] = [(); 2].map(|()| Words::new(Mapping::heap(region_bytes)));
        let local = Words::new(Mapping::heap(4096));
        // Where they meet is no page's end, unless there is only one.
        let piece_bytes = region_bytes.div_ceil(PIECES).next_multiple_of(8);
        let pieces: Vec<Registration> = (0..region_bytes)
            .step_by(piece_bytes)
            .map(|at| at..region_bytes.min(at + piece_bytes))
            .map(|part| Registration::readable(&far_domain, &readable.view(), part).unwrap())
            .collect();
        assert_eq!(pieces.len(), PIECES);
        let arena = PeerArena {
            address: pieces[0].address(),
            bytes: region_bytes as u64,
            piece_bytes: piece_bytes as u64,
            rkeys: pieces.iter().map(Registration::rkey).collect(),
        };
        let mailbox_memory = Registration::of(&far_domain, &mailbox, access::BY_WINDOW).unwrap();
        let local_memory = Registration::of(&near_domain, &local, access::WRITE).unwrap();
        let far = Unconnected::new(&far_domain, &far_place).unwrap();
        let near = Unconnected::new(&near_domain, &near_place).unwrap();
        let (far_end, near_end) = (far.end(), near.end());
        let (far, near) = (far.connect(&near_end).unwrap(), near.connect(&far_end).unwrap());
        let window = bind_window(&far_domain, &far, &mailbox_memory).unwrap();
        let peer = vec![
            PeerRegion::Arena(arena),
            PeerRegion::Mailbox(key_of(&mailbox_memory, window.rkey)),
        ];
        let shared = Arc::new(Shared::default());
        let on_immediate = {
            let (shared, mailbox) = (Arc::clone(&shared), mailbox.clone());
            move |imm: u32| {
                let is_echo = shared.echo.load(Ordering::Relaxed);
                let word = mailbox.load_acquire(if is_echo { 0 } else { imm as usize });
                shared.told.lock().unwrap().push((imm, word));
            }
        };
        let target = Connection::new(Parts {
            pair: far,
            domain: far_domain,
            control: far_control,
            peer: vec![PeerRegion::Mailbox(key_of(&local_memory, local_memory.rkey()))],
            shards: 1,
            exposed: pieces.into_iter().chain([mailbox_memory]).collect(),
            windows: vec![window],
            on_immediate: Box::new(on_immediate),
        })
        .unwrap();
        let connection = Connection::new(Parts {
            pair: near,
            domain: near_domain,
            control: near_control,
            peer,
            shards: 100,
            exposed: vec![local_memory],
            windows: Vec::new(),
            on_immediate: Box::new(|_| {}),
        })
        .unwrap();
        let mut link = VerbsLink::new(connection);
        link.reserve_landing(region_bytes);
        let agent = std::thread::spawn({
            let (target, shared) = (Arc::clone(&target), Arc::clone(&shared));
            move || {
                let mut back = VerbsLink::new(Arc::clone(&target));
                while !shared.stop.load(Ordering::Acquire) {
                    agent_turn(&target, &shared, &mut back);
                }
            }
        });
        Self { readable, mailbox, local, link, target, shared, agent: Some(agent) }
    }

    fn link(&mut self) -> &mut VerbsLink {
        &mut self.link
    }

    fn readable(&self) -> u32 {
        0
    }

    fn mailbox(&self) -> u32 {
        1
    }

    fn target_store(&mut self, offset: usize, bytes: &[u8]) {
        self.readable.copy_in(offset, bytes);
    }

    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.mailbox.copy_out(offset, &mut content);
        content
    }

    fn withdraw(&mut self) {
        self.target.withdraw();
    }

    fn lose(&mut self) -> LinkError {
        self.target.close();
        LinkError::Disconnected
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        // A WRITE is complete once its bytes and its immediate are delivered;
        // the target's thread takes the immediate a moment later.
        self.target.pump();
        std::mem::take(&mut self.shared.told.lock().unwrap())
    }
}

impl<const PIECES: usize> EchoBed for Bed<PIECES> {
    fn start_echo(&mut self, _rounds: u64) {
        self.shared.echo.store(true, Ordering::Relaxed);
    }

    fn echoed(&self) -> u64 {
        self.local.load_acquire(0)
    }

    fn stop_echo(&mut self) -> u64 {
        0
    }
}

impl<const PIECES: usize> Drop for Bed<PIECES> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.target.close();
        let agent = self.agent.take().unwrap();
        assert!(agent.join().is_ok() || std::thread::panicking(), "the agent panicked");
    }
}

#[test]
fn verbs_conform() {
    conformance::run::<Bed<1>>();
}

#[test]
fn verbs_conform_in_pieces() {
    conformance::run::<Bed<21>>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Bed<1>>(500), 0);
}
