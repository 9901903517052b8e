//! The conformance body on shared memory: two mappings of the same sealed
//! memfds, as two processes have them.

use remora_arena::{Mapping, Region, RegionKind, Words};
use remora_fabric::Link;
use remora_fabric::conformance::{self, TestBed};
use remora_fabric::shm::ShmLink;

struct Bed {
    readable: Region,
    mailbox: Region,
    control: Region,
    link: ShmLink,
}

impl TestBed for Bed {
    type Link = ShmLink;

    fn new(region_bytes: usize) -> Self {
        let readable = Region::create("readable", RegionKind::Readable, region_bytes).unwrap();
        let mailbox = Region::create("mailbox", RegionKind::Mailbox, region_bytes).unwrap();
        let control = Region::create("control", RegionKind::Readable, 4096).unwrap();
        let view = |region: &Region, kind, bytes| {
            Words::new(Mapping::of_peer(region.fd(), kind, bytes).unwrap())
        };
        let mut link = ShmLink::new(Some((view(&control, RegionKind::Readable, 4096), 3)));
        link.add_region(0, view(&readable, RegionKind::Readable, region_bytes), false);
        link.add_region(1, view(&mailbox, RegionKind::Mailbox, region_bytes), true);
        link.reserve_landing(region_bytes);
        Self { readable, mailbox, control, link }
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
}

#[test]
fn shm_conforms() {
    conformance::run::<Bed>();
}
