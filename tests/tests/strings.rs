//! Values changed piece by piece: by sessions over the rings and by RESP
//! connections, which see each other's changes.

use remora_client_core::{Error, Path, ServedBy, Session, SetOptions};
use remora_layout::limits::{MAX_INLINE_BYTES, MAX_VALUE_BYTES};
use remora_protocol::message::Status;
use remora_tests::{Random, Resp, ServerProcess, Value};

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=256MiB"])
}

/// One random edit by the session; the model is changed as well.
fn edit(session: &mut Session, random: &mut Random, key: &[u8], model: &mut Vec<u8>) {
    let (offset, count) = (random.below(200), random.below(30));
    let bytes = random.bytes(count);
    match random.below(3) {
        0 => {
            model.extend(&bytes);
            assert_eq!(session.append(key, &bytes), Ok(model.len() as u64));
        }
        1 => {
            if !bytes.is_empty() {
                model.resize(model.len().max(offset + count), 0);
                model[offset..offset + count].copy_from_slice(&bytes);
            }
            assert_eq!(session.set_range(key, offset as u64, &bytes), Ok(model.len() as u64));
        }
        _ => {
            let (mask, bit) = (0x80 >> (count % 8), random.below(2) == 1);
            model.resize(model.len().max(offset + 1), 0);
            let before = model[offset] & mask != 0;
            model[offset] = if bit { model[offset] | mask } else { model[offset] & !mask };
            let at = (offset * 8 + count % 8) as u32;
            assert_eq!(session.set_bit(key, at, bit), Ok(before));
            assert_eq!(session.get_bit(key, at), Ok(bit));
        }
    }
}

#[test]
fn sessions_edit_and_everyone_reads_the_same() {
    let server = server();
    let (mut session, mut other, mut resp) = (server.session(), server.session(), server.resp());
    let mut random = Random::new(9);
    let mut model = Vec::new();
    assert_eq!(session.append(b"k", b""), Ok(0));
    assert_eq!(session.exists(b"k"), Ok(true));
    let mut stale = 0;
    for round in 0..1_500 {
        edit(&mut session, &mut random, b"k", &mut model);
        // The others hold pointers to what was the value before.
        let got = other.get(b"k", Path::Choose).unwrap();
        assert_eq!(got.value, Some(&model[..]), "round {round}");
        stale += u32::from(got.served_by == ServedBy::AskedAfterRead);
        let (start, end) = (random.below(300) as i64 - 150, random.below(300) as i64 - 150);
        let range = remora_engine::string_edit::range(model.len(), start, end);
        assert_eq!(session.get_range(b"k", start, end), Ok(&model[range.clone()]));
        let (start, end) = (start.to_string(), end.to_string());
        let words: [&[u8]; 4] = [b"GETRANGE", b"k", start.as_bytes(), end.as_bytes()];
        assert_eq!(resp.try_call(&words).unwrap(), Value::bulk(&model[range]));
        assert_eq!(session.strlen(b"k"), Ok(model.len() as u64));
        if model.len() > 2_000 {
            assert_eq!(session.get_del(b"k"), Ok(Some(&model[..])));
            assert_eq!(session.get_del(b"k"), Ok(None));
            model.clear();
            assert_eq!(session.append(b"k", b""), Ok(0));
        }
    }
    assert!(stale > 0, "some pointers led to dead records");
}

#[test]
fn the_limit_and_the_expiry_hold() {
    let server = server();
    let mut session = server.session();
    let full = vec![7; MAX_INLINE_BYTES - 1];
    assert_eq!(session.append(b"k", &full), Ok(full.len() as u64));
    let too_large = Err(Error::Refused(Status::TooLarge));
    let most = MAX_VALUE_BYTES as u64;
    assert_eq!(session.set_range(b"longest", most - 1, b"x"), Ok(most));
    assert_eq!(session.append(b"longest", b"x"), too_large);
    assert_eq!(session.del(b"longest"), Ok(true));
    assert_eq!(session.set_range(b"k", MAX_VALUE_BYTES as u64, b"x"), too_large);
    assert_eq!(session.set_range(b"none", u64::MAX, b"x"), too_large);
    assert_eq!(session.set_range(b"none", u64::MAX, b""), Ok(0));
    assert_eq!(
        session.set_bit(b"none", u32::MAX, true).map(u64::from),
        Err(Error::Refused(Status::TooLarge))
    );
    assert_eq!(session.append(b"k", &vec![0; MAX_VALUE_BYTES + 1]), Err(Error::ValueTooLong));
    assert_eq!(session.get_bit(b"none", u32::MAX), Ok(false));
    assert_eq!(session.exists(b"none"), Ok(false));
    assert_eq!(session.get_range(b"k", i64::MIN, i64::MAX), Ok(&full[..]));
    assert_eq!(session.get_range(b"k", -9_999_999_999, -99_999_999_999), Ok(&[][..]));
    assert_eq!(
        session.set_range(b"k", full.len() as u64 - 1, b"x").map(|n| n as usize),
        Ok(full.len())
    );

    let mut resp = server.resp();
    let far = 4_102_444_800_000;
    session.set(b"t", b"v", SetOptions::default()).unwrap();
    assert_eq!(session.get_ex(b"t", Some(far)), Ok(Some(&b"v"[..])));
    session.append(b"t", b"w").unwrap();
    session.set_bit(b"t", 100, true).unwrap();
    assert!(matches!(resp.call("TTL t"), Value::Integer(seconds) if seconds > 0));
    assert_eq!(session.get_ex(b"t", None).map(|value| value.map(<[u8]>::len)), Ok(Some(13)));
    assert_eq!(resp.call("TTL t"), Value::Integer(-1));
    assert!(session.get_ex(b"t", Some(1)).unwrap().is_some());
    assert_eq!(session.exists(b"t"), Ok(false));
}

#[test]
fn looking_at_a_part_reads_memory_and_a_pipeline_sees_its_own_edits() {
    let server = server();
    // The threads of both shards have one; one of them is the key's.
    let (mut resp, mut other) = (server.resp(), server.resp());
    assert_eq!(resp.call("SET k hello"), Value::ok());
    let counts =
        |resp: &mut Resp| ["optimistic_reads", "commands_executed_here"].map(|n| resp.info(n));
    let before = counts(&mut resp);
    for _ in 0..10 {
        for resp in [&mut resp, &mut other] {
            assert_eq!(resp.call("STRLEN k"), Value::Integer(5));
            assert_eq!(resp.call("SUBSTR k 1 -2"), Value::bulk("ell"));
            assert_eq!(resp.call("GETBIT k 1"), Value::Integer(1));
        }
    }
    let after = counts(&mut resp);
    assert_eq!([0, 1].map(|at| after[at] - before[at]), [30, 30], "read, and executed");
    for absent in ["STRLEN none", "GETBIT none 3"] {
        assert_eq!(resp.call(absent), Value::Integer(0));
    }
    assert_eq!(resp.call("GETRANGE none 0 -1"), Value::bulk(""));

    let mut lines = Vec::new();
    for _ in 0..1_000 {
        lines.extend(b"APPEND p ab\r\nSTRLEN p\r\nSETRANGE p 1 xy\r\nGETRANGE p -2 -1\r\n");
    }
    resp.send_raw(&lines).unwrap();
    for round in 1..=1_000 {
        assert_eq!(resp.receive().unwrap(), Value::Integer(2 * round + i64::from(round > 1)));
        assert_eq!(resp.receive().unwrap(), Value::Integer(2 * round + i64::from(round > 1)));
        assert_eq!(resp.receive().unwrap(), Value::Integer(2 * round + 1));
        let tail = if round == 1 { "xy" } else { "ab" };
        assert_eq!(resp.receive().unwrap(), Value::bulk(tail), "round {round}");
    }
    let over = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(resp.call(&format!("SETRANGE k {MAX_VALUE_BYTES} x")), Value::Error(over.into()));
    let over = "ERR bit offset is not an integer or out of range";
    let bit = MAX_VALUE_BYTES * 8;
    assert_eq!(resp.call(&format!("SETBIT k {bit} 1")), Value::Error(over.into()));
}

/// Memory that held another value: a client that leaves a gap in its own one gets zeros there.
#[test]
fn a_gap_is_zero_where_another_value_was() {
    const MARK: u8 = b'S';
    let server = ServerProcess::start(&["--shards=1", "--max-memory=32MiB"]);
    let (mut resp, mut session) = (server.resp(), server.session());
    for bytes in [50, 900, 5_000, 200_000, 2_000_000] {
        let value = vec![MARK; bytes];
        let mut keys = 0;
        while resp.try_call(&[b"SET", format!("k{keys}").as_bytes(), &value]).unwrap()
            == Value::ok()
        {
            keys += 1;
        }
        assert!(keys > 5, "{keys} values of {bytes} bytes");
        assert_eq!(resp.call("FLUSHALL"), Value::ok());
        // Most of the memory has the mark.
        for number in 0..(keys / 2).min(200) {
            let key = format!("own{number}");
            let (last, mut own) = (bytes - 1, vec![0; bytes]);
            match number % 3 {
                0 => {
                    session.set_range(key.as_bytes(), last as u64, b"x").unwrap();
                    own[last] = b'x';
                }
                1 => {
                    session.set_bit(key.as_bytes(), last as u32 * 8, true).unwrap();
                    own[last] = 0x80;
                }
                _ => {
                    // In place, behind what is there.
                    session.append(key.as_bytes(), b"y").unwrap();
                    session.set_range(key.as_bytes(), last as u64, b"x").unwrap();
                    (own[0], own[last]) = (b'y', b'x');
                }
            }
            assert!(resp.call(&format!("GET {key}")) == Value::bulk(own), "{key}, {bytes} bytes");
        }
        assert_eq!(resp.call("FLUSHALL"), Value::ok());
    }
}
