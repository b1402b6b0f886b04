//! Files that are written whole or not at all, and the places where nothing can be written.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::cli::Exit;

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {detail}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub detail: String,
}

/// Writes a file whole or not at all: under a temporary name beside it, then renamed. Missing folders are made, a
/// symbolic link keeps naming its file, and a file that is replaced keeps its permissions.
///
/// A device or a pipe is written in place. A pipe that nobody reads is an error; a reader who stops early is none.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let fail = |detail: String| FileError { path: path.into(), detail };
    match destination(path).map_err(fail)? {
        Destination::Device => {
            let write = || OpenOptions::new().write(true).open(path)?.write_all(bytes);
            write().map_err(|e| fail(e.to_string()))
        }
        Destination::Pipe => match open_pipe(path).and_then(|mut pipe| pipe.write_all(bytes)) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(fail(e.to_string())),
            _ => Ok(()),
        },
        Destination::File { target, temporary, permissions } => {
            let write = || {
                let mut file = File::create(&temporary)?;
                if let Some(permissions) = permissions {
                    file.set_permissions(permissions)?;
                }
                file.write_all(bytes)?;
                fs::rename(&temporary, &target)
            };
            write().map_err(|e| {
                let _ = fs::remove_file(&temporary);
                fail(e.to_string())
            })
        }
    }
}

/// Finds out before long work whether [`write_file`] could write `path`, and makes missing folders.
///
/// A pipe is not opened: that would wait for its reader, and closing it again would send the reader away.
pub fn check_writable(path: &Path) -> Result<(), FileError> {
    let fail = |detail: String| FileError { path: path.into(), detail };
    let probe = match destination(path).map_err(fail)? {
        Destination::Pipe => Ok(()),
        Destination::Device => OpenOptions::new().write(true).open(path).map(drop),
        Destination::File { temporary, .. } => File::create(&temporary).and_then(|_| fs::remove_file(&temporary)),
    };
    probe.map_err(|e| fail(e.to_string()))
}

enum Destination {
    Device,
    Pipe,
    File { target: PathBuf, temporary: PathBuf, permissions: Option<Permissions> },
}

fn destination(path: &Path) -> Result<Destination, String> {
    if path.to_string_lossy().ends_with(std::path::is_separator) {
        return Err("it is the name of a folder".into());
    }
    let (target, permissions) = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err("it is a folder".into()),
        Ok(found) if !found.is_file() => return in_place(&found),
        Ok(found) if found.permissions().readonly() => return Err("it is read-only".into()),
        // Renaming onto a symbolic link would replace the link, not what it names.
        Ok(found) => (fs::canonicalize(path).map_err(|e| e.to_string())?, Some(found.permissions())),
        Err(_) => (follow(path)?, None),
    };
    let Some(name) = target.file_name() else { return Err("it names no file".into()) };
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let folder = folder(&target);
    if let Some(file) = folder.ancestors().find(|a| a.exists()).filter(|a| !a.is_dir()) {
        return Err(format!("{} is a file, not a folder", file.display()));
    }
    fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    let temporary = folder.join(temporary);
    Ok(Destination::File { target, temporary, permissions })
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What a symbolic link names that leads to nothing yet; any other path as it is.
fn follow(path: &Path) -> Result<PathBuf, String> {
    let mut target = path.to_path_buf();
    for _ in 0..40 {
        match fs::read_link(&target) {
            Ok(next) => target = folder(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err("too many symbolic links".into())
}

#[cfg(unix)]
fn in_place(found: &fs::Metadata) -> Result<Destination, String> {
    use std::os::unix::fs::FileTypeExt;
    let kind = found.file_type();
    match () {
        () if kind.is_fifo() => Ok(Destination::Pipe),
        () if kind.is_socket() => Err("it is a socket; name a file or a pipe".into()),
        () if kind.is_block_device() => Err("it is a disk; name a file or a pipe".into()),
        () => Ok(Destination::Device),
    }
}

#[cfg(not(unix))]
fn in_place(_: &fs::Metadata) -> Result<Destination, String> {
    Ok(Destination::Device)
}

/// Opens a pipe that somebody reads; an ordinary open would wait for a reader for ever.
#[cfg(unix)]
fn open_pipe(path: &Path) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::os::unix::fs::OpenOptionsExt;
    let opened = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let pipe = opened.map_err(|e| match rustix::io::Errno::from_io_error(&e) {
        Some(rustix::io::Errno::NXIO) => io::Error::other("nobody reads this pipe"),
        _ => e,
    })?;
    // A reader is there; from here on a full pipe is waited for.
    fcntl_setfl(&pipe, OFlags::empty())?;
    Ok(pipe)
}

#[cfg(not(unix))]
fn open_pipe(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Whether two paths lead to one file, by whatever spelling, symbolic or hard link; of files that do not exist,
/// whether they would. A device such as `/dev/null` holds nothing that could be lost: it is never the same.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a_found), Ok(b_found)) => !is_device(&a_found) && same_existing((a, &a_found), (b, &b_found)),
        (Err(_), Err(_)) => match (place(a), place(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
        _ => false,
    }
}

#[cfg(unix)]
fn same_existing((_, a): (&Path, &fs::Metadata), (_, b): (&Path, &fs::Metadata)) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_existing((a, _): (&Path, &fs::Metadata), (b, _): (&Path, &fs::Metadata)) -> bool {
    fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

#[cfg(unix)]
fn is_device(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_char_device()
}

#[cfg(not(unix))]
fn is_device(found: &fs::Metadata) -> bool {
    !found.is_file() && !found.is_dir()
}

/// Where a file that does not exist would come to be: its nearest existing folder, resolved, and the rest.
fn place(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(follow(path).ok()?).ok()?;
    let existing = path.ancestors().find(|a| a.exists())?;
    let mut place = fs::canonicalize(existing).ok()?;
    for part in path.strip_prefix(existing).ok()?.components() {
        match part {
            Component::ParentDir => drop(place.pop()),
            part => place.push(part),
        }
    }
    Some(place)
}

/// Refuses a command line that gives two of its options one file. `files` are options with their files.
pub fn distinct(files: &[(&str, &Path)]) -> Result<(), Exit> {
    for (i, (option, file)) in files.iter().enumerate() {
        if let Some((other, _)) = files[..i].iter().find(|(_, f)| same_file(f, file)) {
            return Err(Exit::usage(format!("{other} and {option} name the same file, {}", file.display())));
        }
    }
    Ok(())
}

/// Where text belongs: `out`, or standard error where one of the files is what standard output is, so that
/// `--json /dev/stdout | jq` sees nothing but JSON.
pub fn text_beside<'a>(files: &[&Path], out: &'a mut dyn Write) -> Box<dyn Write + 'a> {
    if files.iter().any(|file| same_file(file, Path::new("/dev/stdout"))) {
        return Box::new(io::stderr());
    }
    Box::new(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/report.json");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        write_file(&path, b"one").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn places_that_cannot_hold_a_file_say_why() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "kept").unwrap();
        for (place, says) in [
            ("new/", "name of a folder"),
            ("file/report.json", "is a file, not a folder"),
            ("file/x/y.json", "is a file"),
            ("", "folder"),
        ] {
            for error in [check_writable(&folder.path().join(place)), write_file(&folder.path().join(place), b"x")] {
                let message = error.unwrap_err().to_string();
                assert!(message.contains(says) && message.starts_with("cannot write"), "{place}: {message}");
            }
        }
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"kept");
        assert!(write_file(Path::new(""), b"x").is_err() && write_file(Path::new(".."), b"x").is_err());
    }

    #[test]
    fn a_read_only_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "kept").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        for error in [check_writable(&path), write_file(&path, b"x")] {
            assert!(error.unwrap_err().detail.contains("read-only"));
        }
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }

    #[test]
    fn files_that_do_not_exist_are_the_same_where_they_would_come_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("a")).unwrap();
        for (a, b, same) in [
            ("x", "x", true),
            ("x", "y", false),
            ("x", "./x", true),
            ("a/../x", "x", true),
            ("new/x", "new/./x", true),
            ("new/../x", "x", true),
            ("a/x", "x", false),
        ] {
            assert_eq!(same_file(&at(a), &at(b)), same, "{a} {b}");
        }
        // Relative and absolute: the folder of the test is that of the crate.
        let here = std::env::current_dir().unwrap();
        assert!(same_file(Path::new("no-such-file"), &here.join("src/../no-such-file")));
    }

    #[cfg(unix)]
    mod unix {
        use super::*;
        use std::io::Read;
        use std::os::unix::fs::{PermissionsExt, symlink};
        use std::time::{Duration, Instant};

        #[test]
        fn a_link_keeps_naming_its_file_and_a_device_is_not_replaced() {
            let folder = tempfile::tempdir().unwrap();
            let (file, link) = (folder.path().join("file"), folder.path().join("link"));
            fs::write(&file, "old").unwrap();
            symlink(&file, &link).unwrap();
            write_file(&link, b"new").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&file).unwrap(), b"new");
            write_file(Path::new("/dev/null"), b"x").unwrap();
            if Path::new("/dev/full").exists() {
                check_writable(Path::new("/dev/full")).unwrap();
                assert!(write_file(Path::new("/dev/full"), b"x").unwrap_err().to_string().contains("/dev/full"));
            }
        }

        #[test]
        fn a_link_to_nothing_yet_is_written_through() {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            symlink("second", at("link")).unwrap();
            symlink("new/file", at("second")).unwrap();
            check_writable(&at("link")).unwrap();
            write_file(&at("link"), b"x").unwrap();
            assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
            assert_eq!(fs::read(at("new/file")).unwrap(), b"x");
            symlink("loop", at("loop")).unwrap();
            assert!(write_file(&at("loop"), b"x").unwrap_err().detail.contains("symbolic links"));
        }

        #[test]
        fn a_replaced_file_keeps_its_mode() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            for mode in [0o600, 0o640, 0o755] {
                fs::write(&path, "old").unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                write_file(&path, b"new").unwrap();
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            }
        }

        #[test]
        fn links_lead_to_the_same_file_and_devices_are_nobody_s() {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("file"), "").unwrap();
            symlink("file", at("soft")).unwrap();
            fs::hard_link(at("file"), at("hard")).unwrap();
            symlink(".", at("here")).unwrap();
            symlink("later", at("dangling")).unwrap();
            for (a, b) in [("file", "soft"), ("file", "hard"), ("file", "here/file"), ("soft", "here/hard")] {
                assert!(same_file(&at(a), &at(b)), "{a} {b}");
            }
            assert!(same_file(&at("dangling"), &at("later")) && same_file(&at("here/later"), &at("dangling")));
            assert!(!same_file(&at("file"), &at("later")));
            assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
            let error = distinct(&[("--json", &at("file")), ("--html", &at("soft"))]).unwrap_err();
            assert!(error.code == 2 && error.message.starts_with("--json and --html name the same file"), "{error}");
        }

        fn fifo(path: &Path) {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }

        #[test]
        fn a_pipe_without_a_reader_is_an_error_and_not_a_wait() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pipe");
            fifo(&path);
            let began = Instant::now();
            check_writable(&path).unwrap();
            assert_eq!(write_file(&path, b"x").unwrap_err().detail, "nobody reads this pipe");
            assert!(began.elapsed() < Duration::from_secs(5));
        }

        #[test]
        fn a_pipe_gets_everything_and_its_reader_may_stop() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pipe");
            fifo(&path);
            let much = vec![7_u8; 1 << 20];
            for stops in [false, true] {
                std::thread::scope(|scope| {
                    let reader = scope.spawn(|| {
                        let mut pipe = File::open(&path).unwrap();
                        let mut got = Vec::new();
                        if stops {
                            pipe.read_exact(&mut [0]).unwrap();
                        } else {
                            pipe.read_to_end(&mut got).unwrap();
                        }
                        got
                    });
                    // Waits until the reader is there.
                    let holder = OpenOptions::new().write(true).open(&path).unwrap();
                    write_file(&path, &much).unwrap();
                    drop(holder);
                    let got = reader.join().unwrap();
                    assert!(stops || got == much);
                });
            }
        }

        #[test]
        fn a_socket_is_refused() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
            for error in [check_writable(&path), write_file(&path, b"x")] {
                assert!(error.unwrap_err().detail.contains("a socket"));
            }
        }
    }
}
