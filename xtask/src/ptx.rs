//! `cargo xtask ptx`: kernels to PTX, and the check that the committed PTX is what its source compiles to.
//!
//! The bytes depend on the repository alone: NVRTC gets the sources under `/rungs/<path in the repository>`, headers
//! included, so neither the checkout's place nor the current folder reaches the line tables.

use std::collections::BTreeMap;
use std::ffi::OsStr;
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

/// Where a kernel's files lie.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    pub(crate) study: String,
    pub(crate) stem: String,
}

/// One `.cu` file, read.
struct Kernel {
    source: Source,
    header: Header,
    /// The text as the compiler gets it, see [`Kernel::resolve_includes`].
    text: String,
    sha256: String,
    headers: BTreeMap<String, Included>,
}

/// A header as the compiler gets it; its key is the path in the repository.
struct Included {
    text: String,
    sha256: String,
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

/// What a kernel compiles to.
pub(crate) struct Compiled {
    pub(crate) source: Source,
    pub(crate) header: Header,
    pub(crate) ptx: String,
    pub(crate) entries: Vec<String>,
    record: Record,
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
    sha256: String,
    target: String,
    flags: Vec<String>,
    entries: Vec<String>,
    compiler: String,
    /// SHA-256 of each header by its path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

/// Runs the chore.
///
/// # Errors
/// A missing tool, a kernel that does not compile, or with `--check` anything that differs.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let sources = select(find(root)?, &options.filter)?;
    ensure!(!sources.is_empty(), "no kernels in crates/*/kernels of {}", root.display());
    let nvrtc = Nvrtc::find()?;
    let ptxas = if options.check || options.ptxas { Some(Ptxas::find()?) } else { None };
    let (compiled, mut problems) = compile_all(root, &nvrtc, &sources);
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
        say!("{problem}")?;
    }
    match (problems.len(), options.check) {
        (0, true) => say!("{} PTX files are what their sources compile to, and assemble", compiled.len())?,
        (0, false) => {}
        (n, true) => bail!("problems: {n}; `cargo xtask ptx` writes the files anew"),
        (n, false) => bail!("problems: {n}"),
    }
    Ok(())
}

fn select(sources: Vec<Source>, filter: &[String]) -> Result<Vec<Source>> {
    for word in filter {
        ensure!(
            sources.iter().any(|source| source.name().contains(word)),
            "no kernel's study/stem contains '{word}'; there are: {}",
            sources.iter().map(Source::name).collect::<Vec<_>>().join(" ")
        );
    }
    let wanted = |source: &Source| filter.is_empty() || filter.iter().any(|word| source.name().contains(word));
    Ok(sources.into_iter().filter(wanted).collect())
}

/// Every kernel of the tree, in order of study and stem.
pub(crate) fn find(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for krate in folder(&root.join("crates"))? {
        for file in folder(&krate.join("kernels"))? {
            if file.extension().is_some_and(|extension| extension == "cu") {
                sources.push(Source { study: last(krate.file_name())?, stem: last(file.file_stem())? });
            }
        }
    }
    Ok(sources)
}

fn last(name: Option<&OsStr>) -> Result<String> {
    Ok(name.and_then(OsStr::to_str).context("names of crates and kernels are UTF-8")?.to_string())
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

impl Source {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.study, self.stem)
    }

    /// Folder of the source in the repository.
    fn folder(&self) -> String {
        format!("crates/{}/kernels", self.study)
    }

    /// Path of the source in the repository.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}.cu", self.folder(), self.stem)
    }

    /// Path of the PTX below `ptx/`.
    pub(crate) fn file(&self) -> String {
        format!("{}.ptx", self.name())
    }

    fn compile(&self, root: &Path, nvrtc: &Nvrtc) -> Result<Compiled> {
        let kernel = Kernel::read(root, self)?;
        let flags = kernel.options();
        let headers: Vec<(String, &str)> =
            kernel.headers.iter().map(|(path, header)| (virtual_name(path), header.text.as_str())).collect();
        let output = nvrtc.compile(&virtual_name(&self.path()), &kernel.text, &headers, &flags)?;
        ensure!(output.log.is_empty(), "warnings are errors\n{}", output.log);
        let ptx = output.ptx;
        ensure!(ptx.contains(RELEASE), "the PTX is not by the compiler of {RELEASE}");
        if let Some(stray) = real_path(&ptx) {
            bail!("the line table names {stray}, which is not below /rungs/");
        }
        let entries = entries(&ptx);
        ensure!(!entries.is_empty(), "no extern \"C\" __global__ function");
        let record = Record {
            file: self.file(),
            source: self.path(),
            sha256: kernel.sha256,
            target: kernel.header.target.to_string(),
            flags,
            entries: entries.clone(),
            compiler: format!("NVRTC {RELEASE}"),
            headers: kernel.headers.into_iter().map(|(path, header)| (path, header.sha256)).collect(),
        };
        Ok(Compiled { source: self.clone(), header: kernel.header, ptx, entries, record })
    }
}

impl Kernel {
    fn read(root: &Path, source: &Source) -> Result<Self> {
        let text = read(&root.join(source.path()))?;
        let header = Header::parse(&text)?;
        let mut kernel = Self {
            source: source.clone(),
            header,
            text: String::new(),
            sha256: sha256(&text),
            headers: BTreeMap::new(),
        };
        kernel.text = kernel.resolve_includes(root, &text)?;
        Ok(kernel)
    }

    /// Gives the headers of `#include "..."` their full virtual names, line for line, and collects them.
    ///
    /// NVRTC puts the current folder before a header's name in the line table unless the name is absolute.
    fn resolve_includes(&mut self, root: &Path, text: &str) -> Result<String> {
        let folders = [self.source.folder(), SHARED_HEADERS.to_string()];
        let mut resolved = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let Some(name) = included(line) else {
                resolved.push_str(line);
                continue;
            };
            ensure!(!name.contains(".."), "\"{name}\": headers are named from their folder down, without `..`");
            let path = folders
                .iter()
                .map(|folder| format!("{folder}/{name}"))
                .find(|path| root.join(path).is_file())
                .with_context(|| format!("cannot find \"{name}\"; looked in {}", folders.join(" and ")))?;
            if !self.headers.contains_key(&path) {
                let text = read(&root.join(&path))?;
                // Known before its own includes are followed, so that a circle ends.
                self.headers.insert(path.clone(), Included { text: String::new(), sha256: sha256(&text) });
                let text = self.resolve_includes(root, &text)?;
                self.headers.entry(path.clone()).and_modify(|header| header.text = text);
            }
            let _ = writeln!(resolved, "#include \"{}\"", virtual_name(&path));
        }
        Ok(resolved)
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
                ensure!(
                    stray.is_none(),
                    "flags are NVRTC options that name no folder, not {}",
                    stray.unwrap_or(&String::new())
                );
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

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
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
    let after =
        ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".visible")?.trim_start().strip_prefix(".entry"));
    after
        .map(|rest| rest.trim().trim_end_matches(|c: char| "(){".contains(c) || c.is_whitespace()).to_string())
        .collect()
}

/// A file of the line table that is not below `/rungs/`.
fn real_path(ptx: &str) -> Option<&str> {
    let files = ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".file"));
    files.filter_map(|file| file.split('"').nth(1)).find(|name| !name.starts_with("/rungs/"))
}

fn compile_all(root: &Path, nvrtc: &Nvrtc, sources: &[Source]) -> (Vec<Compiled>, Vec<String>) {
    let results: Vec<Result<Compiled>> = sources.par_iter().map(|source| source.compile(root, nvrtc)).collect();
    let mut compiled = Vec::new();
    let mut problems = Vec::new();
    for (source, result) in sources.iter().zip(results) {
        match result {
            Ok(one) => compiled.push(one),
            Err(error) => problems.push(format!("{}: {error:#}", source.path())),
        }
    }
    (compiled, problems)
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
        let file = one.source.file();
        let path = root.join("ptx").join(&file);
        if fs::read(&path).is_ok_and(|old| old == one.ptx.as_bytes()) {
            continue;
        }
        write_atomically(&path, one.ptx.as_bytes())?;
        say!("wrote ptx/{file}")?;
    }
    let mut manifest = match Manifest::read(root) {
        // Everything is written anew: an unreadable manifest is no loss.
        Err(_) if all => Manifest::default(),
        manifest => manifest?,
    };
    let new: Vec<Record> = compiled.iter().map(|one| one.record.clone()).collect();
    // Records of kernels that were not asked for, or do not compile just now, stay as they are.
    manifest.ptx.retain(|old| root.join(&old.source).is_file() && !new.iter().any(|record| record.file == old.file));
    manifest.ptx.extend(new);
    manifest.ptx.sort_by(|a, b| a.file.cmp(&b.file));
    let text = manifest.render()?;
    if !fs::read(root.join(MANIFEST)).is_ok_and(|old| old == text.as_bytes()) {
        write_atomically(&root.join(MANIFEST), text.as_bytes())?;
        say!("wrote {MANIFEST}")?;
    }
    if all { orphans(root) } else { Ok(Vec::new()) }
}

/// Compares committed files with freshly compiled ones, byte for byte.
fn compare(root: &Path, compiled: &[Compiled], all: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let manifest = Manifest::read(root)?;
    for one in compiled {
        let file = one.source.file();
        match fs::read(root.join("ptx").join(&file)) {
            Err(_) => problems.push(format!("ptx/{file}: missing")),
            Ok(old) if old != one.ptx.as_bytes() => {
                problems.push(format!("ptx/{file}: differs from what {} compiles to", one.source.path()));
            }
            Ok(_) => {}
        }
        if !manifest.ptx.contains(&one.record) {
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
    let sources: Vec<String> = find(root)?.iter().map(Source::file).collect();
    let mut problems = Vec::new();
    for study in folder(&root.join("ptx"))? {
        for file in folder(&study)? {
            let file = format!("{}/{}", last(study.file_name())?, last(file.file_name())?);
            if file.ends_with(".ptx") && !sources.contains(&file) {
                problems.push(format!("ptx/{file}: no kernel of that name; remove it"));
            }
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "// Adds one.\n// target: sm_75\n#include \"one.cuh\"\n\
        extern \"C\" __global__ void add_00_one(float *a) { a[threadIdx.x] = one(a[threadIdx.x]); }\n";
    const HEADER: &str = "#pragma once\n__device__ __forceinline__ float one(float x) { return x * x + 1.0f; }\n";

    /// A tree with one kernel of the study `add`, and one header of `timing`.
    fn tree(kernel: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in
            [("crates/add/kernels/add_00_one.cu", kernel), ("crates/timing/kernels/include/one.cuh", HEADER)]
        {
            write_atomically(&root.path().join(path), text.as_bytes()).unwrap();
        }
        root
    }

    /// NVRTC where it is installed; without it the test says so and ends.
    fn nvrtc() -> Option<Nvrtc> {
        Nvrtc::find().inspect_err(|error| eprintln!("skip: {error:#}")).ok()
    }

    fn build(root: &Path, nvrtc: &Nvrtc) -> (Vec<Compiled>, Vec<String>) {
        compile_all(root, nvrtc, &find(root).unwrap())
    }

    #[test]
    fn headers_state_target_spills_and_flags() {
        let header = Header::parse(
            "// Two words.\n// target: sm_90a\n// spills: allowed because it is a test\n// flags: -fmad=false -G\nint x;\n// target: sm_60\n",
        )
        .unwrap();
        let flags = vec!["-fmad=false".to_string(), "-G".to_string()];
        assert_eq!(header, Header { target: "sm_90a", spills_allowed: true, flags, words: 2 });
    }

    #[test]
    fn headers_refuse_what_they_do_not_know() {
        for (text, expected) in [
            ("int x;\n// target: sm_60\n", "no target"),
            ("// target: sm_61\n", "target sm_61 is not known; allowed: sm_60, sm_75, sm_80, sm_90a"),
            ("// target: sm_60\n// spills: yes\n", "allowed because REASON"),
            ("// target: sm_60\n// spills: allowed because \n", "allowed because REASON"),
            ("// target: sm_60\n// flags: fast\n", "not fast"),
            ("// target: sm_60\n// flags: -I/usr/include\n", "not -I/usr/include"),
        ] {
            let error = format!("{:#}", Header::parse(text).unwrap_err());
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn ptx_text_is_read_for_entries_and_line_tables() {
        let ptx = ".visible .entry a__u8_max(\n)\n// .entry no\n\t.visible .entry b()\n.file 1 \"/rungs/a.cu\"\n";
        assert_eq!(entries(ptx), ["a__u8_max", "b"]);
        assert_eq!(real_path(ptx), None);
        assert_eq!(real_path(&format!("{ptx}\t.file\t2 \"/elsewhere/b.cuh\"\n")), Some("/elsewhere/b.cuh"));
    }

    #[test]
    fn includes_become_full_names_on_the_same_line() {
        let root = tree(KERNEL);
        let kernel = Kernel::read(root.path(), &find(root.path()).unwrap()[0]).unwrap();
        assert_eq!(kernel.text.lines().nth(2), Some("#include \"/rungs/crates/timing/kernels/include/one.cuh\""));
        assert_eq!(kernel.text.lines().count(), KERNEL.lines().count());
        assert_eq!(kernel.headers["crates/timing/kernels/include/one.cuh"].text, HEADER);
        for (name, expected) in [("two.cuh", "cannot find \"two.cuh\""), ("../one.cuh", "without `..`")] {
            let root = tree(&KERNEL.replace("one.cuh", name));
            let error = Kernel::read(root.path(), &find(root.path()).unwrap()[0]).err().unwrap();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[test]
    fn filters_choose_by_part_of_the_name_and_refuse_what_matches_nothing() {
        let source = |study: &str, stem: &str| Source { study: study.into(), stem: stem.into() };
        let all = vec![source("a", "x_00"), source("b", "x_01")];
        assert_eq!(select(all.clone(), &[]).unwrap(), all);
        assert_eq!(select(all.clone(), &["b/".into()]).unwrap(), all[1..]);
        let error = select(all, &["x_01".into(), "y".into()]).unwrap_err().to_string();
        assert_eq!(error, "no kernel's study/stem contains 'y'; there are: a/x_00 b/x_01");
    }

    #[test]
    fn the_bytes_do_not_depend_on_where_the_checkout_lies() {
        let Some(nvrtc) = nvrtc() else { return };
        let (here, there) = (tree(KERNEL), tree(KERNEL));
        let (a, problems) = build(here.path(), &nvrtc);
        assert_eq!(problems, [""; 0]);
        let (b, _) = build(there.path(), &nvrtc);
        assert_eq!(a[0].ptx, b[0].ptx);
        assert_eq!(a[0].record, b[0].record);
        assert!(a[0].ptx.contains("\"/rungs/crates/add/kernels/add_00_one.cu\""));
        assert!(a[0].ptx.contains("\"/rungs/crates/timing/kernels/include/one.cuh\""));
        assert!(a[0].ptx.contains(".target sm_75"));
        assert_eq!(a[0].entries, ["add_00_one"]);
    }

    #[test]
    fn check_passes_what_was_written_and_names_what_differs() {
        let Some(nvrtc) = nvrtc() else { return };
        let root = tree(KERNEL);
        let root = root.path();
        let (compiled, _) = build(root, &nvrtc);
        assert_eq!(compare(root, &compiled, true).unwrap().len(), 2, "neither the file nor its record is there yet");
        assert_eq!(write_all(root, &compiled, true).unwrap(), [""; 0]);
        assert_eq!(compare(root, &compiled, true).unwrap(), [""; 0]);

        let file = root.join("ptx/add/add_00_one.ptx");
        fs::write(&file, compiled[0].ptx.replace("add_00_one(", "add_00_two(")).unwrap();
        let expected = "ptx/add/add_00_one.ptx: differs from what crates/add/kernels/add_00_one.cu compiles to";
        assert_eq!(compare(root, &compiled, true).unwrap(), [expected]);
        write_all(root, &compiled, true).unwrap();

        fs::write(root.join("ptx/add/add_09_gone.ptx"), "").unwrap();
        assert_eq!(
            compare(root, &compiled, true).unwrap(),
            ["ptx/add/add_09_gone.ptx: no kernel of that name; remove it"]
        );
        assert_eq!(compare(root, &compiled, false).unwrap(), [""; 0], "a filtered check looks at its kernels only");
        fs::remove_file(root.join("ptx/add/add_09_gone.ptx")).unwrap();

        let header = root.join("crates/timing/kernels/include/one.cuh");
        fs::write(header, format!("{HEADER}// a comment changes no code\n")).unwrap();
        let expected = "ptx/MANIFEST.toml: the record of add/add_00_one.ptx is missing or out of date";
        assert_eq!(compare(root, &build(root, &nvrtc).0, true).unwrap(), [expected]);
    }

    #[test]
    fn warnings_and_errors_of_the_compiler_are_problems() {
        let Some(nvrtc) = nvrtc() else { return };
        let unused = KERNEL.replace("{ a[", "{ int unused; a[");
        let broken = KERNEL.replace("= one(", "= two(");
        for (text, expected) in [(unused, "unused"), (broken, "\"two\" is undefined")] {
            let root = tree(&text);
            let (compiled, problems) = build(root.path(), &nvrtc);
            assert!(compiled.is_empty());
            assert!(problems[0].starts_with("crates/add/kernels/add_00_one.cu: "), "{problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }

    #[test]
    fn ptx_that_no_assembler_takes_is_found() {
        let Some(nvrtc) = nvrtc() else { return };
        let Ok(ptxas) = Ptxas::find().inspect_err(|error| eprintln!("skip: {error:#}")) else { return };
        let good = tree(KERNEL);
        assert_eq!(ptxas.assemble_all(&build(good.path(), &nvrtc).0).unwrap(), [""; 0]);
        let bad = tree(&KERNEL.replace("{ a[", "{ asm volatile(\"no.such.op;\"); a["));
        let (compiled, problems) = build(bad.path(), &nvrtc);
        assert_eq!(problems, [""; 0], "NVRTC takes any inline PTX");
        let problems = ptxas.assemble_all(&compiled).unwrap();
        assert_eq!(problems.len(), 7, "one for each target from sm_75 up");
        assert!(problems[0].starts_with("add_00_one does not assemble for sm_75: "), "{problems:?}");
    }

    #[test]
    fn spills_are_problems_unless_the_header_allows_them() {
        let Some(nvrtc) = nvrtc() else { return };
        let Ok(ptxas) = Ptxas::find().inspect_err(|error| eprintln!("skip: {error:#}")) else { return };
        let spilling = "// Holds 256 values in at most 32 registers.\n// target: sm_90a\n\
            extern \"C\" __global__ void __launch_bounds__(1024, 2) add_00_one(float *a) {\n\
            float v[256];\n#pragma unroll\nfor (int i = 0; i < 256; ++i) v[i] = a[i];\n\
            __syncthreads();\n#pragma unroll\nfor (int i = 0; i < 256; ++i) a[i * 2 + 1] = v[i] * v[255 - i];\n}\n";
        let root = tree(spilling);
        let problems = ptxas.report(&build(root.path(), &nvrtc).0).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("add_00_one for sm_90a: ") && problems[0].contains("bytes of spills"));
        let root = tree(&format!("// spills: allowed because this is a test\n{spilling}"));
        assert_eq!(ptxas.report(&build(root.path(), &nvrtc).0).unwrap(), [""; 0]);
    }
}
