//! What this program was built from.

use std::process::{Command, Stdio};

use timing::record::Build;

/// Commit, compiler and PTX of this build.
///
/// The commit is recorded when this crate is compiled. An edit in another crate does not recompile this one, so the
/// checkout is asked again now: where its sources differ from that commit, committed or not, this build may be of them,
/// and is `dirty`.
pub fn build() -> Build {
    let mut build = Build {
        git: env!("RUNGS_GIT").into(),
        dirty: env!("RUNGS_DIRTY") == "true",
        rustc: env!("RUNGS_RUSTC").into(),
        ptx_sha256: env!("RUNGS_PTX_SHA256").into(),
    };
    build.dirty |= differs(&build.git).unwrap_or(false);
    build
}

/// Whether what programs are built from differs today from `commit`; `None` where git, the checkout or the commit has
/// gone since the build. Git takes no lock, so that nobody who works in the checkout is disturbed.
fn differs(commit: &str) -> Option<bool> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut command = Command::new("git");
    command.args(["--no-optional-locks", "diff", "--quiet", commit, "--"]).args(SOURCES);
    let status = command.current_dir(root).stdin(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    match status.code()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What programs are built from.
const SOURCES: [&str; 6] = ["Cargo.toml", "Cargo.lock", "ptx", "crates/*.rs", "crates/*.c", "crates/*/Cargo.toml"];

#[cfg(test)]
mod tests {
    #[test]
    fn names_the_compiler_and_either_a_commit_or_nothing() {
        let build = super::build();
        assert!(build.rustc.starts_with("rustc "), "{build:?}");
        assert!(build.git.is_empty() || build.git.len() == 40 && build.git.bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(build.ptx_sha256.is_empty() || build.ptx_sha256.len() == 64);
    }

    #[test]
    fn a_checkout_without_such_a_commit_says_nothing() {
        assert_eq!(super::differs("0000000000000000000000000000000000000000"), None);
        assert_eq!(super::differs(""), None);
    }

    #[test]
    fn sources_of_another_commit_differ() {
        // The empty tree, which every repository has.
        let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        assert!(matches!(super::differs(empty), Some(true) | None));
        if !super::build().git.is_empty() {
            assert_eq!(super::differs(empty), Some(true));
        }
    }
}
