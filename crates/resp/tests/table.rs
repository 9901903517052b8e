//! Rules for every entry of the table, and for the page made from it.

use remora_resp::spec::{Argument, CommandSpec, Flag, Kind};
use remora_resp::table::{TABLE, all};
use remora_resp::wire::encode;
use remora_resp::{Args, CommandError, Made, parse, request};
use std::path::Path;

#[test]
fn names_are_sorted_unique_and_lower_case() {
    let sorted = |list: &[CommandSpec]| list.windows(2).all(|pair| pair[0].name < pair[1].name);
    assert!(sorted(&TABLE));
    for spec in TABLE.iter() {
        assert!(sorted(spec.subcommands), "{}", spec.name);
        for subcommand in spec.subcommands {
            assert_eq!(subcommand.name, format!("{}|{}", spec.name, subcommand.last_name()));
            assert!(subcommand.subcommands.is_empty());
        }
    }
    for spec in all() {
        assert_eq!(spec.name, spec.name.to_ascii_lowercase());
    }
}

#[test]
fn every_entry_is_documented() {
    for spec in all() {
        assert!(spec.summary.ends_with('.') && spec.summary.len() < 100, "{}", spec.name);
        assert!(!spec.complexity.is_empty() && !spec.since.is_empty(), "{}", spec.name);
        assert!(spec.notes.is_empty() || spec.notes.ends_with('.'), "{}", spec.name);
        assert_ne!(spec.arity, 0, "{}", spec.name);
    }
}

/// The fewest words that an argument takes, and whether it may take more.
fn words(argument: &Argument) -> (usize, bool) {
    let parts = argument.parts.iter().map(words);
    let (inner, varies) = match argument.kind {
        Kind::PureToken => (0, false),
        Kind::OneOf => {
            let all: Vec<_> = parts.collect();
            let fewest = all.iter().map(|part| part.0).min().unwrap_or(0);
            (fewest, all.iter().any(|part| part.1 || part.0 != fewest))
        }
        Kind::Block => parts.fold((0, false), |sum, part| (sum.0 + part.0, sum.1 | part.1)),
        _ => (1, false),
    };
    let once = inner + usize::from(argument.token.is_some());
    if argument.optional { (0, true) } else { (once, varies | argument.multiple) }
}

#[test]
fn arity_and_arguments_agree() {
    for spec in all() {
        if spec.name == "quit" || !spec.subcommands.is_empty() {
            continue; // QUIT takes anything, as in Redis; a container takes subcommands.
        }
        let name_words = spec.name.split('|').count();
        let (fewest, varies) =
            spec.arguments.iter().map(words).fold((name_words, false), |sum, argument| {
                (sum.0 + argument.0, sum.1 | argument.1)
            });
        assert_eq!(usize::from(spec.arity.unsigned_abs()), fewest, "{}", spec.name);
        assert_eq!(spec.arity < 0, varies, "{}", spec.name);
    }
}

#[test]
fn arity_and_parser_agree() {
    for spec in all() {
        for count in 1..10 {
            let mut list: Vec<&[u8]> = spec.name.split('|').map(str::as_bytes).collect();
            if list.len() > count || (!spec.subcommands.is_empty() && count > 1) {
                continue;
            }
            list.resize(count, b"1");
            let mut bytes = Vec::new();
            encode::request(&mut bytes, &list);
            let mut args = Args::new();
            parse(&bytes, &mut args).unwrap();
            let refused = matches!(request(&args, &bytes, &Made::default(), 0), Err(CommandError::WrongArity(name))
                    if name == spec.name);
            // Some commands know more than an arity can say.
            let pairs_or_ping = match spec.name {
                "mset" => count % 2 == 0,
                "hset" | "hmset" | "link.set" => count % 2 == 1,
                "ping" => count > 2,
                "lpop" | "rpop" => count > 3,
                "zrank" | "zrevrank" => count > 4,
                _ => false,
            };
            assert_eq!(refused, !spec.accepts(count) || pairs_or_ping, "{} {count}", spec.name);
        }
    }
}

#[test]
fn flags_and_keys_make_sense() {
    for spec in all() {
        let has = |flag| spec.flags.contains(&flag);
        assert!(!(has(Flag::Write) && has(Flag::ReadOnly)), "{}", spec.name);
        assert!(!has(Flag::DenyOom) || has(Flag::Write), "{}", spec.name);
        let has_key_argument = spec.arguments.iter().any(|argument| {
            argument.kind == Kind::Key || argument.parts.iter().any(|part| part.kind == Kind::Key)
        });
        let has_keys = spec.keys.first > 0 || spec.keys.counted_at > 0;
        assert_eq!(has_keys, has_key_argument, "{}", spec.name);
        assert_eq!(spec.keys.access.is_empty(), !has_keys, "{}", spec.name);
        if has_key_argument {
            assert!(has(Flag::Write) || has(Flag::ReadOnly), "{}", spec.name);
        }
        for count in 0..6 {
            let mut positions = spec.keys.among(count, |_| b"9");
            assert!(positions.all(|position| position < count.max(1)));
        }
    }
}

#[test]
fn the_page_is_the_table() {
    let page = remora_resp::markdown::commands();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("REMORA_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/commands.md is not what the table says: run this test with REMORA_UPDATE_DOCS=1"
    );
    for spec in all() {
        let title = spec.name.to_ascii_uppercase().replace('|', " ");
        let documented = page.contains(&format!("\n### {title}\n"));
        assert!(documented || !spec.subcommands.is_empty(), "{title}");
    }
}
