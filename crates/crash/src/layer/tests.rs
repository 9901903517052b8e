use super::*;
use rand::SeedableRng;
use std::process::Output;

/// A directory, the layer over it, and a program that runs under the layer.
struct Fixture {
    base: tempfile::TempDir,
    layer: Layer,
}

impl Fixture {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        fs::create_dir(path.join("data")).unwrap();
        let layer = Layer::build(&path.join("data"), &path.join("layer")).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layer/acts.c");
        let built = Command::new("cc").arg("-o").arg(path.join("acts")).arg(source).status();
        assert!(built.unwrap().success());
        Self { base, layer }
    }

    /// Acts of the program, `ACT [PATH [TO]] [NUMBER]`, paths below the directory.
    fn run(&mut self, acts: &[&str]) -> Output {
        let root = self.layer.root.clone();
        let mut command = Command::new(self.base.path().join("acts"));
        for act in acts {
            let words: Vec<&str> = act.split(' ').collect();
            let (paths, number) = match words[1..].split_last() {
                Some((last, paths)) if last.parse::<u64>().is_ok() => (paths, *last),
                _ => (&words[1..], "0"),
            };
            let path = |at: usize| paths.get(at).map_or(root.clone(), |path| root.join(path));
            command.arg(words[0]).arg(path(0)).arg(path(1)).arg(number);
        }
        let output = command.envs(self.layer.environment()).output().unwrap();
        self.layer.follow().unwrap();
        output
    }

    fn cut(&mut self, seed: u64) {
        self.layer.cut(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
    }

    /// The names there are, with lengths.
    fn there(&self) -> BTreeMap<String, Option<u64>> {
        listing(&self.layer.root).unwrap().into_iter().map(|(path, _, len)| (path, len)).collect()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.layer.root.join(name)).unwrap()
    }
}

#[test]
fn every_call_is_seen() {
    let mut fixture = Fixture::new();
    let output = fixture.run(&[
        "open log",
        "write 5000",
        "dup",
        "writev 300",
        "pwrite 7",
        "truncate 4000",
        "datasync",
        "mkdir s.tmp",
        "open s.tmp/shard-0",
        "write 10",
        "sync",
        "directory s.tmp",
        "sync",
        "rename s.tmp s",
        "reopen log",
        "write 70",
        "open gone",
        "unlink gone",
        "rename s/shard-0 k",
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    fixture.layer.check_seen().unwrap();
    let expected = [("k", Some(10)), ("log", Some(70)), ("s", None)];
    let expected = expected.map(|(name, len)| (name.to_owned(), len));
    assert_eq!(fixture.there(), BTreeMap::from(expected));
    assert_eq!(fixture.layer.syncs(), 3);
    fs::write(fixture.layer.root.join("unseen"), "1").unwrap();
    let text = fixture.layer.check_seen().unwrap_err().to_string();
    assert!(text.contains("unseen has Some(1)"), "{text}");
}

/// A kill may come between a call and its note: each of these is a call that was not noted.
#[test]
fn what_a_kill_left_without_a_note_is_added() {
    let mut fixture = Fixture::new();
    fixture.run(&["mkdir d", "open d/a", "write 10", "open b", "write 20", "open c", "write 5"]);
    fixture.layer.check_seen().unwrap();
    let root = fixture.layer.root.clone();
    let longer = |path: &str, bytes: usize| {
        let mut file = fs::OpenOptions::new().append(true).open(root.join(path)).unwrap();
        std::io::Write::write_all(&mut file, &vec![1; bytes]).unwrap();
    };
    let shorter = |path: &str, bytes: u64| {
        fs::OpenOptions::new().write(true).open(root.join(path)).unwrap().set_len(bytes).unwrap();
    };
    let calls: [&dyn Fn(); 7] = [
        &|| longer("b", 7),
        &|| shorter("b", 4),
        &|| fs::rename(root.join("c"), root.join("d/c")).unwrap(),
        &|| fs::rename(root.join("d/c"), root.join("d/a")).unwrap(),
        &|| fs::write(root.join("new"), "").unwrap(),
        &|| fs::create_dir(root.join("e")).unwrap(),
        &|| fs::remove_file(root.join("new")).unwrap(),
    ];
    for (number, call) in calls.iter().enumerate() {
        call();
        fixture.layer.check_seen().unwrap_err();
        fixture.layer.add_unnoted().unwrap();
        fixture.layer.check_seen().unwrap_or_else(|error| panic!("call {number}: {error}"));
    }
    let expected = [("b", Some(4)), ("d", None), ("d/a", Some(5)), ("e", None)];
    let expected = expected.map(|(name, len)| (name.to_owned(), len));
    assert_eq!(fixture.there(), BTreeMap::from(expected));
}

#[test]
fn a_cut_after_a_kill_keeps_what_was_synced() {
    let (mut lost_name, mut lost_bytes, mut kept) = (0, 0, 0);
    let mut fixture = Fixture::new();
    for seed in 0..30 {
        fixture.run(&["open log", "datasync", "directory .", "sync"]);
        let before = fixture.read("log");
        fixture.run(&[
            "open log",
            "write 6000",
            "datasync",
            "write 9000",
            "open tmp",
            "write 3",
            "sync",
            "rename tmp name",
            "kill",
        ]);
        fixture.cut(seed);
        let after = fixture.read("log");
        assert_eq!(after[..before.len()], before);
        assert!(after[before.len()..][..6000].iter().all(|byte| *byte == b'x'), "{seed}");
        let is_whole = after.len() == before.len() + 15_000 && !after.contains(&0);
        lost_bytes += u32::from(!is_whole);
        kept += u32::from(is_whole);
        lost_name += u32::from(!fixture.there().contains_key("name"));
        let _ = fs::remove_file(fixture.layer.root.join("name"));
        fs::write(fixture.layer.root.join("log"), "begins anew").unwrap();
        fixture.layer.disk = whole(&fixture.layer.root).unwrap();
    }
    assert!(lost_name > 3 && lost_bytes > 3 && kept > 0, "{lost_name} {lost_bytes} {kept}");
}

#[test]
fn an_unlinked_and_a_replaced_file_may_be_back() {
    let mut backs = BTreeMap::new();
    let mut fixture = Fixture::new();
    for seed in 0..20 {
        fixture.run(&["open a", "write 5", "sync", "open b", "write 9", "sync"]);
        fixture.run(&["directory .", "sync", "rename b a"]);
        fixture.cut(seed);
        let lens: Vec<(String, Option<u64>)> = fixture.there().into_iter().collect();
        *backs.entry(format!("{lens:?}")).or_insert(0) += 1;
        for (name, _) in lens {
            fs::remove_file(fixture.layer.root.join(name)).unwrap();
        }
        fixture.layer.disk = whole(&fixture.layer.root).unwrap();
    }
    let outcomes: Vec<&str> = backs.keys().map(String::as_str).collect();
    assert_eq!(outcomes, [r#"[("a", Some(5)), ("b", Some(9))]"#, r#"[("a", Some(9))]"#]);
}

#[test]
fn a_bad_disk_fails_as_it_is_told() {
    let mut fixture = Fixture::new();
    let mut failed = |fault, acts: &[&str]| {
        fixture.layer.set_fault(Some(fault)).unwrap();
        let output = fixture.run(acts);
        String::from_utf8(output.stdout).unwrap()
    };
    let full = failed(Fault::Full, &["open log", "write 100", "write 100", "sync"]);
    assert_eq!(full.matches("write").count(), 2, "{full}");
    assert!(full.contains("write: No space left on device") && !full.contains("sync"), "{full}");
    let write = failed(Fault::Write, &["open log", "write 100", "sync"]);
    assert_eq!(write, "write: Input/output error\n");
    let sync = failed(Fault::Sync, &["open log", "write 100", "datasync"]);
    assert_eq!(sync, "datasync: Input/output error\n");
    let before = std::time::Instant::now();
    assert_eq!(failed(Fault::Slow(50), &["open log", "sync", "sync"]), "");
    assert!(before.elapsed().as_millis() >= 100);
    assert_eq!(fixture.layer.failures().unwrap(), 4);
    // The disk filled in the middle of the first write.
    assert_eq!(fixture.read("log").len(), 150);
    fixture.layer.set_fault(None).unwrap();
    assert_eq!(fixture.run(&["open log", "write 1", "sync"]).stdout, b"");
    fixture.layer.check_seen().unwrap();
}
