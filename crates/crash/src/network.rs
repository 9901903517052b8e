//! Network namespaces of the servers, and the links between them, which can be cut.
//!
//! ```text
//!   namespace of this process         namespace of server i
//!     s0 10.77.0.1  ---- veth ----    net0 10.77.0.2
//!     s1 10.77.1.1  ---- veth ----    net0 10.77.1.2
//!     forwards between them
//! ```
//! A cut is a rule that throws packets from one server to another away, in silence, as a broken
//! network does. This process reaches every server all the time. Nothing of it outlives this process:
//! each namespace ends with the process that holds it, and that one with our end of its pipe.

use anyhow::{Context, bail};
use remora_command_line::usage;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The flag of a process that has become the same command in a network namespace.
pub const FLAG: &str = "--in-network-namespace";

/// Port of each server's fabric address.
pub const FABRIC_PORT: u16 = 7400;

/// What begins a command in a namespace of its own: as root, as root of a user namespace, by sudo.
const LAUNCHERS: [&[&str]; 3] = [
    &["unshare", "--net"],
    &["unshare", "--user", "--map-root-user", "--net"],
    &["sudo", "-n", "unshare", "--net"],
];
/// Whether a namespace has what links take.
const PROBE: &str = "ip link add s0 type veth peer name net0 && ip rule add from 10.77.0.2 to 10.77.1.2 blackhole && \
     echo 1 >/proc/sys/net/ipv4/ip_forward";

/// Becomes the same command in a network namespace of its own, with `flag` as its last word. Returns
/// only if this machine does not let us, with the reason.
pub fn enter(flag: &str) -> anyhow::Result<String> {
    let mut command = match launch() {
        Ok(command) => command,
        Err(reason) => return Ok(reason),
    };
    let binary = std::env::current_exe().context("cannot find this binary")?;
    let error = command.arg(binary).args(std::env::args_os().skip(1)).arg(flag).exec();
    Err(error).context("beginning in a network namespace")
}

/// The first launcher that works here; the reasons if none does.
fn launch() -> Result<Command, String> {
    let mut reasons = Vec::new();
    for words in LAUNCHERS {
        let begin = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        match begin().args(["sh", "-c", PROBE]).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(begin()),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                reasons.push(format!("{}: {text}", words.join(" ")));
            }
            Err(error) => reasons.push(format!("{}: {error}", words[0])),
        }
    }
    Err(reasons.join(", "))
}

/// Packets from one server to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneWay {
    /// Server that sends them.
    pub from: usize,
    /// Server that they are for.
    pub to: usize,
}

/// See the module's text.
#[derive(Debug)]
pub struct Network {
    holders: Vec<Child>,
    cut: Vec<OneWay>,
}

impl Network {
    /// A namespace for each server, all of them linked. This process has one of its own.
    pub fn build(servers: usize) -> anyhow::Result<Self> {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("forwarding packets")?;
        run(ip(&[]), "link set lo up\n").context("the own namespace")?;
        let mut network = Self { holders: Vec::new(), cut: Vec::new() };
        for server in 0..servers {
            network.add(server).with_context(|| format!("the namespace of server {server}"))?;
        }
        Ok(network)
    }

    fn add(&mut self, server: usize) -> anyhow::Result<()> {
        let mut holder = Command::new("unshare");
        // It says something once it is in its namespace, and ends with its input.
        holder.args(["--net", "sh", "-c", "echo; exec cat"]).process_group(0);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = [0];
        let out = holder.stdout.as_mut().context("no pipe from the holder")?;
        std::io::Read::read_exact(out, &mut said).context("waiting for the namespace")?;
        let pid = holder.id();
        self.holders.push(holder);
        let ours = format!(
            "link add s{server} type veth peer name net0 netns {pid}\n\
             addr add 10.77.{server}.1/24 dev s{server}\nlink set s{server} up\n"
        );
        run(ip(&[]), &ours)?;
        let theirs = format!(
            "link set lo up\naddr add 10.77.{server}.2/24 dev net0\nlink set net0 up\n\
             route add default via 10.77.{server}.1\n"
        );
        run(ip(&self.launcher(server)), &theirs)
    }

    /// What begins a command in the namespace of a server.
    pub fn launcher(&self, server: usize) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holders[server].id())]
    }

    /// The host of a server.
    pub fn host(server: usize) -> String {
        format!("10.77.{server}.2")
    }

    /// Throws these packets away from now on.
    pub fn cut(&mut self, ways: &[OneWay]) -> anyhow::Result<()> {
        run(ip(&[]), &rules("add", ways)).context("cutting links")?;
        self.cut.extend(ways);
        Ok(())
    }

    /// Lets all packets through again.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        let ways = std::mem::take(&mut self.cut);
        run(ip(&[]), &rules("del", &ways)).context("healing links")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

fn rules(verb: &str, ways: &[OneWay]) -> String {
    let rule = |OneWay { from, to }: &OneWay| {
        let (from, to) = (Network::host(*from), Network::host(*to));
        format!("rule {verb} from {from} to {to} blackhole\n")
    };
    ways.iter().map(rule).collect()
}

/// `ip`, behind the words of a launcher, reading commands.
fn ip(launcher: &[String]) -> Command {
    let words = launcher.iter().map(String::as_str).chain(["ip", "-batch", "-"]);
    let words: Vec<&str> = words.collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn run(mut command: Command, input: &str) -> anyhow::Result<()> {
    if input.is_empty() {
        return Ok(());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| usage(format!("ip: {error}")))?;
    child.stdin.take().context("no pipe to ip")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("ip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the process that has a namespace of its own.
    const INSIDE: &str = "CRASH_TEST_INSIDE";

    /// Whether packets from server 0 reach server 1, and its answer comes back: a refusal comes at once.
    fn is_linked(network: &Network) -> bool {
        let launcher = network.launcher(0);
        let connect = ["timeout", "0.5", "bash", "-c", "</dev/tcp/10.77.1.2/9"];
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).args(connect).stderr(Stdio::null());
        match command.status().unwrap().code() {
            Some(1) => true,
            Some(124) => false,
            other => panic!("timeout ended with {other:?}"),
        }
    }

    #[test]
    fn a_cut_is_silent_and_one_way_and_heals() {
        if std::env::var_os(INSIDE).is_none() {
            let mut command = match launch() {
                Ok(command) => command,
                Err(reason) => return println!("cuts of links DID NOT RUN: {reason}"),
            };
            let name = "network::tests::a_cut_is_silent_and_one_way_and_heals";
            command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
            let output = command.env(INSIDE, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let mut network = Network::build(3).unwrap();
        assert!(is_linked(&network));
        let (there, back) = (OneWay { from: 0, to: 1 }, OneWay { from: 1, to: 0 });
        for ways in [&[there][..], &[back], &[there, back]] {
            network.cut(ways).unwrap();
            assert!(!is_linked(&network), "{ways:?}");
            network.heal().unwrap();
            assert!(is_linked(&network), "{ways:?}");
        }
        network.cut(&[OneWay { from: 0, to: 2 }]).unwrap();
        assert!(is_linked(&network), "another pair");
    }
}
