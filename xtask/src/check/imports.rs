//! Imports go downwards only. The table below is the one place that says what
//! a crate may import; a crate that it does not name is refused.

use crate::tree::Tree;
use crate::violation::Violation;
use toml::Table;

/// What a server and a client are made of, below both.
const FOUNDATIONS: &[&str] =
    &["engine", "protocol", "ring", "index", "walk", "geometry", "fabric", "arena", "layout"];

/// Each crate and the crates below it that it may import, in lists.
const CRATES: &[(&str, &[&[&str]])] = &[
    (TESTING, &[]),
    ("layout", &[]),
    ("geometry", &[&["layout"]]),
    ("osm", &[&["geometry", "layout"]]),
    ("log", &[&["layout"]]),
    ("storage", &[&["log", "layout"]]),
    ("protocol", &[&["geometry", "layout"]]),
    ("acl", &[&["protocol", "layout"]]),
    ("document", &[&["layout"]]),
    ("tls", &[]),
    ("cluster", &[&["protocol", "layout"]]),
    ("zookeeper", &[&["cluster", "layout", "tls"]]),
    ("arena", &[&["layout"]]),
    ("verbs-sys", &[]),
    ("fabric", &[&["tls", "verbs-sys", "arena", "layout"]]),
    ("ring", &[&["fabric", "arena", "layout"]]),
    ("walk", &[&["fabric", "arena", "layout"]]),
    ("index", &[&["walk", "arena", "layout"]]),
    ("plan", &[&["layout"]]),
    ("engine", &[&["document", "protocol", "log", "index", "walk", "geometry", "arena", "layout"]]),
    ("replica", &[&["engine", "protocol", "log", "arena", "layout"]]),
    ("frontend", &[&["protocol", "plan", "layout"]]),
    ("resp", &[&["frontend", "acl", "document", "protocol", "plan", "geometry", "layout"]]),
    ("mongo", &[&["frontend", "acl", "document", "protocol", "plan", "layout"]]),
    (
        "client-core",
        &[&["protocol", "plan", "ring", "index", "walk", "geometry", "fabric", "arena", "layout"]],
    ),
    (
        "server",
        &[
            &[
                "client-core",
                "resp",
                "mongo",
                "document",
                "acl",
                "tls",
                "frontend",
                "replica",
                "cluster",
                "storage",
                "log",
                "plan",
            ],
            FOUNDATIONS,
        ],
    ),
    (
        "client",
        &[&["client-core", "cluster", "document", "protocol", "plan", "geometry", "layout"]],
    ),
    (
        "sim",
        &[
            &["client-core", "server", "resp", "document", "frontend", "replica", "storage", "log"],
            FOUNDATIONS,
        ],
    ),
    ("command-line", &[&["client-core", "server", "resp", "tls"], FOUNDATIONS]),
    (
        "bench",
        &[
            &["command-line", "client", "client-core", "server", "resp", "mongo", "osm"],
            FOUNDATIONS,
        ],
    ),
    (
        "crash",
        &[&["command-line", "client", "client-core", "server", "resp", "zookeeper"], FOUNDATIONS],
    ),
    ("load", &[&["command-line", "resp", "layout"]]),
    (
        "remora",
        &[
            &[
                "bench",
                "crash",
                "load",
                "command-line",
                "client-core",
                "document",
                "plan",
                "server",
                "storage",
                "log",
            ],
            &["resp", "osm", "cluster", "zookeeper"],
            FOUNDATIONS,
        ],
    ),
];

/// The crate for tests: any crate's tests may import it, production may not.
const TESTING: &str = "testing";

/// Tables of a manifest that name dependencies. Tests inside a crate keep to
/// its direction too; tests across crates live in `tests`, which is free.
const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Every import of a crate under `crates/` is one that [`CRATES`] allows.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        let Some(directory) =
            path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        match text.parse::<Table>() {
            Ok(manifest) => check_manifest(path, directory, text, &manifest, &mut found),
            Err(error) => found.push(Violation::at(path, 0, format!("not TOML: {error}"))),
        }
    }
    found
}

fn check_manifest(
    path: &str,
    name: &str,
    text: &str,
    manifest: &Table,
    found: &mut Vec<Violation>,
) {
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
        let message = format!(
            "the crate {name} is not in the table of crates: add it, with what it may import, to xtask/src/check/imports.rs"
        );
        found.push(Violation::at(path, 0, message));
        return;
    };
    for import in imports(manifest) {
        if import == name || allowed.iter().any(|list| list.contains(&import.as_str())) {
            continue;
        }
        let line = text.lines().position(|line| line.contains(&import)).map_or(0, |at| at + 1);
        let message = if CRATES.iter().any(|(known, _)| *known == import) {
            format!(
                "{name} imports {import}, which is not below it: move the code down, or pass it in"
            )
        } else {
            format!(
                "{name} imports {import}, which is none of crates/: tests and tools stay outside"
            )
        };
        found.push(Violation::at(path, line, message));
    }
}

/// The crates that a manifest imports, whatever table and name it uses.
fn imports(manifest: &Table) -> Vec<String> {
    let mut names = table_imports(manifest);
    let targets = manifest.get("target").and_then(|target| target.as_table());
    for target in targets.into_iter().flat_map(|targets| targets.values()) {
        names.extend(target.as_table().map(table_imports).unwrap_or_default());
    }
    names.sort();
    names.dedup();
    names
}

fn table_imports(table: &Table) -> Vec<String> {
    let mut names = Vec::new();
    for kind in DEPENDENCY_TABLES {
        let Some(dependencies) = table.get(kind).and_then(|value| value.as_table()) else {
            continue;
        };
        for (name, value) in dependencies {
            let renamed = value.get("package").and_then(|package| package.as_str());
            let package = renamed.unwrap_or(name);
            if let Some(name) = package.strip_prefix("remora-") {
                if name != TESTING || kind != "dev-dependencies" {
                    names.push(name.to_owned());
                }
            } else if package == "remora" || value.get("path").is_some() {
                names.push(package.to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        check(&Tree::of(files)).into_iter().map(|found| (found.line, found.message)).collect()
    }

    #[test]
    fn downward_imports_pass() {
        let files = [
            ("crates/ring/Cargo.toml", "[dependencies]\nremora-fabric.workspace = true\n"),
            ("crates/remora/Cargo.toml", "[dependencies]\nremora-server.workspace = true\n"),
            ("tests/Cargo.toml", "[dependencies]\nremora-server.workspace = true\n"),
            ("crates/arena/Cargo.toml", "[dependencies]\nrustix = \"1\"\n"),
        ];
        assert_eq!(messages(&files), []);
    }

    #[test]
    fn an_upward_import_is_caught_in_every_table() {
        for table in [
            "dependencies",
            "dev-dependencies",
            "build-dependencies",
            "target.'cfg(unix)'.dependencies",
        ] {
            let text = format!("[{table}]\nremora-engine.workspace = true\n");
            let found = messages(&[("crates/arena/Cargo.toml", &text)]);
            assert_eq!(found.len(), 1, "{table}");
            assert_eq!(found[0].0, 2, "{table}");
            assert!(found[0].1.contains("arena imports engine"), "{table}");
        }
    }

    #[test]
    fn only_tests_import_the_room_for_tests() {
        let text = |table| format!("[{table}]\nremora-testing.workspace = true\n");
        assert_eq!(messages(&[("crates/arena/Cargo.toml", &text("dev-dependencies"))]), []);
        assert_eq!(messages(&[("crates/arena/Cargo.toml", &text("dependencies"))]).len(), 1);
    }

    #[test]
    fn renames_and_paths_do_not_hide_an_import() {
        let renamed = "[dependencies]\nx = { package = \"remora-server\", path = \"../server\" }\n";
        assert_eq!(messages(&[("crates/layout/Cargo.toml", renamed)]).len(), 1);
        let tests = "[dev-dependencies]\nremora-tests = { path = \"../../tests\" }\n";
        assert!(messages(&[("crates/layout/Cargo.toml", tests)])[0].1.contains("none of crates/"));
    }

    #[test]
    fn an_unknown_room_is_caught() {
        let found = messages(&[("crates/attic/Cargo.toml", "[dependencies]\n")]);
        assert!(found[0].1.contains("not in the table"));
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        for (at, (name, allowed)) in CRATES.iter().enumerate() {
            for import in allowed.iter().copied().flatten() {
                let below = CRATES.iter().position(|(known, _)| known == import);
                assert!(below.is_some_and(|below| below < at), "{name} imports {import}");
            }
        }
    }
}
