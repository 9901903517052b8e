use super::*;
use proptest::prelude::*;
use rand::SeedableRng;

const ROOT: u64 = 1;

fn events(disk: &mut Disk, events: &[Event]) {
    events.iter().for_each(|event| disk.follow(event));
}

fn create(path: &str, ino: u64) -> Event {
    Event::Create { path: path.into(), ino }
}

fn write(ino: u64, offset: u64, len: u64) -> Event {
    Event::Write { ino, offset, len }
}

fn synced(ino: u64, id: u64, succeeded: bool) -> [Event; 2] {
    [Event::SyncBegin { ino, id }, Event::SyncEnd { ino, id, succeeded }]
}

/// Cuts from many seeds, where every file holds what `bytes_of` says.
fn cuts(disk: &Disk, bytes_of: impl Fn(u64) -> Vec<u8>) -> Vec<BTreeMap<String, Entry>> {
    let cut = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        disk.cut(&mut rng, |ino| Ok::<_, ()>(bytes_of(ino))).unwrap()
    };
    (0..300).map(cut).collect()
}

fn bytes(entry: Option<&Entry>) -> &[u8] {
    match entry {
        Some(Entry::File(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_synced_is_there_and_the_rest_in_any_state() {
    let mut disk = Disk::whole(ROOT, &[]);
    events(&mut disk, &[create("log", 7)]);
    events(&mut disk, &synced(ROOT, 1, true));
    events(&mut disk, &[write(7, 0, 5000)]);
    events(&mut disk, &synced(7, 2, true));
    events(&mut disk, &[write(7, 5000, 9000)]);
    let last: Vec<u8> = (0..14_000u32).map(|at| at as u8 | 1).collect();
    let cuts = cuts(&disk, |_| last.clone());
    let (mut whole, mut shortest, mut holes) = (0, usize::MAX, 0);
    for cut in &cuts {
        let found = bytes(cut.get("log"));
        assert_eq!(found[..5000], last[..5000]);
        shortest = shortest.min(found.len());
        whole += usize::from(found == last);
        // A block was lost before one that was kept.
        let at = found.iter().position(|byte| *byte == 0);
        holes += usize::from(at.is_some_and(|at| found[at..].iter().any(|byte| *byte != 0)));
    }
    assert_eq!(shortest, 5000);
    assert!(whole > 0 && holes > 20, "{whole} {holes}");
}

#[test]
fn a_name_needs_a_sync_of_its_directory() {
    let mut disk = Disk::whole(ROOT, &[("a".into(), 5, Some(3))]);
    events(&mut disk, &[create("b", 7), write(7, 0, 3)]);
    events(&mut disk, &synced(7, 1, true));
    events(&mut disk, &[Event::Rename { from: "b".into(), to: "a".into() }]);
    let outcomes = |disk: &Disk| -> std::collections::BTreeSet<(bool, Option<u64>)> {
        let of = |cut: &BTreeMap<String, Entry>| match cut.get("a") {
            Some(Entry::Same(ino)) => (cut.contains_key("b"), Some(*ino)),
            other => panic!("{other:?}"),
        };
        cuts(disk, |_| b"new".to_vec()).iter().map(of).collect()
    };
    // Nothing, the creation alone, the renaming.
    assert_eq!(outcomes(&disk), [(false, Some(5)), (true, Some(5)), (false, Some(7))].into());
    events(&mut disk, &synced(ROOT, 2, false));
    events(&mut disk, &synced(ROOT, 3, true));
    assert_eq!(outcomes(&disk).len(), 3, "a failed sync is not mended by a later one");
    let mut disk = Disk::whole(ROOT, &[("a".into(), 5, Some(3))]);
    events(&mut disk, &[create("b", 7), Event::Rename { from: "b".into(), to: "a".into() }]);
    events(&mut disk, &synced(ROOT, 2, true));
    assert_eq!(outcomes(&disk), [(false, Some(7))].into());
}

#[test]
fn a_failed_sync_leaves_its_bytes_in_doubt_until_they_are_written_again() {
    let mut disk = Disk::whole(ROOT, &[("log".into(), 7, Some(0))]);
    events(&mut disk, &[write(7, 0, 4096)]);
    events(&mut disk, &synced(7, 1, false));
    events(&mut disk, &synced(7, 2, true));
    let last = vec![1; 4096];
    let lost = |cuts: &[BTreeMap<String, Entry>]| {
        cuts.iter().filter(|cut| bytes(cut.get("log")).iter().all(|byte| *byte == 0)).count()
    };
    assert!(lost(&cuts(&disk, |_| last.clone())) > 0);
    let old = Event::Old { ino: 7, offset: 0, bytes: last.clone() };
    events(&mut disk, &[old, write(7, 0, 4096)]);
    events(&mut disk, &synced(7, 3, true));
    for cut in cuts(&disk, |_| last.clone()) {
        assert_eq!(cut.get("log"), Some(&Entry::Same(7)));
    }
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let mut disk = Disk::whole(ROOT, &[("log".into(), 7, Some(0))]);
    events(&mut disk, &[write(7, 0, 100), Event::SyncBegin { ino: 7, id: 1 }, write(7, 100, 100)]);
    events(&mut disk, &[Event::SyncEnd { ino: 7, id: 1, succeeded: true }]);
    let lens: Vec<usize> =
        cuts(&disk, |_| vec![1; 200]).iter().map(|cut| bytes(cut.get("log")).len()).collect();
    assert_eq!((lens.iter().min(), lens.iter().max()), (Some(&100), Some(&200)));
    // A sync that the crash interrupted covers nothing.
    events(&mut disk, &[Event::SyncBegin { ino: 7, id: 1 }]);
    assert!(cuts(&disk, |_| vec![1; 200]).iter().any(|cut| bytes(cut.get("log")).len() == 100));
}

#[test]
fn what_was_overwritten_or_cut_off_may_be_back() {
    let mut disk = Disk::whole(ROOT, &[("log".into(), 7, Some(300))]);
    let old = |offset, len| Event::Old { ino: 7, offset, bytes: vec![b'o'; len] };
    events(&mut disk, &[old(0, 100), write(7, 0, 100)]);
    events(&mut disk, &[old(200, 100), Event::Resize { ino: 7, len: 200 }]);
    assert_eq!(disk.listing().get("log"), Some(&Some(200)));
    let last = [vec![b'n'; 100], vec![b'o'; 100]].concat();
    let cuts = cuts(&disk, |_| last.clone());
    assert!(cuts.iter().any(|cut| bytes(cut.get("log")) == vec![b'o'; 300]));
    assert!(cuts.iter().any(|cut| bytes(cut.get("log")) == last));
}

#[test]
fn directories_come_and_go_with_what_they_hold() {
    let mut disk = Disk::whole(ROOT, &[]);
    let make = |path: &str, ino| Event::MakeDirectory { path: path.into(), ino };
    events(&mut disk, &[make("s.tmp", 2), create("s.tmp/shard-0", 3), write(3, 0, 10)]);
    events(&mut disk, &synced(3, 1, true));
    events(&mut disk, &synced(2, 2, true));
    events(&mut disk, &[Event::Rename { from: "s.tmp".into(), to: "s".into() }]);
    assert_eq!(disk.listing().keys().collect::<Vec<_>>(), ["s", "s/shard-0"]);
    for cut in cuts(&disk, |_| vec![1; 10]) {
        let names: Vec<&str> = cut.keys().map(String::as_str).collect();
        assert!([&[][..], &["s.tmp", "s.tmp/shard-0"], &["s", "s/shard-0"]].contains(&&names[..]));
    }
    events(&mut disk, &synced(ROOT, 3, true));
    events(&mut disk, &[Event::Remove { path: "s/shard-0".into() }]);
    assert_eq!(disk.listing().keys().collect::<Vec<_>>(), ["s"]);
    assert!(cuts(&disk, |_| vec![1; 10]).iter().any(|cut| cut.contains_key("s/shard-0")));
}

/// What a program did to one file, and the same in a model that keeps all versions.
#[derive(Clone, Debug)]
enum Act {
    Write(u64, u64),
    Truncate(u64),
    Sync,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..20_000u64, 1..6_000u64).prop_map(|(offset, len)| Act::Write(offset, len)),
        (0..20_000u64).prop_map(Act::Truncate),
        Just(Act::Sync),
    ]
}

proptest! {
    /// Each byte of a cut file is one that it had at the last sync or has had since, or a hole.
    #[test]
    fn each_byte_is_one_of_its_versions(acts in prop::collection::vec(act(), 1..25), seed: u64) {
        let mut disk = Disk::whole(ROOT, &[("f".into(), 7, Some(0))]);
        let (mut now, mut durable): (Vec<u8>, Vec<u8>) = Default::default();
        for (at, act) in acts.iter().enumerate() {
            let old = |disk: &mut Disk, from: usize, to: usize| {
                let to = to.min(now.len());
                if from < to {
                    let bytes = now[from..to].to_vec();
                    disk.follow(&Event::Old { ino: 7, offset: from as u64, bytes });
                }
            };
            match act {
                Act::Write(offset, len) => {
                    let (from, to) = (*offset as usize, (*offset + *len) as usize);
                    old(&mut disk, from, to);
                    now.resize(now.len().max(to), 0);
                    now[from..to].fill(at as u8 + 1);
                    disk.follow(&write(7, *offset, *len));
                }
                Act::Truncate(len) => {
                    old(&mut disk, *len as usize, usize::MAX);
                    now.resize(*len as usize, 0);
                    disk.follow(&Event::Resize { ino: 7, len: *len });
                }
                Act::Sync => {
                    synced(7, at as u64, true).iter().for_each(|event| disk.follow(event));
                    durable = now.clone();
                }
            }
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let image = disk.cut(&mut rng, |_| Ok::<_, ()>(now.clone())).unwrap();
        let found = match image.get("f") {
            Some(Entry::File(bytes)) => bytes.clone(),
            _ => now.clone(),
        };
        prop_assert!(found.len() >= durable.len().min(now.len()));
        prop_assert!(found.len() <= durable.len().max(now.len()));
        for (at, byte) in found.iter().enumerate() {
            let before = durable.get(at).copied().unwrap_or(0);
            let after = now.get(at).copied().unwrap_or(0);
            prop_assert!(*byte == before || *byte == after, "{at}: {byte}, {before} or {after}");
        }
    }
}
