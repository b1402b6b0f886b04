//! `cargo xtask tidy`: the rules of the source tree that a machine can check.
//!
//! Sources are read as text, without a parser: see [`Scan`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail, ensure};

use crate::ptx::{self, Header};
use crate::say;
use crate::scan::Scan;

/// Where `unsafe` may stand: the CUDA driver and the vector kernels of `timing`, the vector and C modules of each study,
/// and the compiler that `cargo xtask ptx` opens (`nvrtc.rs`). `*` is any part of one name, a pattern that ends in `/` is a whole folder.
const UNSAFE_ROOMS: [&str; 7] = [
    "crates/timing/src/cuda.rs",
    "crates/timing/src/cuda/",
    "crates/timing/src/cpu/avx512.rs",
    "crates/*/src/cpu/avx512*.rs",
    "crates/*/src/cpu/avx2*.rs",
    "crates/*/src/cpu/c_baseline.rs",
    "xtask/src/nvrtc.rs",
];

/// Workspace crates that are no studies, and the workspace crates that each may depend on (none: any).
const MECHANISM: [(&str, Option<&[&str]>); 4] =
    [("timing", Some(&[])), ("report", Some(&["timing"])), ("simt", Some(&["timing"])), ("reproduce", None)];
/// The workspace crates that a study may depend on.
const FOR_STUDIES: &[&str] = &["timing", "report", "simt"];

/// Folders below which everything is of one person or one machine.
const MACHINE_FOLDERS: [&str; 5] = ["/home/", "/Users/", "/root/", "/tmp/", ":\\Users\\"];

/// Ends of files that hold text: one that is not UTF-8 would escape the rules.
const TEXTS: [&str; 7] = [".rs", ".toml", ".md", ".cu", ".cuh", ".ptx", ".c"];

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn violation(file: &str, line: usize, what: impl Into<String>) -> Violation {
    Violation { file: file.to_string(), line, what: what.into() }
}

/// Checks the tree below `root` and prints each violation on a line.
///
/// # Errors
/// A file cannot be read, or there is any violation.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let violations = tree.check()?;
    for violation in &violations {
        say!("{violation}")?;
    }
    match violations.len() {
        0 => say!("{} files of {} crates keep the rules", tree.files.len(), tree.crates().len())?,
        n => bail!("broken rules: {n}"),
    }
    Ok(())
}

/// The text files of the tree by their path in it.
struct Tree {
    files: BTreeMap<String, String>,
    /// Where the tree lies, as far as that names one machine.
    place: Option<String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self { files: BTreeMap::new(), place: place_of(root) };
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, root: &Path, folder: &str) -> Result<()> {
        for path in ptx::folder(&root.join(folder))? {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let at = format!("{folder}{name}");
            let hidden = name.starts_with('.') && ![".ci", ".cargo", ".github"].contains(&name.as_str());
            let built = folder.is_empty() && ["target", "dist", "out"].contains(&name.as_str());
            if hidden || built || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                self.add(root, &format!("{at}/"))?;
                continue;
            }
            match String::from_utf8(fs::read(&path).with_context(|| format!("cannot read {at}"))?) {
                Ok(text) => {
                    self.files.insert(at, text);
                }
                Err(_) if TEXTS.iter().any(|end| at.ends_with(end)) => bail!("{at} is not UTF-8"),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<Vec<Violation>> {
        let crates = self.crates();
        ensure!(!crates.is_empty(), "no crates/*/Cargo.toml: nothing to check");
        let mut found = Vec::new();
        for (file, text) in &self.files {
            found.extend(machine_paths(file, text, self.place.as_deref()));
            let of_crate = file.strip_prefix("crates/").and_then(|rest| Some(rest.split_once('/')?.0));
            if let Some(name) = of_crate.filter(|name| !crates.contains(*name)) {
                found.push(violation(
                    &format!("crates/{name}/Cargo.toml"),
                    1,
                    "missing; a folder in crates/ is a package",
                ));
            }
            if file.ends_with(".rs") {
                found.extend(rust(file, text));
            }
        }
        for name in &crates {
            found.extend(self.kernels(name));
            found.extend(self.ladder(name));
        }
        found.extend(self.packages()?);
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Folders in `crates/` that hold a package.
    fn crates(&self) -> BTreeSet<String> {
        let manifests = self.files.keys().filter_map(|file| file.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
        manifests.filter(|name| !name.contains('/')).map(str::to_string).collect()
    }

    /// Every kernel: header, PTX, entries; in a study also its place in the ladder.
    fn kernels(&self, krate: &str) -> Vec<Violation> {
        let folder = format!("crates/{krate}/kernels/");
        let mut found = Vec::new();
        for (file, text) in self.files.range(folder.clone()..).take_while(|(file, _)| file.starts_with(&folder)) {
            let Some(stem) = file[folder.len()..].strip_suffix(".cu").filter(|stem| !stem.contains('/')) else {
                continue;
            };
            match Header::parse(text) {
                Err(error) => found.push(violation(file, 1, format!("{error:#}"))),
                Ok(header) if header.words == 0 => {
                    found.push(violation(
                        file,
                        1,
                        "the // lines at the top say what the kernel does and why, not only its target",
                    ));
                }
                Ok(_) => {}
            }
            let ptx = format!("ptx/{krate}/{stem}.ptx");
            match self.files.get(&ptx) {
                None => found.push(violation(file, 1, format!("no {ptx}; `cargo xtask ptx` writes it"))),
                Some(text) => {
                    let entries = ptx::entries(text);
                    let strays = entries.iter().filter(|entry| stem_of(entry) != stem);
                    found
                        .extend(strays.map(|entry| {
                            violation(file, 1, format!("entry {entry}; allowed: {stem} or {stem}__PART"))
                        }));
                    if entries.is_empty() {
                        found.push(violation(file, 1, format!("{ptx} has no entry; allowed: {stem} or {stem}__PART")));
                    }
                }
            }
            if is_study(krate) && !self.rungs(krate).iter().any(|(_, rung)| rung == stem) {
                let what = format!("\"{stem}\" is not in crates/{krate}/src/ladder.rs, the list of all rungs");
                found.push(violation(file, 1, what));
            }
        }
        found
    }

    /// Rungs that `src/ladder.rs` names in string literals: line and stem.
    fn rungs(&self, krate: &str) -> Vec<(usize, String)> {
        let Some(ladder) = self.files.get(&format!("crates/{krate}/src/ladder.rs")) else { return Vec::new() };
        let mut rungs: Vec<(usize, String)> = Vec::new();
        for (line, text) in Scan::of(ladder).strings {
            let stem = stem_of(&text).to_string();
            if is_stem(&stem) && !rungs.iter().any(|(_, known)| *known == stem) {
                rungs.push((line, stem));
            }
        }
        rungs
    }

    /// A study has a ladder, and every rung of it has a source and a heading in FINDINGS.md.
    fn ladder(&self, krate: &str) -> Vec<Violation> {
        if !is_study(krate) {
            return Vec::new();
        }
        let findings = format!("crates/{krate}/FINDINGS.md");
        let text = self.files.get(&findings).map_or("", String::as_str);
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        let has = |stem: &str| {
            let mut words = headings.iter().flat_map(|h| h.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
            words.any(|word| word == stem)
        };
        let ladder = format!("crates/{krate}/src/ladder.rs");
        let rungs = self.rungs(krate);
        let mut found = Vec::new();
        if rungs.is_empty() {
            found.push(violation(&ladder, 1, "names no rung; a study has a list of its rungs here"));
        }
        for (line, stem) in rungs {
            if !has(&stem) {
                found.push(violation(&ladder, line, format!("{findings} has no heading with {stem}")));
            }
            let sources = ["kernels", "src/cpu"].map(|folder| format!("crates/{krate}/{folder}/{stem}"));
            if !self.files.contains_key(&format!("{}.cu", sources[0]))
                && !self.files.contains_key(&format!("{}.rs", sources[1]))
            {
                let what = format!("{stem} has no source; allowed: {}.cu or {}.rs", sources[0], sources[1]);
                found.push(violation(&ladder, line, what));
            }
        }
        found
    }

    /// What depends on what, and `bench = false`.
    fn packages(&self) -> Result<Vec<Violation>> {
        let crates = self.crates();
        let mut found = Vec::new();
        let manifests = crates.iter().map(|name| format!("crates/{name}")).chain(["xtask".to_string()]);
        for folder in manifests {
            let file = format!("{folder}/Cargo.toml");
            let Some(text) = self.files.get(&file) else {
                found.push(violation(&file, 1, "missing"));
                continue;
            };
            let manifest: toml::Table = toml::from_str(text).with_context(|| format!("{file} is no TOML"))?;
            found.extend(self.bench(&folder, &file, text, &manifest));
            if let Some(name) = folder.strip_prefix("crates/") {
                let allowed = match MECHANISM.iter().find(|(mechanism, _)| *mechanism == name) {
                    Some((_, None)) => continue,
                    Some((_, Some(allowed))) => *allowed,
                    None => FOR_STUDIES,
                };
                for dependency in dependencies(&manifest) {
                    if crates.contains(&dependency) && !allowed.contains(&dependency.as_str()) && dependency != name {
                        let list = if allowed.is_empty() { "none".to_string() } else { allowed.join(", ") };
                        let what = format!("{name} depends on {dependency}; allowed of the workspace: {list}");
                        found.push(violation(&file, line_of(text, &dependency), what));
                    }
                }
            }
        }
        Ok(found)
    }

    /// `cargo bench -- FLAG` dies in the test harness of a library or binary that does not opt out.
    fn bench(&self, folder: &str, file: &str, text: &str, manifest: &toml::Table) -> Vec<Violation> {
        let mut found = Vec::new();
        let off = |target: &toml::Value| target.get("bench").and_then(toml::Value::as_bool) == Some(false);
        let has = |path: &str| self.files.contains_key(&format!("{folder}/{path}"));
        if (has("src/lib.rs") || manifest.contains_key("lib")) && !manifest.get("lib").is_some_and(off) {
            found.push(violation(file, line_of(text, "[lib]"), "the library needs [lib] bench = false"));
        }
        let package = manifest.get("package");
        let name = package.and_then(|package| package.get("name")).and_then(toml::Value::as_str).unwrap_or_default();
        let mut bins: Vec<String> = if has("src/main.rs") { vec![name.to_string()] } else { Vec::new() };
        let prefix = format!("{folder}/src/bin/");
        let more = self.files.keys().filter_map(|file| file.strip_prefix(&prefix));
        bins.extend(
            more.filter_map(|path| {
                path.strip_suffix("/main.rs").or(path.strip_suffix(".rs").filter(|p| !p.contains('/')))
            })
            .map(str::to_string),
        );
        let tables = manifest.get("bin").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
        let called =
            |table: &toml::Value| table.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_string();
        bins.extend(tables.iter().map(called));
        bins.sort();
        bins.dedup();
        for bin in &bins {
            if !tables.iter().any(|table| called(table) == *bin && off(table)) {
                let what = format!("the binary {bin} needs a [[bin]] with name = \"{bin}\" and bench = false");
                found.push(violation(file, line_of(text, &format!("\"{bin}\"")), what));
            }
        }
        if bins.len() > 1 && package.is_none_or(|package| package.get("default-run").is_none()) {
            found.push(violation(
                file,
                line_of(text, "[package]"),
                "a package with several binaries needs default-run",
            ));
        }
        found
    }
}

fn is_study(krate: &str) -> bool {
    !MECHANISM.iter().any(|(name, _)| *name == krate)
}

/// The rung of an entry: what stands before `__`.
fn stem_of(entry: &str) -> &str {
    entry.split("__").next().unwrap_or(entry)
}

/// Whether a text has the form of a rung's stem: `sgemm_03_register_tile`.
fn is_stem(text: &str) -> bool {
    let mut parts = text.splitn(3, '_');
    let (family, number, name) = (parts.next(), parts.next(), parts.next());
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    family.is_some_and(|t| !t.is_empty() && t.chars().all(plain))
        && number.is_some_and(|t| t.len() == 2 && t.chars().all(|c| c.is_ascii_digit()))
        && name.is_some_and(|t| !t.is_empty() && t.chars().all(|c| plain(c) || c == '_'))
}

/// Line (from 1) of the first line that contains `text`; 1 where none does.
fn line_of(source: &str, text: &str) -> usize {
    source.lines().position(|line| line.contains(text)).map_or(1, |at| at + 1)
}

/// Names of all packages that a manifest depends on, of any kind and for any target.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        if key == "target" {
            names.extend(table.values().filter_map(toml::Value::as_table).flat_map(dependencies));
        } else if key.ends_with("dependencies") {
            names.extend(
                table.iter().map(|(name, value)| {
                    value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_string()
                }),
            );
        }
    }
    names
}

/// Rules for the text of one Rust file.
fn rust(file: &str, text: &str) -> Vec<Violation> {
    let scan = Scan::of(text);
    let mut found = Vec::new();
    if !UNSAFE_ROOMS.iter().any(|room| fits(room, file)) {
        let rooms = UNSAFE_ROOMS.join(", ");
        let lines = [scan.lines_with("unsafe"), scan.lines_allowing("unsafe_code")].concat();
        found.extend(lines.into_iter().map(|line| violation(file, line, format!("unsafe; allowed in {rooms}"))));
    }
    for line in scan.lines_allowing("dead_code") {
        found.push(violation(file, line, "allow(dead_code); remove the code, or use it"));
    }
    for (line, number) in scan.code.lines().zip(1..) {
        if line.contains("#[ignore") {
            found.push(violation(file, number, "an ignored test; a test runs, or skips with a printed reason"));
        }
        for stub in ["todo!", "unimplemented!"] {
            if line.contains(stub) {
                found.push(violation(file, number, format!("{stub}; finish it, or return an error")));
            }
        }
    }
    found
}

/// Whether `file` fits a pattern of [`UNSAFE_ROOMS`].
fn fits(pattern: &str, file: &str) -> bool {
    if pattern.ends_with('/') {
        return file.starts_with(pattern);
    }
    let (patterns, names) = (pattern.split('/'), file.split('/'));
    patterns.clone().count() == names.clone().count()
        && patterns.zip(names).all(|(pattern, name)| match pattern.split_once('*') {
            None => pattern == name,
            Some((start, end)) => name.len() >= pattern.len() - 1 && name.starts_with(start) && name.ends_with(end),
        })
}

/// The root's absolute path, if it is of two names or more: one name alone (`/src`) may stand for anything.
fn place_of(root: &Path) -> Option<String> {
    let root = root.canonicalize().ok()?;
    let names = root.components().filter(|part| matches!(part, Component::Normal(_))).count();
    if names < 2 { None } else { root.to_str().map(str::to_string) }
}

/// Absolute paths that exist on one machine only: below [`MACHINE_FOLDERS`], or of the tree itself at `place`.
fn machine_paths(file: &str, text: &str, place: Option<&str>) -> Vec<Violation> {
    let in_name = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        // A literal writes a backslash as two.
        let line = line.replace("\\\\", "\\");
        let stands = |path: &str, named: bool| {
            line.match_indices(path).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + path.len()..].chars().next();
                let within =
                    path.starts_with('/') && before.is_some_and(|c| c.is_alphanumeric() || "._~-*})>".contains(c));
                !within && after.is_some_and(in_name) == named
            })
        };
        let folders = MACHINE_FOLDERS.into_iter().filter(|folder| stands(folder, true));
        for path in folders.chain(place.filter(|place| stands(place, false))) {
            let what = format!("the path {path}... of one machine; name it from the repository's root");
            found.push(violation(file, number, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "[lib]\nbench = false\n";

    /// A clean study `add` with one GPU and one CPU rung, and `timing` with one kernel of its own.
    fn clean() -> Tree {
        let files = [
            ("crates/timing/Cargo.toml", LIB.to_string()),
            ("crates/timing/src/lib.rs", "//! Mentions unsafe.\n".to_string()),
            ("crates/timing/src/cuda.rs", "#![allow(unsafe_code)]\nfn f() { unsafe {} }\n".to_string()),
            ("crates/timing/kernels/calib_copy.cu", "// Copies.\n// target: sm_60\n".to_string()),
            ("ptx/timing/calib_copy.ptx", ".visible .entry calib_copy(\n".to_string()),
            ("crates/report/Cargo.toml", format!("{LIB}[dependencies]\ntiming.workspace = true\n")),
            (
                "crates/add/Cargo.toml",
                format!(
                    "[package]\nname = \"add\"\n{LIB}[[bin]]\nname = \"add\"\nbench = false\n[dependencies]\ntiming.workspace = true\nserde = \"1\"\n"
                ),
            ),
            ("crates/add/src/lib.rs", "pub mod ladder;\n".to_string()),
            ("crates/add/src/main.rs", "fn main() {}\n".to_string()),
            ("crates/add/src/cpu/cpu_00_scalar.rs", "pub fn run() {}\n".to_string()),
            ("crates/add/src/cpu/avx512_ilp.rs", "#![allow(unsafe_code)]\nunsafe fn f() {}\n".to_string()),
            (
                "crates/add/src/ladder.rs",
                "// \"cpu_07_planned\"\nconst A: [&str; 2] = [\"cpu_00_scalar\",\n \"gpu_00_lane\"];\n".to_string(),
            ),
            ("crates/add/kernels/gpu_00_lane.cu", "// One lane.\n// target: sm_60\n".to_string()),
            ("ptx/add/gpu_00_lane.ptx", ".visible .entry gpu_00_lane(\n.visible .entry gpu_00_lane__u8(\n".to_string()),
            ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n".to_string()),
            ("crates/add/FINDINGS.md", "# add\n## cpu_00_scalar: slow\n## `gpu_00_lane`\n".to_string()),
        ];
        let files = files.into_iter().map(|(file, text)| (file.to_string(), text)).collect();
        Tree { files, place: Some("/data/someone/add".to_string()) }
    }

    /// What is found in the clean tree with one file changed: `file:line` and the text of each.
    fn found(file: &str, change: impl FnOnce(&str) -> Option<String>) -> Vec<String> {
        let mut tree = clean();
        let old = tree.files.remove(file).unwrap_or_default();
        if let Some(new) = change(&old) {
            assert_ne!(old, new, "the change of {file} changes nothing");
            tree.files.insert(file.to_string(), new);
        }
        tree.check().unwrap().iter().map(ToString::to_string).collect()
    }

    /// Expects exactly one violation that starts and goes on as given.
    #[track_caller]
    fn one(found: Vec<String>, place: &str, what: &str) {
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with(&format!("{place}: ")) && found[0].contains(what), "{found:#?}");
    }

    fn replaced<'a>(from: &'a str, to: &'a str) -> impl FnOnce(&str) -> Option<String> + 'a {
        move |old| Some(old.replace(from, to))
    }

    #[test]
    fn a_clean_tree_has_no_violations() {
        assert_eq!(clean().check().unwrap(), []);
    }

    #[test]
    fn kernels_have_a_header_with_words_and_a_target() {
        let file = "crates/add/kernels/gpu_00_lane.cu";
        one(found(file, replaced("sm_60", "sm_61")), &format!("{file}:1"), "allowed: sm_60, sm_75, sm_80, sm_90a");
        one(found(file, replaced("// target: sm_60\n", "")), &format!("{file}:1"), "no target");
        one(found(file, replaced("// One lane.\n", "")), &format!("{file}:1"), "what the kernel does");
        let calibration = "crates/timing/kernels/calib_copy.cu";
        one(found(calibration, replaced("// target", "target")), &format!("{calibration}:1"), "no target");
    }

    #[test]
    fn kernels_have_ptx_whose_entries_carry_the_stem() {
        let (file, ptx) = ("crates/add/kernels/gpu_00_lane.cu:1", "ptx/add/gpu_00_lane.ptx");
        one(found(ptx, |_| None), file, "no ptx/add/gpu_00_lane.ptx");
        one(
            found(ptx, replaced("lane__u8", "lanes")),
            file,
            "entry gpu_00_lanes; allowed: gpu_00_lane or gpu_00_lane__PART",
        );
        one(found(ptx, |_| Some(String::new() + "//")), file, "has no entry");
        one(found("ptx/timing/calib_copy.ptx", |_| None), "crates/timing/kernels/calib_copy.cu:1", "no ptx/timing");
    }

    #[test]
    fn rungs_are_in_the_ladder_and_in_the_findings() {
        let ladder = "crates/add/src/ladder.rs";
        let kernel = "crates/add/kernels/gpu_00_lane.cu:1";
        one(
            found(ladder, replaced("\"gpu_00_lane\"", "// \"gpu_00_lane\"\n")),
            kernel,
            "is not in crates/add/src/ladder.rs",
        );
        let without = found(ladder, |_| None);
        assert_eq!(without.len(), 2, "{without:#?}");
        assert!(without[0].contains("is not in") && without[1].contains("names no rung"), "{without:#?}");
        let findings = "crates/add/FINDINGS.md";
        let place = format!("{ladder}:2");
        one(found(findings, replaced("cpu_00_scalar", "cpu_00_scalar_fused")), &place, "no heading with cpu_00_scalar");
        one(found(findings, replaced("## cpu_00", "cpu_00")), &place, "no heading with cpu_00_scalar");
        assert_eq!(found(findings, |_| None).len(), 2);
        let added = found(ladder, replaced("[\"cpu", "[\"cpu_01_avx2\", \"cpu"));
        assert_eq!(added.len(), 2, "{added:#?}");
        assert!(added[0].starts_with(&place) && added[1].contains("cpu_01_avx2"), "{added:#?}");
    }

    #[test]
    fn stems_are_told_from_other_strings() {
        for stem in ["cpu_00_scalar", "sgemm_03_register_tile", "dw_02_x2"] {
            assert!(is_stem(stem), "{stem}");
        }
        for other in
            ["cpu_0_scalar", "cpu_00", "cpu_00_", "CPU_00_x", "_00_x", "a b_00_x", "cpu_000_x", "crates/a_00_b.ptx"]
        {
            assert!(!is_stem(other), "{other}");
        }
    }

    #[test]
    fn dependencies_go_one_way() {
        let sub = "[package]\nname = \"sub\"\n\n[build-dependencies]\nadd = { path = \"../add\" }\n";
        let what = "sub depends on add; allowed of the workspace: timing, report, simt";
        let mut strays = found("crates/sub/Cargo.toml", |_| Some(sub.to_string()));
        strays.retain(|stray| !stray.contains("ladder.rs"));
        one(strays, "crates/sub/Cargo.toml:5", what);
        let all = "[dependencies]\nadd = { path = \"../add\" }\ntiming = { path = \"../timing\" }\n";
        assert_eq!(found("crates/reproduce/Cargo.toml", |_| Some(all.to_string())), [""; 0]);
        let report = "crates/report/Cargo.toml";
        one(
            found(report, replaced("timing.work", "add.work")),
            "crates/report/Cargo.toml:4",
            "report depends on add; allowed of the workspace: timing",
        );
        let timing = "crates/timing/Cargo.toml";
        let target = "[target.'cfg(unix)'.dev-dependencies]\nr = { package = \"report\", path = \"../report\" }\n";
        one(
            found(timing, |old| Some(format!("{old}{target}"))),
            "crates/timing/Cargo.toml:4",
            "timing depends on report; allowed of the workspace: none",
        );
    }

    #[test]
    fn unsafe_stays_in_its_rooms() {
        let room = "crates/timing/src/cuda.rs";
        let lib = "crates/timing/src/lib.rs";
        one(
            found(lib, |_| Some("fn f() {}\nunsafe fn g() {}\n".to_string())),
            &format!("{lib}:2"),
            &format!("allowed in {room}"),
        );
        one(found(lib, |_| Some("#![allow(missing_docs, unsafe_code)]\n".to_string())), &format!("{lib}:1"), room);
        one(
            found("crates/add/tests/avx512.rs", |_| Some("unsafe fn g() {}\n".to_string())),
            "crates/add/tests/avx512.rs:1",
            room,
        );
        assert_eq!(found(lib, |_| Some("const A: &str = \"unsafe\"; // allow(unsafe_code)\n".to_string())), [""; 0]);
    }

    #[test]
    fn room_patterns_fit_whole_names() {
        assert!(fits("crates/*/src/cpu/avx2*.rs", "crates/add/src/cpu/avx2.rs"));
        assert!(fits("crates/timing/src/cuda/", "crates/timing/src/cuda/a/b.rs"));
        for file in [
            "crates/add/src/cpu/sub/avx2.rs",
            "crates/add/src/avx2.rs",
            "crates/add/src/cpu/navx2.rs",
            "crates/add/src/cpu/avx2.r",
        ] {
            assert!(!fits("crates/*/src/cpu/avx2*.rs", file), "{file}");
        }
    }

    #[test]
    fn leftovers_are_found() {
        let lib = "crates/timing/src/lib.rs";
        let at = |line: usize| format!("{lib}:{line}");
        one(found(lib, |_| Some("\n#[allow(dead_code)]\nfn f() {}\n".to_string())), &at(2), "dead_code");
        one(found(lib, |_| Some("#[test]\n#[ignore = \"slow\"]\nfn f() {}\n".to_string())), &at(2), "ignored test");
        one(found(lib, |_| Some("fn f() { todo!() }\n".to_string())), &at(1), "todo!");
        assert_eq!(found(lib, |_| Some("// todo!() #[ignore]\n".to_string())), [""; 0]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_text() {
        let line = |text: String| found("README.md", |_| Some(format!("one\n{text}\n")));
        for folder in MACHINE_FOLDERS {
            let drive = if folder.starts_with('/') { "" } else { "D" };
            let path = format!("{drive}{folder}me");
            for text in [path.clone(), format!("`{path}/z`"), format!("(file://{path})"), path.replace('\\', "\\\\")] {
                one(line(text), "README.md:2", "of one machine");
            }
        }
        let others = "https://example.org/home/x, crates/tmp/y, ~/home/z, /home/<name>, $DIR}/tmp/out, C:\\Users";
        assert_eq!(line(others.to_string()), [""; 0]);
    }

    #[test]
    fn the_place_of_the_tree_is_found_in_any_text() {
        let place = clean().place.unwrap();
        for text in [place.clone(), format!("\"{place}/src\""), format!("cd {place};")] {
            one(found("a.sh", |_| Some(text)), "a.sh:1", "/data/someone/add... of one machine");
        }
        for text in [format!("{place}ition"), format!("x{place}"), "/data/someone".to_string()] {
            assert_eq!(found("a.sh", |_| Some(text)), [""; 0]);
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(place_of(folder.path()).is_some_and(|place| Path::new(&place).is_absolute()));
        assert_eq!(place_of(Path::new("/")), None);
        assert_eq!(place_of(&folder.path().join("missing")), None);
    }

    #[test]
    fn nothing_to_check_is_an_error() {
        let empty = Tree { files: BTreeMap::new(), place: None };
        assert!(empty.check().unwrap_err().to_string().contains("nothing to check"));
        let ladder = "crates/add/src/ladder.rs";
        let kernel = "crates/add/kernels/gpu_00_lane.cu";
        let mut tree = clean();
        tree.files.remove(kernel);
        tree.files.insert(ladder.to_string(), String::new());
        one(tree.check().unwrap().iter().map(ToString::to_string).collect(), &format!("{ladder}:1"), "names no rung");
        one(found(kernel, |_| None), &format!("{ladder}:3"), "gpu_00_lane has no source");
        one(
            found("crates/add/src/cpu/cpu_00_scalar.rs", |_| None),
            &format!("{ladder}:2"),
            "cpu_00_scalar has no source",
        );
        one(found("crates/gone/src/lib.rs", |_| Some("//! Text.".to_string())), "crates/gone/Cargo.toml:1", "missing");
        one(found("xtask/Cargo.toml", |_| None), "xtask/Cargo.toml:1", "missing");
    }

    #[test]
    fn every_library_and_binary_opts_out_of_the_bench_harness() {
        let add = "crates/add/Cargo.toml";
        one(found(add, replaced("[lib]\nbench = false", "[lib]")), &format!("{add}:3"), "the library needs");
        one(
            found(add, replaced("name = \"add\"\nbench = false\n[dep", "name = \"add\"\n[dep")),
            &format!("{add}:2"),
            "the binary add needs",
        );
        let missing = found("crates/add/src/bin/tool.rs", |_| Some("fn main() {}".to_string()));
        assert_eq!(missing.len(), 2, "no table and no default-run: {missing:#?}");
        assert!(missing[0].contains("default-run") && missing[1].contains("the binary tool needs"));
    }

    #[test]
    fn a_tree_is_read_from_disk_without_what_was_built() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in clean().files {
            crate::write_atomically(&root.path().join(file), text.as_bytes()).unwrap();
        }
        for (file, bytes) in
            [("target/debug/a.rs", &b"todo!()"[..]), (".git/b.rs", b"todo!()"), ("crates/add/c.png", b"\xff")]
        {
            crate::write_atomically(&root.path().join(file), bytes).unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.files, clean().files);
        run(root.path()).unwrap();
        fs::write(root.path().join("crates/add/src/main.rs"), "fn main() { todo!() }").unwrap();
        assert_eq!(run(root.path()).unwrap_err().to_string(), "broken rules: 1");
    }
}
