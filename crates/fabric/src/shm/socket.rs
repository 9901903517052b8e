//! Messages with file descriptors over a Unix socket (SCM_RIGHTS).

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors that one message carries (SCM_MAX_FD).
const MAX_FDS: usize = 253;

/// Sends `bytes` with `fds` as one message.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    assert!(fds.len() <= MAX_FDS);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::other("too many file descriptors for one message"));
    }
    let sent =
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Receives exactly `bytes.len()` bytes and the descriptors beside them.
/// `EMFILE` if this process has no room for all of them.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes[at..])],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        at += received.bytes;
    }
    Ok(fds)
}
