//! Orders for the thread of the role, one after the other, and what becomes of them.
//!
//! Invariant: an order is given once the one before it is carried out. While one waits, a later order
//! that makes it needless takes its place: whatever other servers ask for, and how often, few wait.

use crate::following::{Order, OrderAnswer, Roles};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

/// What the state machine wants to hear of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Nothing.
    Hold,
    /// That the rings below this epoch are withdrawn, and where the logs end.
    Withdraw(u64),
    /// Nothing; it is given again until it is carried out.
    Follow,
    /// That all is applied, before this epoch.
    Prepare(u64),
    /// That the data directory says that this server leads this epoch.
    Record(u64),
}

/// See the module's text.
#[derive(Default)]
pub struct Orders {
    waiting: VecDeque<(Order, Purpose)>,
    given: Option<(Receiver<OrderAnswer>, Order, Purpose)>,
}

impl Orders {
    /// Adds an order.
    pub fn push(&mut self, order: Order, purpose: Purpose) {
        if matches!(order, Order::Hold | Order::Follow(..)) {
            // To follow another primary makes it needless.
            self.waiting.retain(|(_, purpose)| *purpose != Purpose::Follow);
        }
        let last = self.waiting.back().map(|(_, purpose)| *purpose);
        match (last, purpose) {
            // Nothing comes between the two: what the first is to do, the second does.
            (Some(Purpose::Hold | Purpose::Withdraw(_)), Purpose::Withdraw(_)) => {
                self.waiting.pop_back();
            }
            (Some(Purpose::Hold | Purpose::Withdraw(_)), Purpose::Hold) => return,
            _ => {}
        }
        self.waiting.push_back((order, purpose));
    }

    /// Gives the next order, if there is one and none is under way. What has become of one since the
    /// last call.
    pub fn turn(&mut self, roles: &Roles) -> Option<(Purpose, OrderAnswer)> {
        let ended = match &self.given {
            None => None,
            Some((answer, _, purpose)) => match answer.try_recv() {
                Ok(answer) => Some((*purpose, answer)),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    Some((*purpose, Err("the server is stopping".into())))
                }
            },
        };
        if let Some((_, order, purpose)) = ended.as_ref().and_then(|_| self.given.take())
            && purpose == Purpose::Follow
            && matches!(ended, Some((_, Err(_))))
            && self.waiting.is_empty()
        {
            self.waiting.push_back((order, purpose));
        }
        if self.given.is_none()
            && let Some((order, purpose)) = self.waiting.front().cloned()
            && let Ok(answer) = roles.order(order.clone())
        {
            self.waiting.pop_front();
            self.given = Some((answer, order, purpose));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::following::Role;

    #[test]
    fn the_last_primary_to_follow_counts() {
        let mut orders = Orders::default();
        let to = |port| Order::Follow(format!("127.0.0.1:{port}").parse().unwrap(), 1);
        orders.push(Order::Hold, Purpose::Withdraw(3));
        orders.push(to(1), Purpose::Follow);
        orders.push(to(2), Purpose::Follow);
        assert_eq!(orders.waiting.len(), 2);
        assert_eq!(orders.waiting[1].0, to(2));
        orders.push(Order::Hold, Purpose::Hold);
        assert_eq!(orders.waiting.len(), 1, "what it is to be held for stays, and holds it");
    }

    #[test]
    fn a_withdrawal_that_is_asked_for_again_waits_once() {
        let mut orders = Orders::default();
        for epoch in 0..1_000 {
            orders.push(Order::Hold, Purpose::Withdraw(epoch));
            orders.push(Order::Hold, Purpose::Withdraw(epoch));
            orders.push(Order::Hold, Purpose::Hold);
        }
        assert_eq!(orders.waiting, [(Order::Hold, Purpose::Withdraw(999))]);
        // What comes between them is carried out in its place.
        orders.push(Order::Lead, Purpose::Prepare(999));
        orders.push(Order::Hold, Purpose::Hold);
        assert_eq!(orders.waiting.len(), 3);
        orders.push(Order::Hold, Purpose::Withdraw(1_000));
        let purposes: Vec<_> = orders.waiting.iter().map(|(_, purpose)| *purpose).collect();
        let expected = [Purpose::Withdraw(999), Purpose::Prepare(999), Purpose::Withdraw(1_000)];
        assert_eq!(purposes, expected);
    }

    #[test]
    fn one_is_given_at_a_time() {
        let roles = Roles::new(Role::Primary, 1);
        let mut orders = Orders::default();
        orders.push(Order::Hold, Purpose::Hold);
        orders.push(Order::Lead, Purpose::Prepare(2));
        assert_eq!(orders.turn(&roles), None);
        assert_eq!((orders.waiting.len(), orders.turn(&roles)), (1, None));
        // The thread of the role has ended.
        drop(roles.take_changes());
        assert!(matches!(orders.turn(&roles), Some((Purpose::Hold, Err(_)))));
    }
}
