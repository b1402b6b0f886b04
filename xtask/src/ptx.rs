//! `cargo xtask ptx`: kernels to PTX, and the check that the committed PTX is what its source compiles to.
//!
//! The bytes depend on the repository alone: NVRTC gets the sources under `/rungs/<path in the repository>`, headers
//! included, so neither the checkout's place nor the current folder reaches the line tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::nvrtc::{Nvrtc, RELEASE};
use crate::ptxas::Ptxas;
use crate::{say, write_atomically};

/// Targets that a kernel may state, and those of the assembler that it must then pass.
pub(crate) const TARGETS: [(&str, &[&str]); 4] = [
    ("sm_60", &["sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]),
    ("sm_75", &["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]),
    ("sm_80", &["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]),
    ("sm_90a", &["sm_90a"]),
];

/// Headers of `timing` that every study may include.
const SHARED_HEADERS: &str = "crates/timing/kernels/include";
const MANIFEST: &str = "ptx/MANIFEST.toml";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Compare with the committed files instead of writing, then assemble each for every target it must run on
    #[arg(long)]
    check: bool,
    /// Print registers, spills, stack and shared memory of each kernel; spills and lost setmaxnreg or wgmma fail
    #[arg(long)]
    ptxas: bool,
    /// Only kernels whose study/stem contains one of these
    filter: Vec<String>,
}

/// One `.cu` file, read.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) study: String,
    pub(crate) stem: String,
    /// Path in the repository.
    source: String,
    text: String,
    /// (path in the repository, text) of every header that it includes, directly or not.
    headers: Vec<(String, String)>,
    pub(crate) header: Header,
}

/// What the comment at the top of a kernel states.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Header {
    /// `sm_60`, `sm_75`, `sm_80` or `sm_90a`.
    pub(crate) target: &'static str,
    /// Whether registers may spill.
    pub(crate) spills_allowed: bool,
    /// Further options for NVRTC.
    flags: Vec<String>,
    /// Words of plain explanation, beside the three kinds of lines above.
    pub(crate) words: usize,
}

/// A kernel and what it compiles to.
pub(crate) struct Compiled {
    pub(crate) kernel: Kernel,
    pub(crate) ptx: String,
    pub(crate) entries: Vec<String>,
    flags: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Manifest {
    #[serde(default)]
    ptx: Vec<Record>,
}

/// One PTX file in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// Path below `ptx/`.
    file: String,
    source: String,
    headers: Vec<String>,
    /// Over the source and its headers, see [`Kernel::sha256`].
    sha256: String,
    target: String,
    flags: Vec<String>,
    entries: Vec<String>,
    compiler: String,
}

/// Runs the chore.
///
/// # Errors
/// A missing tool, a kernel that does not compile, or with `--check` anything that differs.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let kernels = select(find(root)?, &options.filter)?;
    if kernels.is_empty() {
        say!("no kernels in crates/*/kernels");
    }
    let nvrtc = Nvrtc::find()?;
    let ptxas = if options.check || options.ptxas { Some(Ptxas::find()?) } else { None };
    let (compiled, mut problems) = compile_all(&nvrtc, kernels);
    if options.check {
        problems.extend(compare(root, &compiled, options.filter.is_empty())?);
    } else {
        problems.extend(write_all(root, &compiled, options.filter.is_empty())?);
    }
    if let Some(ptxas) = ptxas {
        if options.check {
            problems.extend(ptxas.assemble_all(&compiled)?);
        }
        if options.ptxas {
            problems.extend(ptxas.report(&compiled)?);
        }
    }
    for problem in &problems {
        say!("{problem}");
    }
    match (problems.len(), options.check) {
        (0, true) => say!("{} PTX files are what their sources compile to, and assemble", compiled.len()),
        (0, false) => {}
        (n, true) => bail!("{n} problems; `cargo xtask ptx` writes the files anew"),
        (n, false) => bail!("{n} problems"),
    }
    Ok(())
}

fn select(kernels: Vec<Kernel>, filter: &[String]) -> Result<Vec<Kernel>> {
    for word in filter {
        ensure!(
            kernels.iter().any(|k| k.name().contains(word)),
            "no kernel's study/stem contains '{word}'; there are: {}",
            kernels.iter().map(Kernel::name).collect::<Vec<_>>().join(" ")
        );
    }
    Ok(kernels.into_iter().filter(|k| filter.is_empty() || filter.iter().any(|f| k.name().contains(f))).collect())
}

/// Every kernel of the tree, in order of study and stem.
pub(crate) fn find(root: &Path) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for krate in folder(&root.join("crates"))? {
        for file in folder(&krate.join("kernels"))? {
            if file.extension().is_some_and(|e| e == "cu") {
                kernels.push(Kernel::read(root, &file)?);
            }
        }
    }
    Ok(kernels)
}

/// The sorted entries of a folder; none where there is no folder.
pub(crate) fn folder(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

impl Kernel {
    fn read(root: &Path, file: &Path) -> Result<Self> {
        let source = in_repository(root, file)?;
        let text = read(file)?;
        let header = Header::parse(&text).with_context(|| source.clone())?;
        let stem = file.file_stem().context("a kernel needs a name")?.to_string_lossy().into_owned();
        let study = source.split('/').nth(1).context("a kernel lies in crates/<study>/kernels")?.to_string();
        let mut kernel = Self { study, stem, source, text: String::new(), headers: Vec::new(), header };
        let own = kernel.folder();
        kernel.text = kernel.resolve_includes(root, &text, &[&own, SHARED_HEADERS]).with_context(|| kernel.source.clone())?;
        kernel.headers.sort();
        Ok(kernel)
    }

    /// Folder of the source in the repository.
    fn folder(&self) -> String {
        self.source.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_string())
    }

    fn name(&self) -> String {
        format!("{}/{}", self.study, self.stem)
    }

    /// Path of the PTX below `ptx/`.
    fn file(&self) -> String {
        format!("{}.ptx", self.name())
    }

    /// Gives the headers of `#include "..."` their full virtual names, line for line, and collects them.
    ///
    /// NVRTC puts the current folder before a header's name in the line table unless the name is absolute.
    fn resolve_includes(&mut self, root: &Path, text: &str, folders: &[&str]) -> Result<String> {
        let mut resolved = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let Some(name) = included(line) else {
                resolved.push_str(line);
                continue;
            };
            let path = folders
                .iter()
                .map(|folder| format!("{folder}/{name}"))
                .find(|path| root.join(path).is_file())
                .with_context(|| format!("cannot find \"{name}\"; looked in {}", folders.join(" and ")))?;
            ensure!(!name.contains(".."), "\"{name}\": headers are named from their folder down, without `..`");
            if !self.headers.iter().any(|(known, _)| *known == virtual_name(&path)) {
                // Listed before its own includes are followed, so that a circle ends.
                self.headers.push((virtual_name(&path), String::new()));
                let text = read(&root.join(&path))?;
                let text = self.resolve_includes(root, &text, folders)?;
                if let Some(header) = self.headers.iter_mut().find(|(known, _)| *known == virtual_name(&path)) {
                    header.1 = text;
                }
            }
            let _ = writeln!(resolved, "#include \"{}\"", virtual_name(&path));
        }
        Ok(resolved)
    }

    /// Hash over the lengths and texts of the source and its headers.
    fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for text in std::iter::once(&self.text).chain(self.headers.iter().map(|(_, text)| text)) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.finalize().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn options(&self) -> Vec<String> {
        let architecture = self.header.target.replace("sm_", "compute_");
        let mut options = vec![
            format!("--gpu-architecture={architecture}"),
            "-lineinfo".to_string(),
            "-std=c++17".to_string(),
            "-default-device".to_string(),
        ];
        options.extend(self.header.flags.iter().cloned());
        options
    }

    fn compile(self, nvrtc: &Nvrtc) -> Result<Compiled> {
        let flags = self.options();
        let output = nvrtc.compile(&virtual_name(&self.source), &self.text, &self.headers, &flags)?;
        ensure!(output.log.is_empty(), "{}: warnings are errors\n{}", self.source, output.log);
        let ptx = output.ptx;
        ensure!(ptx.contains(RELEASE), "{}: the PTX is not by the compiler of {RELEASE}", self.source);
        if let Some(stray) = real_path(&ptx) {
            bail!("{}: the line table names {stray}, which is not below /rungs/", self.source);
        }
        let entries = entries(&ptx);
        ensure!(!entries.is_empty(), "{}: no extern \"C\" __global__ function", self.source);
        Ok(Compiled { kernel: self, ptx, entries, flags })
    }
}

impl Header {
    /// Reads the `//` lines at the top of a kernel.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut header = Self::default();
        for line in text.lines().map_while(|line| line.strip_prefix("//")) {
            let line = line.trim();
            if let Some(target) = line.strip_prefix("target:") {
                let target = target.trim();
                let known = TARGETS.iter().find(|(name, _)| *name == target);
                header.target = known.map(|(name, _)| *name).with_context(|| {
                    format!("target {target} is not known; allowed: {}", TARGETS.map(|(name, _)| name).join(", "))
                })?;
            } else if let Some(spills) = line.strip_prefix("spills:") {
                let reason = spills.trim().strip_prefix("allowed because ").unwrap_or_default();
                ensure!(!reason.trim().is_empty(), "a spills line reads: // spills: allowed because REASON");
                header.spills_allowed = true;
            } else if let Some(flags) = line.strip_prefix("flags:") {
                header.flags.extend(flags.split_whitespace().map(str::to_string));
                let stray = header.flags.iter().find(|f| !f.starts_with('-') || f.starts_with("-I"));
                ensure!(stray.is_none(), "flags are NVRTC options that name no folder, not {}", stray.unwrap_or(&String::new()));
            } else {
                header.words += line.split_whitespace().count();
            }
        }
        ensure!(
            !header.target.is_empty(),
            "no target in the // lines at the top; allowed: // target: {}",
            TARGETS.map(|(name, _)| name).join(" | ")
        );
        Ok(header)
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn in_repository(root: &Path, file: &Path) -> Result<String> {
    let relative = file.strip_prefix(root).context("the file lies outside the repository")?;
    Ok(relative.to_str().context("names of kernels are UTF-8")?.replace('\\', "/"))
}

fn virtual_name(path: &str) -> String {
    format!("/rungs/{path}")
}

/// The name in an `#include "name"` line.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    rest.strip_prefix('"')?.split('"').next()
}

/// Names of the kernels in a PTX text, in order.
pub(crate) fn entries(ptx: &str) -> Vec<String> {
    let after = ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".visible")?.trim_start().strip_prefix(".entry"));
    after.map(|rest| rest.trim().trim_end_matches(|c: char| "(){".contains(c) || c.is_whitespace()).to_string()).collect()
}

/// A file of the line table that is not below `/rungs/`.
fn real_path(ptx: &str) -> Option<&str> {
    let files = ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".file"));
    files.filter_map(|file| file.split('"').nth(1)).find(|name| !name.starts_with("/rungs/"))
}

fn compile_all(nvrtc: &Nvrtc, kernels: Vec<Kernel>) -> (Vec<Compiled>, Vec<String>) {
    let results: Vec<Result<Compiled>> = kernels.into_par_iter().map(|kernel| kernel.compile(nvrtc)).collect();
    let mut problems = Vec::new();
    let compiled = results
        .into_iter()
        .filter_map(|result| result.map_err(|error| problems.push(format!("{error:#}"))).ok())
        .collect();
    (compiled, problems)
}

impl Compiled {
    fn record(&self) -> Record {
        let path = |name: &String| name.trim_start_matches("/rungs/").to_string();
        Record {
            file: self.kernel.file(),
            source: self.kernel.source.clone(),
            headers: self.kernel.headers.iter().map(|(name, _)| path(name)).collect(),
            sha256: self.kernel.sha256(),
            target: self.kernel.header.target.to_string(),
            flags: self.flags.clone(),
            entries: self.entries.clone(),
            compiler: format!("NVRTC {RELEASE}"),
        }
    }
}

impl Manifest {
    fn read(root: &Path) -> Result<Self> {
        let file = root.join(MANIFEST);
        if !file.is_file() {
            return Ok(Self::default());
        }
        toml::from_str(&read(&file)?).with_context(|| format!("{MANIFEST} is not what `cargo xtask ptx` writes"))
    }

    fn render(&self) -> Result<String> {
        let note = "# Where each PTX file comes from. Written by `cargo xtask ptx`.\n\n";
        Ok(format!("{note}{}", toml::to_string(self)?))
    }
}

/// Writes PTX files that changed, and the manifest: of `all` kernels, or only of those given.
fn write_all(root: &Path, compiled: &[Compiled], all: bool) -> Result<Vec<String>> {
    for one in compiled {
        let file = one.kernel.file();
        let path = root.join("ptx").join(&file);
        if fs::read(&path).is_ok_and(|old| old == one.ptx.as_bytes()) {
            continue;
        }
        write_atomically(&path, one.ptx.as_bytes())?;
        say!("wrote ptx/{file}");
    }
    let mut manifest = Manifest::read(root)?;
    let new: Vec<Record> = compiled.iter().map(Compiled::record).collect();
    // Records of kernels that were not asked for, or do not compile just now, stay as they are.
    manifest.ptx.retain(|old| root.join(&old.source).is_file() && !new.iter().any(|record| record.file == old.file));
    manifest.ptx.extend(new);
    manifest.ptx.sort_by(|a, b| a.file.cmp(&b.file));
    let text = manifest.render()?;
    if !fs::read(root.join(MANIFEST)).is_ok_and(|old| old == text.as_bytes()) {
        write_atomically(&root.join(MANIFEST), text.as_bytes())?;
        say!("wrote {MANIFEST}");
    }
    if all { orphans(root) } else { Ok(Vec::new()) }
}

/// Compares committed files with freshly compiled ones, byte for byte.
fn compare(root: &Path, compiled: &[Compiled], all: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let manifest = Manifest::read(root)?;
    for one in compiled {
        let file = one.kernel.file();
        match fs::read(root.join("ptx").join(&file)) {
            Err(_) => problems.push(format!("ptx/{file}: missing")),
            Ok(old) if old != one.ptx.as_bytes() => {
                problems.push(format!("ptx/{file}: differs from what {} compiles to", one.kernel.source));
            }
            Ok(_) => {}
        }
        if !manifest.ptx.contains(&one.record()) {
            problems.push(format!("{MANIFEST}: the record of {file} is missing or out of date"));
        }
    }
    if all {
        problems.extend(orphans(root)?);
        for record in manifest.ptx.iter().filter(|record| !root.join(&record.source).is_file()) {
            problems.push(format!("{MANIFEST}: {} has no source", record.file));
        }
        let text = manifest.render()?;
        if problems.is_empty() && !fs::read(root.join(MANIFEST)).is_ok_and(|old| old == text.as_bytes()) {
            problems.push(format!("{MANIFEST}: not in the form that `cargo xtask ptx` writes"));
        }
    }
    Ok(problems)
}

/// PTX files whose kernel is gone.
fn orphans(root: &Path) -> Result<Vec<String>> {
    let sources: BTreeSet<String> = find(root)?.iter().map(Kernel::file).collect();
    let mut problems = Vec::new();
    for study in folder(&root.join("ptx"))? {
        for file in folder(&study)? {
            let file = in_repository(&root.join("ptx"), &file)?;
            if file.ends_with(".ptx") && !sources.contains(&file) {
                problems.push(format!("ptx/{file}: no kernel of that name; remove it"));
            }
        }
    }
    Ok(problems)
}
