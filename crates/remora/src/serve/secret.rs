//! Passwords in settings: neither the log nor the list of processes shows them.

use anyhow::Context;
use remora_server::Password;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;

/// The variable of the password of `default`.
pub const VARIABLE: &str = "REMORA_REQUIREPASS";
/// The variable of the password at other servers.
pub const PEER_VARIABLE: &str = "REMORA_PEER_PASSWORD";
/// The flags that are the same as the variables.
const FLAGS: [(&str, &str); 2] = [("--requirepass", VARIABLE), ("--peer-password", PEER_VARIABLE)];

/// A password of a setting.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// For the server; `None` if it is empty.
    pub fn password(&self) -> Option<Password> {
        (!self.0.is_empty()).then(|| Password(self.0.clone().into_bytes()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The arguments without passwords, and these with the variables that are the same.
fn without_passwords(
    arguments: impl IntoIterator<Item = OsString>,
) -> (Vec<OsString>, Vec<(&'static str, OsString)>) {
    let (mut others, mut passwords, mut is_next) = (Vec::new(), Vec::new(), None);
    for argument in arguments {
        if let Some(variable) = is_next.take() {
            passwords.push((variable, argument));
            continue;
        }
        let joined = FLAGS.iter().find_map(|(flag, variable)| {
            Some((argument.as_bytes().strip_prefix(flag.as_bytes())?, *variable))
        });
        match joined {
            Some((b"", variable)) => is_next = Some(variable),
            Some(([b'=', value @ ..], variable)) => {
                passwords.push((variable, OsStr::from_bytes(value).to_owned()));
            }
            _ => others.push(argument),
        }
    }
    (others, passwords)
}

/// If a password stands on the command line, where other users of the machine see it, the process
/// begins anew with it in its environment, which they do not see.
///
/// # Errors
/// The program cannot be started again.
pub fn hide_passwords() -> anyhow::Result<()> {
    let (arguments, passwords) = without_passwords(std::env::args_os().skip(1));
    if passwords.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().context("finding this program, to hide a password")?;
    let error = Command::new(program).args(arguments).envs(passwords).exec();
    Err(error).context("starting anew, to hide a password from the list of processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn passwords_are_taken_out_of_the_arguments() {
        for text in [
            "serve --requirepass a=b --peer-password c --port 0",
            "serve --requirepass=a=b --peer-password=c --port 0",
        ] {
            let (others, passwords) = without_passwords(words(text));
            assert_eq!(others, words("serve --port 0"));
            assert_eq!(passwords, [(VARIABLE, "a=b".into()), (PEER_VARIABLE, "c".into())]);
        }
        let none = words("serve --require pass --port 0");
        assert_eq!(without_passwords(none.clone()), (none, Vec::new()));
        assert_eq!(format!("{:?}", Secret("top".into())), "Secret(..)");
    }
}
