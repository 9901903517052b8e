//! SCRAM-SHA-256: the vector of RFC 7677, and what attackers may try.

use crate::fixture::{body, msg, op_msg, whole};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, rawdoc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use remora_mongo::scram::{
    Conversation, Credentials, ITERATIONS, SaslReply, SaslStart, ScramError, UnknownUsers,
};
use remora_mongo::{Command, ErrorCode};
use sha2::{Digest as _, Sha256};

const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn rfc() -> Credentials {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    Credentials::derive("pencil", &salt, 4096).unwrap()
}

fn unknown() -> UnknownUsers {
    UnknownUsers::new([3; 32], ITERATIONS)
}

fn document(message: &str, skip: bool) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: message.into() };
    rawdoc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "db": "admin",
        "options": { "skipEmptyExchange": skip }, "$db": "admin",
    }
}

/// Begins with this message.
fn begin(
    message: &str,
    found: Option<&Credentials>,
    skip: bool,
) -> Result<(Conversation, SaslReply), ScramError> {
    let document = document(message, skip);
    SaslStart::of_speculative(&document)?.begin(found, &unknown(), SERVER_NONCE)
}

fn mac(key: &[u8], message: &str) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key)
        .unwrap()
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// The final message of a client, by the RFC.
fn client_final(password: &str, gs2: &str, bare: &str, server_first: &str) -> String {
    let fields: Vec<&str> = server_first.split(',').collect();
    let salt = BASE64.decode(&fields[1][2..]).unwrap();
    let iterations = fields[2][2..].parse().unwrap();
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
    let without_proof = format!("c={},{}", BASE64.encode(gs2), fields[0]);
    let key = mac(&salted, "Client Key");
    let auth = format!("{bare},{server_first},{without_proof}");
    let signature = mac(&Sha256::digest(key), &auth);
    let proof: Vec<u8> = key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
    format!("{without_proof},p={}", BASE64.encode(proof))
}

#[test]
fn the_vector_of_the_rfc() {
    for skip in [true, false] {
        let (mut conversation, first) = begin(CLIENT_FIRST, Some(&rfc()), skip).unwrap();
        assert_eq!(first, SaslReply { done: false, payload: SERVER_FIRST.into() });
        let last = conversation.step(1, CLIENT_FINAL.as_bytes()).unwrap();
        assert_eq!(last, SaslReply { done: skip, payload: SERVER_FINAL.into() });
        if !skip {
            assert_eq!(conversation.logged_in(), None);
            let empty = conversation.step(1, b"").unwrap();
            assert_eq!(empty, SaslReply { done: true, payload: Vec::new() });
        }
        assert_eq!(conversation.logged_in(), Some(("user", "admin")));
        // Nothing follows.
        assert_eq!(conversation.step(1, b""), Err(ScramError::NoConversation));
    }
}

#[test]
fn commands_of_mongodb() {
    let start = msg(0, &[body(document(CLIENT_FIRST, true).as_bytes())]);
    let message = whole(&start);
    let command = Command::of(&op_msg(&message)).unwrap();
    let start = SaslStart::of(&command).unwrap();
    assert_eq!((&*start.user, start.database), ("user", "admin"));
    let (mut conversation, _) = start.begin(Some(&rfc()), &unknown(), SERVER_NONCE).unwrap();
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: CLIENT_FINAL.into() };
    let document = rawdoc! {
        "saslContinue": 1, "conversationId": 1, "payload": payload, "$db": "admin"
    };
    let bytes = msg(0, &[body(document.as_bytes())]);
    let message = whole(&bytes);
    let command = Command::of(&op_msg(&message)).unwrap();
    assert!(conversation.resume(&command).unwrap().done);
    assert_eq!(conversation.resume(&command).unwrap_err().code(), Some(ErrorCode::ProtocolError));
}

#[test]
fn other_passwords_fail() {
    let stored = Credentials::derive("pencil", &[5; 28], MIN).unwrap();
    let bare = &CLIENT_FIRST[3..];
    for (password, right) in [("pencil", true), ("pencil ", false), ("Pencil", false)] {
        for gs2 in ["n,,", "y,,"] {
            let message = format!("{gs2}{bare}");
            let (mut conversation, first) = begin(&message, Some(&stored), true).unwrap();
            let first = String::from_utf8(first.payload).unwrap();
            let message = client_final(password, gs2, bare, &first);
            let found = conversation.step(1, message.as_bytes());
            assert_eq!(found.as_ref().err(), (!right).then_some(&ScramError::Failed));
            assert_eq!(conversation.logged_in().is_some(), right);
        }
    }
}

/// The right password, but for another nonce or another channel binding than those sent.
#[test]
fn proofs_of_other_conversations_fail() {
    let stored = rfc();
    let bare = &CLIENT_FIRST[3..];
    let old = SERVER_FIRST.replace("%hvY", "%old");
    for (gs2, first, right) in
        [("n,,", SERVER_FIRST, true), ("y,,", SERVER_FIRST, false), ("n,,", &old, false)]
    {
        let (mut conversation, sent) = begin(CLIENT_FIRST, Some(&stored), true).unwrap();
        assert_eq!(sent.payload, SERVER_FIRST.as_bytes());
        let message = client_final("pencil", gs2, bare, first);
        // The signature is over the server's own words in any case.
        let message = resigned(&message, bare);
        assert_eq!(conversation.step(1, message.as_bytes()).is_ok(), right, "{message}");
    }
}

/// The message with the proof for what the server has sent.
fn resigned(message: &str, bare: &str) -> String {
    let (without_proof, _) = message.rsplit_once(",p=").unwrap();
    let mut salted = [0; 32];
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    pbkdf2::pbkdf2_hmac::<Sha256>(b"pencil", &salt, 4096, &mut salted);
    let key = mac(&salted, "Client Key");
    let signature = mac(&Sha256::digest(key), &format!("{bare},{SERVER_FIRST},{without_proof}"));
    let proof: Vec<u8> = key.iter().zip(signature).map(|(key, sign)| key ^ sign).collect();
    format!("{without_proof},p={}", BASE64.encode(proof))
}

const MIN: u32 = remora_mongo::scram::MIN_ITERATIONS;

#[test]
fn unknown_users_look_like_known_ones() {
    let salt = |user: &str, database: &str| {
        let message = format!("n,,n={user},r=abc").into_bytes();
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: message };
        let document = rawdoc! { "mechanism": "SCRAM-SHA-256", "payload": payload, "db": database };
        let start = SaslStart::of_speculative(&document).unwrap();
        let (_, first) = start.begin(None, &unknown(), SERVER_NONCE).unwrap();
        let first = String::from_utf8(first.payload).unwrap();
        let fields: Vec<_> = first.split(',').map(ToOwned::to_owned).collect();
        assert_eq!(fields[2], "i=15000");
        assert_eq!(BASE64.decode(&fields[1][2..]).unwrap().len(), 28);
        fields[1].clone()
    };
    assert_eq!(salt("x", "admin"), salt("x", "admin"));
    assert_ne!(salt("x", "admin"), salt("y", "admin"));
    assert_ne!(salt("x", "admin"), salt("x", "other"));
    let (mut conversation, first) = begin(CLIENT_FIRST, None, true).unwrap();
    let first = String::from_utf8(first.payload).unwrap();
    let message = client_final("pencil", "n,,", &CLIENT_FIRST[3..], &first);
    assert_eq!(conversation.step(1, message.as_bytes()), Err(ScramError::Failed));
    assert_eq!(conversation.logged_in(), None);
}

#[test]
fn each_flipped_bit_of_the_final_message_fails() {
    let stored = rfc();
    for bit in 0..CLIENT_FINAL.len() * 8 {
        let (mut conversation, _) = begin(CLIENT_FIRST, Some(&stored), true).unwrap();
        let mut message = CLIENT_FINAL.as_bytes().to_vec();
        message[bit / 8] ^= 1 << (bit % 8);
        assert!(conversation.step(1, &message).is_err(), "{bit}");
        // No second try.
        let again = conversation.step(1, CLIENT_FINAL.as_bytes());
        assert_eq!(again, Err(ScramError::NoConversation));
    }
    let (mut conversation, _) = begin(CLIENT_FIRST, Some(&stored), true).unwrap();
    let other = conversation.step(2, CLIENT_FINAL.as_bytes());
    assert_eq!(other, Err(ScramError::NoConversation));
}

#[test]
fn malformed_first_messages() {
    let long = format!("n,,n=user,r={}", "a".repeat(5000));
    for message in [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,n=user,r=",
        "n,,n=,r=a",
        "n,,r=a,n=user",
        "p=tls,,n=user,r=a",
        "n,a=other,n=user,r=a",
        "n,,m=ext,n=user,r=a",
        "n,,n=a=b,r=a",
        "n,,n=a=2c,r=a",
        "n,,n=a,r=é",
        "n,,n=a\0,r=a",
        &long,
    ] {
        let found = begin(message, None, true).map(|_| ());
        assert!(matches!(found, Err(ScramError::Malformed(_))), "{message} {found:?}");
    }
    let escaped = document("n,,n=a=2Cb=3D=2C2C,r=a,x=extension", true);
    assert_eq!(SaslStart::of_speculative(&escaped).unwrap().user, "a,b=,2C");
    let other = rawdoc! { "mechanism": "SCRAM-SHA-1", "db": "admin", "payload": "" };
    assert_eq!(SaslStart::of_speculative(&other).unwrap_err(), ScramError::Mechanism);
    let none = rawdoc! { "mechanism": "SCRAM-SHA-256", "db": "admin" };
    assert!(SaslStart::of_speculative(&none).is_err());
}

#[test]
fn parameters_are_bounded() {
    let derive = |password: &str, salt: &[u8], iterations| {
        Credentials::derive(password, salt, iterations).map(|_| ())
    };
    assert_eq!(derive("p", &[1; 28], MIN), Ok(()));
    assert_eq!(derive("p", &[1; 29], MIN), Err(ScramError::Parameters));
    assert_eq!(derive("p", &[1; 7], MIN), Err(ScramError::Parameters));
    assert_eq!(derive("p", &[1; 28], MIN - 1), Err(ScramError::Parameters));
    assert_eq!(derive("", &[1; 28], MIN), Err(ScramError::Password));
    assert_eq!(derive("a\u{7}", &[1; 28], MIN), Err(ScramError::Password));
    // RFC 4013: a soft hyphen is nothing, and a Roman numeral is letters.
    let of = |password| *Credentials::derive(password, &[1; 28], MIN).unwrap().stored_key();
    assert_eq!(of("I\u{ad}X"), of("\u{2168}"));
    let document = document(CLIENT_FIRST, true);
    let start = SaslStart::of_speculative(&document).unwrap();
    for nonce in ["", "short", "a,bcdefghijklmnopqrstuvwxyz", "é23456789012345678901234567890"] {
        assert_eq!(start.begin(None, &unknown(), nonce).map(|_| ()), Err(ScramError::Parameters));
    }
}

#[test]
fn stored_keys_come_back() {
    let first = rfc();
    let keys = (*first.stored_key(), *first.server_key());
    let again = Credentials::from_keys(first.salt(), first.iterations(), keys.0, keys.1).unwrap();
    let (mut conversation, _) = begin(CLIENT_FIRST, Some(&again), true).unwrap();
    assert!(conversation.step(1, CLIENT_FINAL.as_bytes()).is_ok());
    let shown = format!("{first:?} {:?} {conversation:?}", unknown());
    assert!(!shown.contains("key") && !shown.contains("secret"));
}
