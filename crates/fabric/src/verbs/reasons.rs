//! Decodes completions: arrived immediates, and why a queue pair broke.

use super::queue_pair::RECEIVE;
use crate::LinkError;
use remora_verbs_sys::*;

/// The reason why the queue pair broke, if one of these operations failed. Flushed operations
/// follow the cause.
pub(super) fn cause(completions: &[ibv_wc]) -> Option<LinkError> {
    let failed = || completions.iter().filter(|completion| completion.status != IBV_WC_SUCCESS);
    let cause = failed().find(|completion| completion.status != IBV_WC_WR_FLUSH_ERR);
    let cause = cause.or_else(|| failed().next())?;
    Some(match cause.wr_id {
        // An operation of the peer's: nothing of ours is at fault.
        RECEIVE => LinkError::Violation("this machine's RDMA device refused its operation"),
        _ => reason_of(cause.status),
    })
}

/// The immediate that a receive brought. A hostile peer can SEND too.
pub(super) fn told_by(completion: &ibv_wc) -> Result<u32, LinkError> {
    if completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM {
        return Err(LinkError::Violation("it sent what is no WRITE"));
    }
    // SAFETY: such a completion has an immediate.
    Ok(u32::from_be(unsafe { completion.__bindgen_anon_1.imm_data }))
}

/// The meaning of a completion's status for the peer.
fn reason_of(status: u32) -> LinkError {
    match status {
        IBV_WC_RETRY_EXC_ERR => LinkError::NoAnswer,
        IBV_WC_RNR_RETRY_EXC_ERR => LinkError::Overrun,
        IBV_WC_REM_ACCESS_ERR => LinkError::Denied,
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_REM_OP_ERR | IBV_WC_REM_ABORT_ERR => {
            LinkError::Violation("its RDMA device refused an operation")
        }
        other => LinkError::Device(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(wr_id: u64, status: u32, opcode: u32) -> ibv_wc {
        // SAFETY: plain data, valid as zeros.
        let mut completion: ibv_wc = unsafe { std::mem::zeroed() };
        (completion.wr_id, completion.status, completion.opcode) = (wr_id, status, opcode);
        completion
    }

    #[test]
    fn the_cause_is_found_behind_what_was_flushed_and_blamed_on_who_did_it() {
        let good = completion(3, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        let flushed = completion(RECEIVE, IBV_WC_WR_FLUSH_ERR, 0);
        let silent = completion(4, IBV_WC_RETRY_EXC_ERR, 0);
        let refused = completion(RECEIVE, IBV_WC_REM_ACCESS_ERR, 0);
        assert_eq!(cause(&[good]), None);
        assert_eq!(cause(&[good, flushed, silent]), Some(LinkError::NoAnswer));
        for peers_fault in [&[refused, flushed][..], &[good, flushed]] {
            let cause = cause(peers_fault);
            assert!(matches!(cause, Some(LinkError::Violation(_))), "{cause:?}");
        }
    }

    #[test]
    fn a_send_is_no_immediate() {
        let mut written = completion(RECEIVE, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
        written.__bindgen_anon_1.imm_data = 7u32.to_be();
        assert_eq!(told_by(&written), Ok(7));
        let sent = completion(RECEIVE, IBV_WC_SUCCESS, IBV_WC_RECV);
        assert!(told_by(&sent).is_err());
    }
}
