//! Finds the two NVIDIA tools in the places where Python packages live.

use std::path::PathBuf;
use std::process::Command;

/// Folders that may hold installed Python packages: `$VIRTUAL_ENV` first, then what `python3` imports from.
pub(crate) fn site_packages() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(venv) = std::env::var_os("VIRTUAL_ENV")
        && let Ok(pythons) = std::fs::read_dir(PathBuf::from(venv).join("lib"))
    {
        folders.extend(pythons.flatten().map(|python| python.path().join("site-packages")));
    }
    let sys_path = Command::new("python3").args(["-c", "import sys; print('\\n'.join(sys.path))"]).output();
    if let Ok(output) = sys_path {
        let lines = String::from_utf8_lossy(&output.stdout);
        folders.extend(lines.lines().filter(|line| !line.is_empty()).map(PathBuf::from));
    }
    folders
}

/// Files named `relative` below the folders of [`site_packages`], in that order.
pub(crate) fn in_site_packages(relative: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in site_packages() {
        let file = folder.join(relative);
        if file.is_file() && !found.contains(&file) {
            found.push(file);
        }
    }
    found
}
