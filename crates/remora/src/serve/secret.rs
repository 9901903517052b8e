//! Passwords in settings: neither the log nor the list of processes shows them.

use anyhow::Context;
use remora_server::Password;
use serde::Deserialize;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;

/// The flag of the password of `default`, and the variable that is the same.
const FLAG: &str = "--requirepass";
pub const VARIABLE: &str = "REMORA_REQUIREPASS";

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
}

/// The arguments without the password, and the password; `None` if they have none.
fn without_password(
    arguments: impl IntoIterator<Item = OsString>,
) -> Option<(Vec<OsString>, OsString)> {
    let (mut others, mut password, mut is_next) = (Vec::new(), None, false);
    for argument in arguments {
        let joined = argument.as_bytes().strip_prefix(FLAG.as_bytes());
        match joined {
            _ if is_next => {
                password = Some(argument);
                is_next = false;
            }
            Some(b"") => is_next = true,
            Some([b'=', value @ ..]) => {
                password = Some(std::ffi::OsStr::from_bytes(value).to_owned())
            }
            _ => others.push(argument),
        }
    }
    password.map(|password| (others, password))
}

/// If the password stands on the command line, where other users of the machine see it, the process
/// begins anew with the password in its environment, which they do not see.
///
/// # Errors
/// The program cannot be started again.
pub fn hide_password() -> anyhow::Result<()> {
    let Some((arguments, password)) = without_password(std::env::args_os().skip(1)) else {
        return Ok(());
    };
    let program = std::env::current_exe().context("finding this program, to hide the password")?;
    let error = Command::new(program).args(arguments).env(VARIABLE, password).exec();
    Err(error).context("starting anew, to hide the password from the list of processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_password_is_taken_out_of_the_arguments() {
        for text in ["serve --requirepass a=b --port 0", "serve --requirepass=a=b --port 0"] {
            let (others, password) = without_password(words(text)).unwrap();
            assert_eq!((others, password), (words("serve --port 0"), OsString::from("a=b")));
        }
        assert_eq!(without_password(words("serve --require pass --port 0")), None);
        assert_eq!(format!("{:?}", Secret("top".into())), "Secret(..)");
    }
}
