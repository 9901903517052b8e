//! Which of this machine's environment variables the bare one is given: how to
//! reach networks and registries, and no secrets.

/// Environment variables with proxies and certificates, in lower case.
const NETWORK_VARIABLES: [&str; 11] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "ssl_cert_file",
    "ssl_cert_dir",
    "curl_ca_bundle",
    "git_ssl_cainfo",
    "goproxy",
    "gosumdb",
];
/// Beginnings of cargo's variables about networks and registries.
const CARGO_VARIABLES: [&str; 4] =
    ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_SOURCE_"];

/// The variables that programs in the chroot are given from outside.
pub fn network_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars().filter(|(name, _)| carries_over(name))
}

fn carries_over(name: &str) -> bool {
    let secret = ["TOKEN", "PASSWORD", "SECRET", "CREDENTIAL"];
    let wanted = NETWORK_VARIABLES.contains(&name.to_ascii_lowercase().as_str())
        || CARGO_VARIABLES.iter().any(|start| name.starts_with(start));
    wanted && !secret.iter().any(|word| name.to_ascii_uppercase().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_carried_over_and_secrets_are_not() {
        for name in ["HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "CARGO_HTTP_CAINFO", "GOPROXY"] {
            assert!(carries_over(name), "{name}");
        }
        for name in ["HOME", "CARGO_REGISTRIES_X_TOKEN", "CARGO_REGISTRY_TOKEN", "RUSTFLAGS"] {
            assert!(!carries_over(name), "{name}");
        }
    }
}
