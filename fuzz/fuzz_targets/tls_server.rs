//! Any bytes as what a client of TLS sends, in pieces: the handshake ends with an error, or waits for more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_testing::Authority;
use remora_tls::{Progress, ServerTls, ServerTlsSettings};
use std::io::{ErrorKind, Read, Result, Write};
use std::sync::OnceLock;

fn server() -> &'static ServerTls {
    static SERVER: OnceLock<ServerTls> = OnceLock::new();
    SERVER.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("remora-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let identity = Authority::new(&directory, "fuzz").certify("server");
        let settings = ServerTlsSettings::new(identity.certificate, identity.key);
        ServerTls::load(settings).unwrap()
    })
}

/// A socket that gives these bytes, so many at a time; every other read finds it empty.
struct Socket<'d> {
    left: &'d [u8],
    piece: usize,
    is_empty: bool,
}

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let some = self.left.len().min(into.len()).min(self.piece);
        self.is_empty = !self.is_empty;
        if some == 0 || self.is_empty {
            return Err(ErrorKind::WouldBlock.into());
        }
        let (now, left) = self.left.split_at(some);
        into[..some].copy_from_slice(now);
        self.left = left;
        Ok(some)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, left)) = data.split_first() else { return };
    let mut socket = Socket { left, piece: usize::from(piece) * 16 + 1, is_empty: false };
    let mut session = server().begin().unwrap();
    for _ in 0..=2 * left.len() {
        match session.handshake(&mut socket) {
            Ok(Progress::Done) => panic!("nobody has its key"),
            Ok(_) if socket.left.is_empty() => return,
            Ok(_) => {}
            Err(_) => return,
        }
    }
});
