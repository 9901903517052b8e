//! DEBUG DIGEST over RESP: what two servers hold is compared by it, whatever their
//! number of shards.

use remora_tests::{Resp, ServerProcess, Value};

fn digest(resp: &mut Resp) -> String {
    match resp.call("DEBUG DIGEST") {
        Value::Simple(text) => text,
        other => panic!("a digest, and not {other:?}"),
    }
}

fn fill(resp: &mut Resp, keys: impl Iterator<Item = u32>) {
    for key in keys {
        assert_eq!(resp.call(&format!("SET key:{key} value:{key}")), Value::ok());
    }
    resp.call("RTREE.ADD fleet 7 1 2 1 2");
    resp.call("GEOADD places 2.35 48.86 paris 13.4 52.5 berlin");
    resp.call("HSET user name ada town london");
    resp.call("APPEND key:3 !");
    resp.call("PEXPIREAT key:4 4000000000000");
}

#[test]
fn servers_with_the_same_keys_have_the_same_digest() {
    let servers = ["1", "3"]
        .map(|shards| ServerProcess::start(&[&format!("--shards={shards}"), "--max-memory=48MiB"]));
    let [mut one, mut three] = servers.each_ref().map(ServerProcess::resp);
    assert_eq!(digest(&mut one), "0".repeat(40));
    fill(&mut one, 0..3000);
    fill(&mut three, (0..3000).rev());
    assert_eq!(digest(&mut one), digest(&mut three));
    let before = digest(&mut one);
    for change in
        ["HSET user town paris", "PEXPIREAT key:4 3900000000000", "ZREM places paris", "DEL key:1"]
    {
        one.call(change);
        assert_ne!(digest(&mut one), digest(&mut three), "{change}");
        three.call(change);
        assert_eq!(digest(&mut one), digest(&mut three), "{change}");
    }
    assert_ne!(before, digest(&mut one));
    // Of values: without their names, zeros for none.
    one.call("SET a same");
    one.call("SET b same");
    let Value::Array(values) = one.call("DEBUG DIGEST-VALUE a b none key:2") else { panic!() };
    assert!(values[0] == values[1] && values[0] != values[3], "{values:?}");
    assert_eq!(values[2], Value::Simple("0".repeat(40)));
}
