//! The password file of PostgreSQL's own clients: `host:port:database:user:password` on each line.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a password is for.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The host; `localhost` for a Unix socket.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The database.
    pub database: &'a str,
    /// The user.
    pub user: &'a str,
}

/// The file: `PGPASSFILE`, else `.pgpass` at home.
pub fn file() -> Option<PathBuf> {
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pgpass")))
}

/// The password for a login, if the file is there and has one.
///
/// # Errors
/// Others than its owner may read the file, or it cannot be read.
pub fn password(file: &Path, login: Login<'_>) -> Result<Option<String>, String> {
    let Ok(metadata) = std::fs::metadata(file) else { return Ok(None) };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(format!("{}: others may read it: chmod 600", file.display()));
    }
    let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.find_map(|line| of_line(line, login)))
}

fn of_line(line: &str, login: Login<'_>) -> Option<String> {
    let parts = split(line);
    let [host, port, database, user, password] = &parts[..] else { return None };
    let fits = |part: &str, value: &str| part == "*" || part == value;
    let is_its = fits(host, login.host)
        && fits(port, &login.port.to_string())
        && fits(database, login.database)
        && fits(user, login.user);
    is_its.then(|| password.clone())
}

/// The parts between colons; `\` takes the next character as it is.
fn split(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = parts.last_mut().expect("there is one");
        match character {
            ':' => parts.push(String::new()),
            '\\' => last.extend(characters.next()),
            _ => last.push(character),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: Login<'_> =
        Login { host: "db.example", port: 5432, database: "shop", user: "reader" };

    fn found(text: &str, mode: u32) -> Result<Option<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pgpass");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        password(&file, LOGIN)
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# db.example:5432:shop:reader:comment\n\
                    db.example:5433:shop:reader:port\nshort:line\n\
                    *:*:shop:reader:a\\:b\\\\c\ndb.example:5432:shop:reader:later\n";
        assert_eq!(found(text, 0o600).unwrap().unwrap(), "a:b\\c");
        assert_eq!(found("other:*:*:*:x\n", 0o600).unwrap(), None);
        assert_eq!(password(Path::new("/nowhere"), LOGIN).unwrap(), None);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        assert!(found("*:*:*:*:x\n", 0o640).unwrap_err().contains("chmod 600"));
    }
}
