//! Where this machine gets Debian from: apt's sources, in both their forms.

use std::path::Path;

/// One source: an address, a suite and its components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Address of the archive.
    pub uri: String,
    /// A release, or a part of one such as its security updates.
    pub suite: String,
    /// Components, separated by spaces.
    pub components: String,
}

/// The enabled binary sources under `/etc/apt`, in apt's order.
pub fn read(apt: &Path) -> Vec<Source> {
    let mut sources = std::fs::read_to_string(apt.join("sources.list"))
        .map(|text| one_line(&text))
        .unwrap_or_default();
    let entries = std::fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(one_line(&text)),
            Some("sources") => sources.extend(deb822(&text)),
            _ => {}
        }
    }
    sources
}

/// `deb [options] uri suite component...`, one a line.
fn one_line(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '[']))
        else {
            continue;
        };
        let rest = match rest.trim_start().strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        if let [uri, suite, components @ ..] = words.as_slice() {
            sources.push(Source {
                uri: (*uri).to_owned(),
                suite: (*suite).to_owned(),
                components: components.join(" "),
            });
        }
    }
    sources
}

/// Stanzas of fields: `Types`, `URIs`, `Suites`, `Components`, `Enabled`.
fn deb822(text: &str) -> Vec<Source> {
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut sources = Vec::new();
    for stanza in kept.split(|line| line.trim().is_empty()) {
        let field = |name: &str| field(stanza, name);
        if field("enabled").eq_ignore_ascii_case("no")
            || !field("types").split_whitespace().any(|kind| kind == "deb")
        {
            continue;
        }
        for uri in field("uris").split_whitespace() {
            for suite in field("suites").split_whitespace() {
                sources.push(Source {
                    uri: uri.to_owned(),
                    suite: suite.to_owned(),
                    components: field("components"),
                });
            }
        }
    }
    sources
}

/// The value of a field, with its continuation lines.
fn field(stanza: &[&str], name: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in stanza {
        if line.starts_with([' ', '\t']) {
            if inside {
                words.extend(line.split_whitespace());
            }
        } else if let Some((key, value)) = line.split_once(':') {
            inside = key.trim().eq_ignore_ascii_case(name);
            if inside {
                words.extend(value.split_whitespace());
            }
        }
    }
    words.join(" ")
}

/// The mirror for a release: the first source of exactly that suite.
pub fn mirror<'s>(sources: &'s [Source], release: &str) -> Option<&'s str> {
    sources.iter().find(|source| source.suite == release).map(|source| source.uri.as_str())
}

/// Lines of a `sources.list` with the sources of a release: itself, its
/// updates, its security updates.
pub fn list_for(sources: &[Source], release: &str) -> String {
    let of_release = |source: &&Source| {
        source
            .suite
            .strip_prefix(release)
            .is_some_and(|rest| ["", "-updates", "-security", "/updates"].contains(&rest))
            && source.components.split_whitespace().any(|component| component == "main")
    };
    let sources = sources.iter().filter(of_release);
    sources.map(|source| format!("deb {} {} main\n", source.uri, source.suite)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suite: &str, components: &str) -> Source {
        Source { uri: uri.into(), suite: suite.into(), components: components.into() }
    }

    #[test]
    fn one_line_form() {
        let text = "# deb http://a.example x main\n\
            deb [arch=amd64 signed-by=/k] http://b.example/debian bookworm main contrib # note\n\
            deb-src http://c.example bookworm main\n\
            deb http://d.example ./\n";
        let wanted = [
            source("http://b.example/debian", "bookworm", "main contrib"),
            source("http://d.example", "./", ""),
        ];
        assert_eq!(one_line(text), wanted);
    }

    #[test]
    fn deb822_form() {
        let text = "Types: deb deb-src\n# a note\nURIs: http://a.example/debian\n  http://b.example/debian\n\
            Suites: bookworm bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n\n\
            Types: deb\nEnabled: no\nURIs: http://c.example\nSuites: bookworm\nComponents: main\n\n\
            Types: deb-src\nURIs: http://d.example\nSuites: bookworm\nComponents: main\n";
        let wanted = [
            source("http://a.example/debian", "bookworm", "main"),
            source("http://a.example/debian", "bookworm-updates", "main"),
            source("http://b.example/debian", "bookworm", "main"),
            source("http://b.example/debian", "bookworm-updates", "main"),
        ];
        assert_eq!(deb822(text), wanted);
    }

    #[test]
    fn the_release_is_picked_out() {
        let sources = [
            source("http://a.example", "stable", "main"),
            source("http://b.example", "bookworm-security", "main"),
            source("http://c.example", "bookworm", "main contrib"),
            source("http://d.example", "bookworm", "tools"),
        ];
        assert_eq!(mirror(&sources, "bookworm"), Some("http://c.example"));
        assert_eq!(mirror(&sources[..2], "bookworm"), None);
        let list =
            "deb http://b.example bookworm-security main\ndeb http://c.example bookworm main\n";
        assert_eq!(list_for(&sources, "bookworm"), list);
    }
}
