//! What becomes of an operation that failed.

use crate::error::{Error, Refusal};

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The application gets this error, and the connection stays.
    Return(Error),
    /// As [`Outcome::Return`]; the connection is over.
    ReturnAndLeave(Error),
    /// It may have changed something, and its connection is over: it is not sent again.
    Unknown,
    /// As [`Outcome::Unknown`], but the connection stays: the server has not answered in time.
    UnknownInTime,
    /// It has changed nothing: it begins again, at another server.
    RepeatElsewhere,
    /// As [`Outcome::RepeatElsewhere`]; the connection is over.
    RepeatAndLeave,
}

/// The outcome of an operation that failed with `error`. `has_changed`: it has sent a change that no
/// server has refused.
pub(super) fn of(error: Error, has_changed: bool) -> Outcome {
    match error {
        Error::ServerGone | Error::SessionEnded | Error::ServerSilent | Error::Link(_) => {
            if has_changed {
                Outcome::Unknown
            } else {
                Outcome::RepeatAndLeave
            }
        }
        Error::TimedOut if has_changed => Outcome::UnknownInTime,
        Error::Protocol(_) => Outcome::ReturnAndLeave(error),
        Error::TooStale(_) if !has_changed => Outcome::RepeatElsewhere,
        Error::Refused(refusal) if !has_changed && is_for_another(refusal) => {
            Outcome::RepeatElsewhere
        }
        other => Outcome::Return(other),
    }
}

/// Whether another server, or this one later, may do what was refused so.
fn is_for_another(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::ReadOnly
            | Refusal::NoReads
            | Refusal::Copying
            | Refusal::Fenced
            | Refusal::OtherGroup
            | Refusal::TooFewReplicas
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_change_is_never_sent_again() {
        for lost in [Error::ServerGone, Error::SessionEnded, Error::ServerSilent] {
            assert_eq!(of(lost, true), Outcome::Unknown);
            assert_eq!(of(lost, false), Outcome::RepeatAndLeave);
        }
        assert_eq!(of(Error::TimedOut, true), Outcome::UnknownInTime);
        assert_eq!(of(Error::TimedOut, false), Outcome::Return(Error::TimedOut));
    }

    #[test]
    fn what_a_server_may_not_do_now_begins_again_unless_something_was_changed() {
        let refusals = [
            Refusal::ReadOnly,
            Refusal::NoReads,
            Refusal::Copying,
            Refusal::Fenced,
            Refusal::OtherGroup,
            Refusal::TooFewReplicas,
        ];
        for refusal in refusals.map(Error::Refused) {
            assert_eq!(of(refusal, false), Outcome::RepeatElsewhere);
            assert_eq!(of(refusal, true), Outcome::Return(refusal), "a part of it was done");
        }
        for error in [Error::Refused(Refusal::WrongType), Error::KeyTooLong, Error::Forked] {
            assert_eq!(of(error, false), Outcome::Return(error));
        }
        let broken = Error::Protocol("it is not a reply");
        assert_eq!(of(broken, true), Outcome::ReturnAndLeave(broken));
    }
}
