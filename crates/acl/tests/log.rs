//! ACL LOG and ACL GENPASS.

use remora_acl::{Context, Entry, Genpass, Log, Reason, Refusal};
use remora_layout::limits::MAX_ACL_WORD_BYTES;
use remora_layout::limits::{ACL_LOG_MERGE_ENTRIES, ACL_LOG_MERGE_MS, MAX_ACL_LOG_ENTRIES};

const REFUSAL: Refusal<'_> = Refusal {
    reason: Reason::Key,
    context: Context::TopLevel,
    object: b"k",
    user: b"a",
    client: b"id=1",
};

fn counts(log: &Log) -> Vec<u64> {
    log.entries().map(|entry| entry.count).collect()
}

#[test]
fn refusals_that_are_alike_are_counted_together() {
    let mut log = Log::default();
    log.add(&REFUSAL, 1_000);
    log.add(&Refusal { client: b"id=2", ..REFUSAL }, 1_000 + ACL_LOG_MERGE_MS);
    assert_eq!(counts(&log), [2]);
    let entry: &Entry = log.entries().next().unwrap();
    assert_eq!((&*entry.client, entry.age_s(62_500)), (&b"id=2"[..], 1.5));
    // The time of the last counts.
    log.add(&REFUSAL, 1_000 + 2 * ACL_LOG_MERGE_MS);
    assert_eq!(counts(&log), [3]);
    log.add(&REFUSAL, 1_001 + 3 * ACL_LOG_MERGE_MS);
    assert_eq!(counts(&log), [1, 3]);
}

#[test]
fn others_have_entries_of_their_own_and_the_newest_is_first() {
    let mut log = Log::default();
    for refusal in [
        REFUSAL,
        Refusal { reason: Reason::Channel, ..REFUSAL },
        Refusal { context: Context::Multi, ..REFUSAL },
        Refusal { object: b"l", ..REFUSAL },
        Refusal { user: b"b", ..REFUSAL },
        REFUSAL,
    ] {
        log.add(&refusal, 0);
    }
    assert_eq!(counts(&log), [2, 1, 1, 1, 1]);
    assert_eq!(&*log.entries().nth(1).unwrap().user, b"b");
    log.reset();
    assert!(counts(&log).is_empty());
}

#[test]
fn the_log_is_bounded() {
    let mut log = Log::default();
    for at in 0..2 * MAX_ACL_LOG_ENTRIES {
        log.add(&Refusal { object: at.to_string().as_bytes(), ..REFUSAL }, 0);
    }
    assert_eq!(log.entries().count(), MAX_ACL_LOG_ENTRIES);
    // An older entry than these is not looked at.
    let seen = 2 * MAX_ACL_LOG_ENTRIES - ACL_LOG_MERGE_ENTRIES;
    log.add(&Refusal { object: (seen - 1).to_string().as_bytes(), ..REFUSAL }, 0);
    assert_eq!(counts(&log).iter().sum::<u64>(), MAX_ACL_LOG_ENTRIES as u64);
    log.add(&Refusal { object: (seen + 1).to_string().as_bytes(), ..REFUSAL }, 0);
    assert_eq!(log.entries().next().unwrap().count, 2);
    log.add(&Refusal { object: &[b'x'; 70_000], ..REFUSAL }, 0);
    assert_eq!(log.entries().next().unwrap().object.len(), MAX_ACL_WORD_BYTES);
}

#[test]
fn passwords_have_as_many_digits_as_their_bits_need() {
    for (bits, digits) in [(None, 64), (Some(1), 1), (Some(4), 1), (Some(5), 2), (Some(4096), 1024)]
    {
        let genpass = Genpass::new(bits).expect("a number of bits");
        let random = vec![0x5a; genpass.bytes()];
        let password = genpass.password(&random);
        assert_eq!(password.len(), digits);
        assert!("5a".repeat(512).starts_with(&password));
    }
    for bits in [0, -1, 4097, i64::MAX, i64::MIN] {
        let error = Genpass::new(Some(bits)).expect_err("no such password");
        assert_eq!(
            error.to_string(),
            "ACL GENPASS argument must be the number of bits for the output password, a positive \
             number up to 4096"
        );
    }
}
