//! What the `timing` command needs of a command line: errors of one line, standard output that may be closed or full,
//! files that are written whole. (`report::cli` does the same for the studies, but depends on this crate.)

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::error::ErrorKind;

/// The command line is wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

/// Parses a command line. None when it asked for help or the version, which is then written to `out`.
pub(crate) fn parse<P: clap::Parser>(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> anyhow::Result<Option<P>> {
    let error = match P::try_parse_from(args) {
        Ok(parsed) => return Ok(Some(parsed)),
        Err(error) => error,
    };
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        out.write_all(text.as_bytes())?;
        return Ok(None);
    }
    let said = text.split("\nUsage:").next().and_then(|t| t.split("\nFor more information").next()).unwrap_or(&text);
    let said = one_line(said.strip_prefix("error: ").unwrap_or(said));
    Err(Usage(format!("{said} (--help lists what there is)")).into())
}

/// A text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Standard output. That its reader has gone away (`| head -1`) is no error and ends nothing: files are still written,
/// and the exit code is that of the work.
pub(crate) struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(io::stdout().flush(), ())
    }
}

fn unless_closed<T>(result: io::Result<T>, done: T) -> io::Result<T> {
    result.or_else(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Ok(done),
        io::ErrorKind::Interrupted => Err(e), // callers retry it
        kind => Err(io::Error::new(kind, format!("cannot write to standard output: {e}"))),
    })
}

/// Where a file's bytes go.
enum Destination {
    /// Into what is there and is no regular file (a device, a pipe): renaming would replace it.
    InPlace,
    /// To a temporary name first, then renamed.
    Beside { target: PathBuf, temporary: PathBuf },
}

/// Writes a file whole or not at all. An existing file keeps its mode, a link its name; missing folders are made.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        match destination(path)? {
            Destination::InPlace => Ok(OpenOptions::new().write(true).open(path)?.write_all(bytes)?),
            Destination::Beside { target, temporary } => {
                let whole = || {
                    File::create(&temporary)?.write_all(bytes)?;
                    if let Ok(old) = fs::metadata(&target) {
                        fs::set_permissions(&temporary, old.permissions())?;
                    }
                    fs::rename(&temporary, &target)
                };
                Ok(whole().inspect_err(|_| drop(fs::remove_file(&temporary)))?)
            }
        }
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Finds out before long work whether [`write_file`] could write `path`.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    let check = || -> anyhow::Result<()> {
        match destination(path)? {
            // Opening a pipe would wait for its reader, and closing it again would end the reader's input.
            Destination::InPlace if is_pipe(path) => Ok(()),
            Destination::InPlace => Ok(OpenOptions::new().write(true).open(path).map(drop)?),
            Destination::Beside { temporary, .. } => {
                Ok(File::create(&temporary).and_then(|_| fs::remove_file(&temporary))?)
            }
        }
    };
    check().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_path: &Path) -> bool {
    false
}

fn destination(path: &Path) -> anyhow::Result<Destination> {
    let target = match fs::metadata(path) {
        Ok(found) if found.is_dir() => bail!("it is a folder"),
        Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => bail!("it is a folder"),
        Ok(found) if !found.is_file() => return Ok(Destination::InPlace),
        // Renaming onto a link would replace the link.
        Ok(_) => fs::canonicalize(path)?,
        Err(_) => end_of_links(path)?,
    };
    let mut temporary = OsString::from(".");
    temporary.push(target.file_name().context("it names no file")?);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let temporary = folder.join(temporary);
    Ok(Destination::Beside { target, temporary })
}

/// What a path names in the end, where nothing is there yet.
fn end_of_links(path: &Path) -> anyhow::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    ensure!(fs::read_link(&path).is_err(), "too many links");
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        write_file(&path, b"a longer text").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn places_that_hold_no_file_are_named_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "kept").unwrap();
        for (place, says) in [
            ("", "it is a folder"),
            ("missing/", "it is a folder"),
            ("file/x.json", "no folder"),
            ("file/x/y.json", "no folder"),
        ] {
            let path = folder.path().join(place);
            for error in [check_writable(&path).unwrap_err(), write_file(&path, b"x").unwrap_err()] {
                let text = format!("{error:#}");
                assert!(text.starts_with("cannot write") && text.contains(says) && !text.contains('\n'), "{text}");
            }
        }
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"kept");
        assert!(write_file(Path::new(""), b"x").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn devices_links_and_modes_survive() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let null = Path::new("/dev/null");
        check_writable(null).unwrap();
        write_file(null, b"x").unwrap();
        assert!(fs::metadata(null).unwrap().file_type().is_char_device());
        if Path::new("/dev/full").exists() {
            assert!(write_file(Path::new("/dev/full"), b"x").is_err());
        }

        fs::write(at("file"), "old").unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", at("link")).unwrap();
        write_file(&at("link"), b"new").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("file")).unwrap(), b"new");
        assert_eq!(fs::metadata(at("file")).unwrap().permissions().mode() & 0o777, 0o640);

        fs::create_dir(at("sub")).unwrap();
        symlink("sub/late", at("dangling")).unwrap();
        check_writable(&at("dangling")).unwrap();
        write_file(&at("dangling"), b"late").unwrap();
        assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());
        assert_eq!(fs::read(at("sub/late")).unwrap(), b"late");

        symlink("loop", at("loop")).unwrap();
        assert!(format!("{:#}", write_file(&at("loop"), b"x").unwrap_err()).contains("too many links"));
    }
}
