//! Whole sessions with a peer that follows a script, as the fuzz targets run
//! them: from the targets' seeds, and by some hundred random scripts. Each
//! session checks itself; here it is seen that something came about.

use remora_tests::Random;
use remora_tests::scripted::{client, fabric, resp, ring};
use std::path::Path;

/// The seeds of a target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).expect("the target has seeds");
    let seeds = entries.map(|entry| std::fs::read(entry.expect("an entry").path()));
    seeds.map(|seed| seed.expect("a file")).collect()
}

/// So many random scripts of up to so many bytes.
fn random(seed: u64, count: usize, most_bytes: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| {
        let length = random.below(most_bytes);
        random.bytes(length)
    })
}

#[test]
fn rings_of_a_hostile_client() {
    let (mut frames, mut replies, mut large, mut ended, mut all) = (0, 0, 0, 0, 0);
    let mut refined = 0;
    for script in seeds("ring_session").into_iter().chain(random(1, 600, 1_200)) {
        let seen = ring::run(&script);
        frames += seen.frames;
        replies += seen.replies;
        large += seen.in_buffer.min(seen.uploads);
        refined += seen.refined;
        ended += seen.ended.is_some() as usize;
        all += 1;
    }
    assert!(frames > 5 * all && replies > 3 * all, "{frames} frames, {replies} replies");
    assert!(large > 0 && ended > all / 10 && ended < all, "{large} large, {ended} ended");
    assert!(refined > 20, "{refined} refined searches found something");
}

#[test]
fn a_hostile_server() {
    let (mut results, mut read, mut ended, mut all) = (0, 0, 0, 0);
    let scripts = random(2, 300, 400).zip(random(5, 300, 200)).map(|(mut server, application)| {
        if let Some(temper) = server.first_mut() {
            // Few answers are odd ones.
            *temper %= 16;
        }
        client::script_of(&application, &server)
    });
    for script in seeds("client_session").into_iter().chain(scripts) {
        let seen = client::run(&script);
        results += seen.results;
        read += seen.values_read;
        ended += seen.ended.is_some() as usize;
        all += 1;
    }
    assert!(results > all && read > all / 2, "{results} results, {read} read");
    assert!(ended > all / 10 && ended < all, "{ended} ended");
}

/// All that it does wrong is that its answers come late, now and then.
#[test]
fn a_late_server() {
    let mut random = Random::new(6);
    let (mut late, mut results) = (0, 0);
    for _ in 0..200 {
        let server = [&[0], &random.bytes(600)[..]].concat();
        let seen = client::run(&client::script_of(&random.bytes(300), &server));
        assert_eq!(seen.ended, None, "{seen:?}");
        late += (seen.timed_out > 0) as usize;
        results += if seen.timed_out > 0 { seen.results } else { 0 };
    }
    assert!(late > 50 && results > 5 * late, "{late} sessions had late answers, {results} results");
}

#[test]
fn a_hostile_peer_of_the_fabric() {
    let (mut executed, mut read, mut refused, mut violated, mut answered) = (0, 0, 0, 0, 0);
    for script in seeds("fabric_session").into_iter().chain(random(3, 200, 300)) {
        let seen = fabric::run(&script);
        executed += seen.executed;
        read += seen.read_bytes;
        refused += seen.refused as usize;
        violated += seen.violated as usize;
        answered += seen.answered;
    }
    assert!(executed > 500 && read > 100_000, "{executed} executed, {read} bytes");
    assert!(refused > 10 && violated > 10 && answered > 100, "{refused} {violated} {answered}");
}

#[test]
fn a_resp_client() {
    let (mut requests, mut foretold, mut compared, mut broke) = (0, 0, 0, 0);
    for script in seeds("resp_session").into_iter().chain(random(4, 100, 300)) {
        let seen = resp::run(&script);
        requests += seen.requests;
        foretold += seen.foretold;
        compared += seen.compared;
        broke += seen.broke as usize;
    }
    assert!(requests > 1_000 && foretold > 300, "{requests} requests, {foretold} foretold");
    assert!(compared > 500 && broke > 5, "{compared} compared, {broke} broke");
}
