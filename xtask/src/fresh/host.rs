//! What this machine knows that the bare one must be told: its mirror, its
//! proxies, its certificates, its toolchain. Everything is read at run time;
//! secrets (tokens, passwords of registries) are not carried over.

use super::chroot::{Chroot, RELEASE};
use super::environment::network_variables;
use super::sources;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tables of cargo's configuration about networks and registries.
const CARGO_TABLES: [&str; 5] = ["source", "registries", "registry", "http", "net"];
/// apt's settings about how to fetch.
const APT_SETTINGS: [&str; 5] = [
    "Acquire::http",
    "Acquire::Check-",
    "Acquire::Retries",
    "Acquire::Force",
    "Acquire::Max-FutureTime",
];
/// Files copied as they are, where they exist.
const FILES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"];
/// Certificates of this machine's own; `update-ca-certificates` takes them up.
const CERTIFICATES: &str = "/usr/local/share/ca-certificates";

/// What was found on this machine.
pub struct Host {
    /// Root of the active Rust toolchain.
    pub sysroot: PathBuf,
    /// Debian mirror; `None` leaves it to debootstrap.
    pub mirror: Option<String>,
    sources_list: String,
    apt_settings: String,
    cargo_config: String,
}

impl Host {
    /// Looks at apt, cargo and rustc.
    pub fn look(root: &Path) -> Result<Self> {
        let [apt_get, arguments @ ..] = sources::COMMAND;
        let sources = sources::read(&output(apt_get, &arguments, root).unwrap_or_default());
        let settings = output("apt-config", &["dump"], root).unwrap_or_default();
        let sysroot = PathBuf::from(output("rustc", &["--print", "sysroot"], root)?.trim());
        if !sysroot.join("bin/cargo").exists() {
            bail!("the toolchain at {} has no bin/cargo to copy", sysroot.display());
        }
        Ok(Self {
            sysroot,
            mirror: sources::mirror(&sources, RELEASE).map(str::to_owned),
            sources_list: sources::list_for(&sources, RELEASE),
            apt_settings: apt_settings(&settings),
            cargo_config: cargo_config(&own_cargo_config()),
        })
    }

    /// Writes into the chroot what it needs to reach the registries.
    pub fn furnish(&self, chroot: &Chroot) -> Result<()> {
        if !self.sources_list.is_empty() {
            chroot.write("/etc/apt/sources.list", &self.sources_list)?;
        }
        chroot.write("/etc/apt/apt.conf.d/90fresh", &self.apt_settings)?;
        if !self.cargo_config.is_empty() {
            chroot.write("/root/.cargo/config.toml", &self.cargo_config)?;
        }
        let named: Vec<PathBuf> = network_variables()
            .map(|(_, value)| PathBuf::from(value))
            .filter(|path| path.is_absolute() && path.is_file())
            .collect();
        let own = std::fs::read_dir(CERTIFICATES).into_iter().flatten().flatten();
        let files = FILES.iter().map(PathBuf::from).chain(named).chain(own.map(|own| own.path()));
        for file in files.filter(|file| file.is_file()) {
            chroot.copy_file(&file)?;
        }
        Ok(())
    }
}

fn apt_settings(dump: &str) -> String {
    let wanted = |line: &&str| {
        APT_SETTINGS.iter().any(|start| line.starts_with(start)) && !line.ends_with(" \"\";")
    };
    dump.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

/// This user's cargo configuration, empty where there is none.
fn own_cargo_config() -> String {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let Some(home) = home else { return String::new() };
    ["config.toml", "config"]
        .iter()
        .find_map(|name| std::fs::read_to_string(home.join(name)).ok())
        .unwrap_or_default()
}

/// The parts of a cargo configuration that say how registries are reached.
fn cargo_config(text: &str) -> String {
    let mut config: toml::Table = text.parse().unwrap_or_default();
    config.retain(|name, _| CARGO_TABLES.contains(&name));
    for (_, value) in config.iter_mut() {
        forget_secrets(value);
    }
    if config.is_empty() { String::new() } else { config.to_string() }
}

fn forget_secrets(value: &mut toml::Value) {
    if let Some(table) = value.as_table_mut() {
        table.retain(|name, _| !name.contains("token") && !name.contains("credential"));
        for (_, value) in table.iter_mut() {
            forget_secrets(value);
        }
    }
}

fn output(program: &str, arguments: &[&str], directory: &Path) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .with_context(|| format!("{program} could not be run"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_apt_only_how_to_fetch() {
        let dump = "APT::Install-Recommends \"1\";\nAcquire::http \"\";\n\
            Acquire::http::Proxy \"http://p.example:1\";\nAcquire::Check-Date \"false\";\n";
        let kept = "Acquire::http::Proxy \"http://p.example:1\";\nAcquire::Check-Date \"false\";\n";
        assert_eq!(apt_settings(dump), kept);
    }

    #[test]
    fn of_cargo_only_the_registries_without_tokens() {
        let text = "[build]\njobs = 1\n[registries.own]\nindex = \"sparse+http://r.example/\"\ntoken = \"s\"\n[net]\nretry = 3\n";
        let kept = cargo_config(text);
        assert!(kept.contains("r.example") && kept.contains("retry"));
        assert!(!kept.contains("token") && !kept.contains("jobs"));
        assert_eq!(cargo_config(""), "");
    }
}
