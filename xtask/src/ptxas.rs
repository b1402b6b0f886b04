//! The pinned assembler: whether PTX assembles, and what the code costs in registers and memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use rayon::prelude::*;

use crate::ptx::{Compiled, TARGETS};
use crate::{say, wheels};

const RELEASE: &str = "release 12.9";
const IN_WHEEL: &str = "nvidia/cuda_nvcc/bin/ptxas";
const INSTALL: &str = "python3 -m pip install nvidia-cuda-nvcc-cu12==12.9.86";

/// Targets of the table; a kernel's own lowest target comes first where it is not among them.
const REPORTED: [&str; 3] = ["sm_80", "sm_90a", "sm_120"];

/// The assembler of the pinned version.
pub(crate) struct Ptxas {
    program: PathBuf,
}

/// What one kernel costs on one target.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cost {
    entry: String,
    registers: u32,
    spill_store_bytes: u32,
    spill_load_bytes: u32,
    stack_bytes: u32,
    shared_bytes: u32,
}

impl Ptxas {
    /// Takes the program that `RUNGS_PTXAS` names, else the wheel's, else the one on the PATH.
    ///
    /// # Errors
    /// None of them is of release 12.9; the message has the command that installs it.
    pub(crate) fn find() -> Result<Self> {
        if let Some(given) = std::env::var_os("RUNGS_PTXAS") {
            let program = PathBuf::from(given);
            let version = version(&program).context("RUNGS_PTXAS must name ptxas of CUDA 12.9")?;
            ensure!(version.contains(RELEASE), "RUNGS_PTXAS must name ptxas of CUDA 12.9, not {version}");
            return Ok(Self { program });
        }
        let mut candidates = wheels::in_site_packages(IN_WHEEL);
        candidates.push("ptxas".into());
        let mut wrong = String::new();
        for program in candidates {
            match version(&program) {
                Ok(version) if version.contains(RELEASE) => return Ok(Self { program }),
                Ok(version) => wrong = format!(" ({} is {version})", program.display()),
                Err(_) => {}
            }
        }
        bail!("ptxas 12.9 not found{wrong}; install it with: {INSTALL}")
    }

    /// Assembles every file for every target that it must run on; gives what is wrong, a line each.
    pub(crate) fn assemble_all(&self, compiled: &[Compiled]) -> Result<Vec<String>> {
        let folder = Folder::with(compiled)?;
        let work: Vec<(&Compiled, &str)> = compiled
            .iter()
            .flat_map(|one| TARGETS.iter().filter(|(name, _)| *name == one.header.target).map(move |t| (one, t.1)))
            .flat_map(|(one, targets)| targets.iter().map(move |target| (one, *target)))
            .collect();
        let results: Vec<Option<String>> = work
            .par_iter()
            .map(|(one, target)| self.assemble(&folder.file(one), target).err().map(|e| name(one, target, &e)))
            .collect();
        Ok(results.into_iter().flatten().collect())
    }

    /// Prints the table of costs; gives spills that no header allows and optimisations that ptxas gave up.
    pub(crate) fn report(&self, compiled: &[Compiled]) -> Result<Vec<String>> {
        let folder = Folder::with(compiled)?;
        let work: Vec<(&Compiled, &str)> =
            compiled.iter().flat_map(|one| reported(one.header.target).into_iter().map(move |t| (one, t))).collect();
        let logs: Vec<Result<String>> =
            work.par_iter().map(|(one, target)| self.assemble(&folder.file(one), target)).collect();
        let mut problems = Vec::new();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["kernel", "target", "registers", "spill stores", "spill loads", "stack", "shared"]);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for ((one, target), log) in work.into_iter().zip(logs) {
            let log = match log {
                Ok(log) => log,
                Err(error) => {
                    problems.push(name(one, target, &error));
                    continue;
                }
            };
            problems.extend(given_up(&log).map(|line| format!("{} for {target}: {line}", one.source.stem)));
            let costs = costs(&log);
            for entry in one.entries.iter().filter(|entry| !costs.iter().any(|cost| cost.entry == **entry)) {
                problems.push(format!("{entry} for {target}: ptxas does not tell its registers"));
            }
            for cost in costs {
                let spilled = cost.spill_store_bytes + cost.spill_load_bytes;
                if spilled > 0 && !one.header.spills_allowed {
                    problems.push(format!(
                        "{} for {target}: {spilled} bytes of spills; allowed only with a header line // spills: allowed because REASON",
                        cost.entry
                    ));
                }
                let bytes = [cost.spill_store_bytes, cost.spill_load_bytes, cost.stack_bytes, cost.shared_bytes];
                let mut row = vec![cost.entry.clone(), target.to_string(), cost.registers.to_string()];
                row.extend(bytes.map(|n| n.to_string()));
                table.add_row(row);
            }
        }
        say!("{}", table.trim_fmt())?;
        Ok(problems)
    }

    /// Assembles one file and gives what ptxas says.
    fn assemble(&self, file: &Path, target: &str) -> Result<String> {
        let output = Command::new(&self.program)
            .args(["-v", "-o", "/dev/null", &format!("-arch={target}")])
            .arg(file)
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let log = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "{}", log.trim());
        Ok(log)
    }
}

/// PTX texts in files of a temporary folder, named by what the assembler's messages should say.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(compiled: &[Compiled]) -> Result<Self> {
        let folder = Self(tempfile::tempdir()?);
        for one in compiled {
            std::fs::write(folder.file(one), &one.ptx)?;
        }
        Ok(folder)
    }

    fn file(&self, one: &Compiled) -> PathBuf {
        self.0.path().join(format!("{}__{}.ptx", one.source.study, one.source.stem))
    }
}

fn name(one: &Compiled, target: &str, error: &anyhow::Error) -> String {
    format!("{} does not assemble for {target}: {error:#}", one.source.stem)
}

fn reported(target: &'static str) -> Vec<&'static str> {
    if target == "sm_90a" {
        return vec![target];
    }
    let own = (!REPORTED.contains(&target)).then_some(target);
    own.into_iter().chain(REPORTED).collect()
}

fn version(program: &Path) -> Result<String> {
    let output =
        Command::new(program).arg("--version").output().with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().find(|line| line.contains("release")).unwrap_or("not an assembler").trim().to_string())
}

/// Lines that say an optimisation the kernel was written for did not happen.
fn given_up(log: &str) -> impl Iterator<Item = &str> {
    log.lines().map(str::trim).filter(|line| {
        let lower = line.to_lowercase();
        lower.contains("performance loss")
            || lower.contains("serializ")
            || (lower.contains("warning") && lower.contains("spill"))
            || (lower.contains("ignored") && (lower.contains("setmaxnreg") || lower.contains("wgmma")))
    })
}

/// Reads the output of `ptxas -v`.
fn costs(log: &str) -> Vec<Cost> {
    let number_before = |line: &str, unit: &str| -> u32 {
        let before = line.split(unit).next().filter(|before| before.len() < line.len());
        before.and_then(|text| text.split_whitespace().next_back()).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let mut costs: Vec<Cost> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().to_string();
            costs.push(Cost { entry, ..Cost::default() });
        } else if let Some(cost) = costs.last_mut() {
            // A function that was not inlined has a line of its own: its spills are its caller's.
            cost.stack_bytes += number_before(line, " bytes stack frame");
            cost.spill_store_bytes += number_before(line, " bytes spill stores");
            cost.spill_load_bytes += number_before(line, " bytes spill loads");
            if line.contains("Used ") {
                cost.registers = number_before(line, " registers");
                cost.shared_bytes = number_before(line, " bytes smem");
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 8192 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 3.117 ms
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
";

    #[test]
    fn costs_are_read_per_entry() {
        let a = Cost {
            entry: "a".into(),
            registers: 40,
            spill_store_bytes: 8,
            spill_load_bytes: 12,
            stack_bytes: 16,
            shared_bytes: 8192,
        };
        let b = Cost { entry: "b".into(), registers: 8, ..Cost::default() };
        assert_eq!(costs(LOG), [a, b]);
    }

    #[test]
    fn lost_optimisations_are_found_whatever_their_level() {
        assert_eq!(given_up(LOG).count(), 0);
        for line in [
            "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements.",
            "ptxas warning : setmaxnreg ignored; unable to determine register count at entry",
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call",
            "ptxas warning : Registers are spilled to local memory in function 'a', 8 bytes spill stores",
        ] {
            assert_eq!(given_up(&format!("{LOG}{line}\n")).collect::<Vec<_>>(), [line]);
        }
    }

    #[test]
    fn the_lowest_target_of_a_kernel_is_in_the_table() {
        assert_eq!(reported("sm_60"), ["sm_60", "sm_80", "sm_90a", "sm_120"]);
        assert_eq!(reported("sm_80"), ["sm_80", "sm_90a", "sm_120"]);
        assert_eq!(reported("sm_90a"), ["sm_90a"]);
    }
}
