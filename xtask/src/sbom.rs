//! `cargo xtask sbom`: what the binary `remora` is made of, as a bill of materials in the form of
//! CycloneDX 1.5.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The package of the binary.
const BINARY: &str = "remora";
/// Below the target directory.
const FILE: &str = "sbom.cdx.json";

/// Writes the bill, and prints where it is.
pub fn write(root: &Path) -> Result<ExitCode> {
    let metadata = metadata(root)?;
    let target = metadata["target_directory"].as_str().context("cargo names a target directory")?;
    std::fs::create_dir_all(target).context("the target directory cannot be made")?;
    let path = Path::new(target).join(FILE);
    std::fs::write(&path, format!("{:#}\n", bill(&metadata)?))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// What cargo knows of the workspace and its dependencies.
fn metadata(root: &Path) -> Result<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--locked", "--format-version=1"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(root);
    let output = cargo.output().context("cargo cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {said}");
    serde_json::from_slice(&output.stdout).context("cargo's metadata is no JSON")
}

/// The packages of the binary, and of what builds it: not those of tests.
fn bill(metadata: &Value) -> Result<Value> {
    let list = |of: &Value, what: &'static str| of.as_array().cloned().context(what);
    let packages: BTreeMap<String, Value> = list(&metadata["packages"], "packages")?
        .into_iter()
        .map(|package| (id(&package["id"]), package))
        .collect();
    let needs: BTreeMap<String, BTreeSet<String>> = list(&metadata["resolve"]["nodes"], "nodes")?
        .iter()
        .map(|node| (id(&node["id"]), needed(node)))
        .collect();
    let (root, _) = packages
        .iter()
        .find(|(_, package)| package["name"] == BINARY)
        .with_context(|| format!("there is no package {BINARY}"))?;
    let mut reached = BTreeSet::new();
    let mut waiting = vec![root.clone()];
    while let Some(next) = waiting.pop() {
        if reached.insert(next.clone()) {
            waiting.extend(needs.get(&next).into_iter().flatten().cloned());
        }
    }
    let parts = reached.iter().filter(|of| *of != root).filter_map(|of| packages.get(of));
    let dependencies = reached.iter().map(|of| {
        let needs: Vec<String> =
            needs[of].iter().filter_map(|of| Some(url(packages.get(of)?))).collect();
        json!({ "ref": url(&packages[of]), "dependsOn": needs })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(&packages[root], "application") },
        "components": parts.map(|of| component(of, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn id(of: &Value) -> String {
    of.as_str().unwrap_or_default().to_owned()
}

/// The packages that one needs where it runs or is built.
fn needed(node: &Value) -> BTreeSet<String> {
    let of_tests = |kind: &Value| kind["kind"] == "dev";
    let all = node["deps"].as_array().into_iter().flatten();
    let used = all.filter(|of| {
        let mut kinds = of["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| !of_tests(kind))
    });
    used.map(|of| id(&of["pkg"])).collect()
}

/// Its package URL.
fn url(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", id(&package["name"]), id(&package["version"]))
}

fn component(package: &Value, kind: &str) -> Value {
    json!({
        "type": kind,
        "bom-ref": url(package),
        "name": package["name"],
        "version": package["version"],
        "purl": url(package),
        "licenses": [{ "expression": package["license"] }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_the_binary_needs_and_no_more() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let bill = bill(&metadata(root).unwrap()).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], BINARY);
        let parts = bill["components"].as_array().unwrap();
        let names: BTreeSet<&str> =
            parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
        for needed in ["remora-server", "rustls", "ring", "cc"] {
            assert!(names.contains(needed), "{needed}");
        }
        // Of tests, and of another system.
        for other in ["rcgen", "proptest", "xtask", "windows-sys", BINARY] {
            assert!(!names.contains(other), "{other}");
        }
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap();
        for part in parts {
            let (name, version) = (id(&part["name"]), id(&part["version"]));
            assert!(
                lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")),
                "{name}"
            );
            assert!(part["licenses"][0]["expression"].is_string(), "{name} names no licence");
        }
        let known: BTreeSet<String> = parts.iter().map(|part| id(&part["bom-ref"])).collect();
        for dependency in bill["dependencies"].as_array().unwrap() {
            for on in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(&id(on)), "{on} is no part");
            }
        }
    }
}
