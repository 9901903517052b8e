//! The conformance body on shared memory: two mappings of the same sealed
//! memfds, as two processes have them.

use remora_arena::{AsleepWord, Mapping, ReadView, Region, RegionKind, Words};
use remora_fabric::conformance::{self, EchoFixture, TestFixture};
use remora_fabric::shm::{Bell, ShmLink, Sleeper, Woken};
use remora_fabric::{Link, LinkError, RemoteAddress, Work};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Immediates of the conformance body.
const IMMEDIATES: u32 = 100;

struct Fixture {
    readable: Region,
    mailbox: Region,
    control: Region,
    link: ShmLink,
    /// Each immediate's eventfd.
    eventfds: Vec<Arc<OwnedFd>>,
    /// Word `i` says that the receiver of immediate `i` sleeps.
    asleep: Words,
    local: Words,
    echo: Option<JoinHandle<u64>>,
}

impl TestFixture for Fixture {
    type Link = ShmLink;

    fn new(region_bytes: usize) -> Self {
        let readable = Region::create("readable", RegionKind::Readable, region_bytes).unwrap();
        let mailbox = Region::create("mailbox", RegionKind::Mailbox, region_bytes).unwrap();
        let control = Region::create("control", RegionKind::Readable, 4096).unwrap();
        let view = |region: &Region, bytes| ReadView::of_peer(region.fd(), bytes).unwrap();
        let mut link = ShmLink::new(Some((view(&control, 4096), 3)));
        link.add_readable(0, view(&readable, region_bytes));
        let mapped = Mapping::of_peer(mailbox.fd(), region_bytes).unwrap();
        link.add_writable(1, Words::new(mapped));
        link.reserve_landing(region_bytes);
        // Receivers that always sleep: every immediate is a signal.
        let asleep = Words::new(Mapping::heap(IMMEDIATES as usize * 8));
        let mut eventfds = Vec::new();
        for imm in 0..IMMEDIATES {
            let eventfd = Bell::eventfd().unwrap();
            asleep.store(imm as usize, 1);
            link.add_bell(imm, Bell::new(asleep.view(), imm as usize, Arc::clone(&eventfd)));
            eventfds.push(eventfd);
        }
        let local = Words::new(Mapping::heap(4096));
        Self { readable, mailbox, control, link, eventfds, asleep, local, echo: None }
    }

    fn link(&mut self) -> &mut ShmLink {
        &mut self.link
    }

    fn readable(&self) -> u32 {
        0
    }

    fn mailbox(&self) -> u32 {
        1
    }

    fn target_store(&mut self, offset: usize, bytes: &[u8]) {
        self.readable.words().copy_in(offset, bytes);
    }

    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.mailbox.words().copy_out(offset, &mut content);
        content
    }

    fn withdraw(&mut self) {
        self.control.words().store_release(3, 1);
    }

    fn lose(&mut self) -> LinkError {
        // A server that dies is noticed by its socket, not by the link. A server that ends sends a
        // message.
        self.withdraw();
        LinkError::Withdrawn
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        let mut told = Vec::new();
        for (imm, eventfd) in (0u32..).zip(&self.eventfds) {
            let mut count = [0; 8];
            if rustix::io::read(&**eventfd, &mut count).is_ok() {
                let word = self.mailbox.words().load_acquire(imm as usize);
                told.extend((0..u64::from_ne_bytes(count)).map(|_| (imm, word)));
            }
        }
        told
    }
}

impl EchoFixture for Fixture {
    fn start_echo(&mut self, rounds: u64) {
        const ECHO: usize = 1;
        let back_fd = Bell::eventfd().unwrap();
        // Kept here: closing it would discard a signal that is due.
        self.eventfds.push(Arc::clone(&back_fd));
        let heard = Sleeper::new(AsleepWord::new(self.local.clone(), 1)).unwrap();
        heard.watch(back_fd.as_fd(), 0).unwrap();
        let (local, mut seen) = (self.local.clone(), 0);
        self.link.listen(heard, move || {
            let word = local.load_acquire(0);
            let new = word != seen;
            seen = word;
            new
        });
        let mut sleeper = Sleeper::new(AsleepWord::new(self.asleep.clone(), ECHO)).unwrap();
        sleeper.watch(self.eventfds[ECHO].as_fd(), 0).unwrap();
        self.asleep.store(ECHO, 0);
        let (mailbox, local) = (self.mailbox.words(), self.local.clone());
        self.echo = Some(std::thread::spawn(move || {
            let mut back = ShmLink::new(None);
            back.add_writable(0, local.clone());
            back.add_bell(0, Bell::new(local.view(), 1, back_fd));
            let mut lost = 0;
            for round in 1..=rounds {
                let scan = || mailbox.load_acquire(0) >= round;
                while !scan() {
                    let woken = sleeper.sleep(Some(conformance::DEADLINE), scan);
                    lost += (woken == Woken::TimedOut && scan()) as u64;
                }
                let (bytes, to) = (round.to_le_bytes(), RemoteAddress { region: 0, offset: 0 });
                back.post(&[Work::Write { id: round, to, bytes: &bytes, imm: Some(0) }]);
                assert!(back.poll().unwrap().result.is_ok());
            }
            lost
        }));
    }

    fn echoed(&self) -> u64 {
        self.local.load_acquire(0)
    }

    fn stop_echo(&mut self) -> u64 {
        self.echo.take().unwrap().join().unwrap()
    }
}

#[test]
fn shm_conforms() {
    conformance::run::<Fixture>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Fixture>(5000), 0);
}

#[test]
fn an_immediate_without_a_bell_fails_the_link() {
    let mut fixture = Fixture::new(4096);
    let to = RemoteAddress { region: 1, offset: 0 };
    let imm = Some(IMMEDIATES);
    fixture.link.post(&[Work::Write { id: 1, to, bytes: &[1], imm }]);
    assert_eq!(fixture.link.poll().unwrap().result, Err(LinkError::NoSuchImmediate(IMMEDIATES)));
}
