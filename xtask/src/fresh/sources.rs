//! Where this machine gets Debian from, as apt itself lists it.

/// One source: an address, a suite and a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Address of the archive.
    pub uri: String,
    /// A release, or a part of one such as its security updates.
    pub suite: String,
    /// A component of it.
    pub component: String,
}

/// The command that lists the enabled binary sources, one a line.
pub const COMMAND: [&str; 5] = [
    "apt-get",
    "indextargets",
    "--format",
    "$(REPO_URI) $(RELEASE) $(COMPONENT)",
    "Created-By: Packages",
];

/// The sources that [`COMMAND`] has listed, in apt's order. Flat ones, which have no
/// component, are left out.
pub fn read(listed: &str) -> Vec<Source> {
    let source = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [uri, suite, component] if !component.is_empty() => Some(Source {
            uri: uri.to_owned(),
            suite: suite.to_owned(),
            component: component.to_owned(),
        }),
        _ => None,
    };
    listed.lines().filter_map(source).collect()
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
            && source.component == "main"
    };
    let sources = sources.iter().filter(of_release);
    sources.map(|source| format!("deb {} {} main\n", source.uri, source.suite)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suite: &str, component: &str) -> Source {
        Source { uri: uri.into(), suite: suite.into(), component: component.into() }
    }

    #[test]
    fn what_apt_lists_is_read() {
        let listed = "http://a.example/debian/ bookworm main\n\
            http://a.example/debian/ bookworm contrib\nhttp://flat.example/ ./ \n";
        let wanted = [
            source("http://a.example/debian/", "bookworm", "main"),
            source("http://a.example/debian/", "bookworm", "contrib"),
        ];
        assert_eq!(read(listed), wanted);
    }

    #[test]
    fn the_release_is_picked_out() {
        let sources = [
            source("http://a.example", "stable", "main"),
            source("http://b.example", "bookworm-security", "main"),
            source("http://c.example", "bookworm", "main"),
            source("http://c.example", "bookworm", "contrib"),
            source("http://d.example", "bookworm", "tools"),
        ];
        assert_eq!(mirror(&sources, "bookworm"), Some("http://c.example"));
        assert_eq!(mirror(&sources[..2], "bookworm"), None);
        let list =
            "deb http://b.example bookworm-security main\ndeb http://c.example bookworm main\n";
        assert_eq!(list_for(&sources, "bookworm"), list);
    }
}
