use super::*;

/// Answers to READs of so many bytes each.
fn answer(out: &mut Outbound, reads: &[usize]) {
    let mut answers = Answers::default();
    for (number, &bytes) in (0..).zip(reads) {
        assert!(out.reserve_answer(bytes), "read {number}");
        answers.add_data::<()>(number, bytes, |_| Ok(())).unwrap();
    }
    out.hand_over(&mut answers, reads.len() as u64, true);
}

/// The peer may have what is being sent, and ask for as much again, before the
/// thread that sends has said how far it came. It may not ask for more than that.
#[test]
fn what_is_being_sent_may_be_asked_for_again_and_nothing_beyond() {
    let half = READ_WINDOW_BYTES / 2 - WIRE_HEADER_BYTES;
    let mut out = Outbound::new();
    answer(&mut out, &[half, half]);
    assert!(!out.reserve_answer(1), "the window is full");
    let sending = out.begin_sending().expect("there is something");
    // The agent takes the peer's next READs meanwhile.
    answer(&mut out, &[half, half]);
    assert!(!out.reserve_answer(1), "it is full again");
    // The socket took one of the two.
    out.end_sending(sending, half + WIRE_HEADER_BYTES);
    assert!(!out.reserve_answer(1), "three halves are not sent");
}
