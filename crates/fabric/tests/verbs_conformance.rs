//! The conformance body between two real RDMA devices, or over one device's
//! loopback. They need a device: the virtual machine of `make rxe` runs them
//! (feature `rxe`), with `REMORA_RDMA_DEVICES=TARGET,INITIATOR`.

use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{self, EchoBed, TestBed};
use remora_fabric::verbs::{
    Connection, Parts, PeerRegion, Registration, Unconnected, VerbsLink, access, bind_window,
    key_of, open,
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

struct Bed {
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

impl TestBed for Bed {
    type Link = VerbsLink;

    fn new(region_bytes: usize) -> Self {
        let devices = std::env::var("REMORA_RDMA_DEVICES").unwrap_or_default();
        let (far_device, near_device) = devices.split_once(',').unzip();
        let (near_control, far_control) = control();
        let (far_domain, far_place) = open(None, far_device).unwrap();
        let (near_domain, near_place) = open(None, near_device).unwrap();
        let [readable, mailbox] = [(); 2].map(|()| Words::new(Mapping::heap(region_bytes)));
        let local = Words::new(Mapping::heap(4096));
        let readable_memory = Registration::of(&far_domain, &readable, access::READ).unwrap();
        let mailbox_memory = Registration::of(&far_domain, &mailbox, access::BY_WINDOW).unwrap();
        let local_memory = Registration::of(&near_domain, &local, access::WRITE).unwrap();
        let far = Unconnected::new(&far_domain, &far_place).unwrap();
        let near = Unconnected::new(&near_domain, &near_place).unwrap();
        let (far_end, near_end) = (far.end(), near.end());
        let (far, near) = (far.connect(&near_end).unwrap(), near.connect(&far_end).unwrap());
        let window = bind_window(&far_domain, &far, &mailbox_memory).unwrap();
        let region = |memory: &Registration, rkey, is_mailbox| PeerRegion {
            key: key_of(memory, rkey),
            is_mailbox,
        };
        let exposed = vec![
            region(&readable_memory, readable_memory.rkey(), false),
            region(&mailbox_memory, window.rkey, true),
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
            peer: vec![region(&local_memory, local_memory.rkey(), true)],
            shards: 1,
            exposed: vec![readable_memory, mailbox_memory],
            windows: vec![window],
            on_immediate: Box::new(on_immediate),
        })
        .unwrap();
        let connection = Connection::new(Parts {
            pair: near,
            domain: near_domain,
            control: near_control,
            peer: exposed,
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

impl EchoBed for Bed {
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

impl Drop for Bed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.target.close();
        let agent = self.agent.take().unwrap();
        assert!(agent.join().is_ok() || std::thread::panicking(), "the agent panicked");
    }
}

#[test]
fn verbs_conform() {
    conformance::run::<Bed>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Bed>(500), 0);
}
