//! What this program was built from.

use std::process::{Command, Stdio};

use timing::record::Build;

/// Commit, compiler and PTX of this build.
///
/// The commit is recorded when this crate is compiled. An edit in another crate does not recompile this one, so the
/// checkout is asked again now: where it still stands at that commit, `dirty` is what its files say today.
pub fn build() -> Build {
    let mut build = Build {
        git: env!("RUNGS_GIT").into(),
        dirty: env!("RUNGS_DIRTY") == "true",
        rustc: env!("RUNGS_RUSTC").into(),
        ptx_sha256: env!("RUNGS_PTX_SHA256").into(),
    };
    if !build.git.is_empty() && git(&["rev-parse", "HEAD"]).as_deref() == Some(&build.git) {
        build.dirty |= git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|s| !s.is_empty());
    }
    build
}

/// Trimmed output of git in the workspace; `None` where either has gone since the build. Git takes no lock, so that
/// nobody who works in the checkout is disturbed.
fn git(args: &[&str]) -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut command = Command::new("git");
    command.arg("--no-optional-locks").args(args).current_dir(root).stdin(Stdio::null());
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

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
        assert_eq!(super::git(&["rev-parse", "--verify", "-q", "no-such-branch"]), None);
    }
}
