//! The ends of a conversation in each form of messages.

use super::ends::{Ends, Side};
use super::form::Messages;
use super::{indicator, ring_ends, sendrecv};

/// The ends of one side, for messages of up to `message_bytes`.
pub fn ends(form: Messages, side: &Side, message_bytes: usize) -> Ends {
    match form {
        Messages::Ring => ring_ends::ends(side, message_bytes),
        Messages::Sendrecv => sendrecv::ends(side, message_bytes),
        Messages::Indicator => indicator::ends(side),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::sides_on_the_heap;
    use super::*;

    /// Every form carries every length, both ways, many times around.
    #[test]
    fn every_form_carries_every_length_both_ways() {
        const LONGEST: usize = 3_000;
        for form in [Messages::Ring, Messages::Sendrecv, Messages::Indicator] {
            let (server, client) = sides_on_the_heap();
            let (mut requests, mut replies) = ends(form, &server, LONGEST);
            let (mut answers, mut asks) = ends(form, &client, LONGEST);
            let mut taken = Vec::new();
            for round in 0..2_000usize {
                let length = round * 37 % (LONGEST + 1);
                // Words of ones: remains of a former message must not be taken.
                let message: Vec<u8> =
                    (0..length).map(|at| !((round + at / 64) as u8 & 3)).collect();
                let (head, tail) = message.split_at(length / 3);
                assert!(asks.try_send(&[head, tail]).unwrap(), "{form:?} {round}");
                assert!(requests.has_message());
                assert!(requests.take(&mut taken).unwrap());
                assert_eq!(taken, message, "{form:?} {round}");
                requests.release().unwrap();
                assert!(replies.try_send(&[tail, head]).unwrap());
                assert!(answers.has_message() && answers.take(&mut taken).unwrap());
                assert_eq!(taken, [tail, head].concat(), "{form:?} {round}");
                answers.release().unwrap();
                assert!(!answers.has_message() && !requests.has_message());
            }
        }
    }

    /// As many requests as are allowed, before any reply is taken: all replies fit.
    #[test]
    fn replies_to_all_that_is_outstanding_fit() {
        for form in [Messages::Ring, Messages::Sendrecv, Messages::Indicator] {
            for longest in [64, 5_000, 70_000] {
                let (server, client) = sides_on_the_heap();
                let (mut requests, mut replies) = ends(form, &server, longest);
                let (mut answers, mut asks) = ends(form, &client, longest);
                let message = vec![7u8; longest];
                let most = asks.most_outstanding();
                assert!(most >= 1, "{form:?} {longest}");
                let mut taken = Vec::new();
                for _ in 0..20 {
                    let mut sent = 0;
                    while sent < most && asks.try_send(&[&message]).unwrap() {
                        sent += 1;
                    }
                    assert!(sent > 0, "{form:?} {longest}");
                    for _ in 0..sent {
                        assert!(requests.take(&mut taken).unwrap());
                        requests.release().unwrap();
                        assert!(replies.try_send(&[&taken]).unwrap(), "{form:?} {longest}");
                    }
                    for _ in 0..sent {
                        assert!(answers.take(&mut taken).unwrap() && taken == message);
                        answers.release().unwrap();
                    }
                }
            }
        }
    }
}
