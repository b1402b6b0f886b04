//! What the command lines of all programs share: exit codes, printing that survives a closed pipe, files that are
//! written whole or not at all, and messages that name the nearest thing that exists.
//!
//! A `main` is `cli::main(|out| ...)`: it writes its text to `out` and returns any error with `?`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

pub use crate::file::{FileError, check_writable, distinct, same_file, text_beside, write_file};
use crate::study::Skip;
use crate::text;

/// Exit codes, with [`Exit`] as the error that carries one.
pub mod code {
    /// Input or output failed.
    pub const IO: u8 = 1;
    /// The command line asks for something that does not exist.
    pub const USAGE: u8 = 2;
    /// A result did not match its reference.
    pub const CHECK: u8 = 3;
    /// A required finding was not reproduced, or `REQUIRE_*` is unmet.
    pub const UNMET: u8 = 4;
    /// A comparison found something slower.
    pub const SLOWER: u8 = 5;
}

/// Ends the program with a code and one line on standard error.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    /// See [`code`]; 0 ends it quietly.
    pub code: u8,
    /// The line.
    pub message: String,
}

impl Exit {
    /// An exit with a code of [`code`].
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(code::USAGE, message)
    }
}

/// Runs a program: gives it standard output and turns its errors into an exit code and one line.
///
/// An [`Exit`] keeps its code, a closed pipe is a quiet 0, and every other error is 1.
pub fn main(body: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> ExitCode {
    text::use_terminal();
    let mut out = StandardOutput(io::stdout().lock());
    let mut result = body(&mut out);
    if let Err(flush) = out.flush() {
        result = result.and(Err(flush.into()));
    }
    let (code, message) = match &result {
        Ok(()) => (0, None),
        Err(e) => status(e),
    };
    if let Some(message) = message {
        note(&format!("error: {message}"));
    }
    ExitCode::from(code)
}

/// Exit code of an error, and its line unless it ends quietly.
pub fn status(error: &anyhow::Error) -> (u8, Option<String>) {
    for cause in error.chain() {
        if let Some(exit) = cause.downcast_ref::<Exit>() {
            return (exit.code, (!exit.message.is_empty()).then(|| one_line(&exit.message)));
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            return (0, None);
        }
    }
    // Many errors say what their source says; a reader needs it once.
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    (code::IO, Some(one_line(&message)))
}

/// Writes a line to standard error; where nobody can read it, that is no reason to stop.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

fn one_line(text: &str) -> String {
    text::clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Standard output whose errors say that it was standard output. That its reader has gone away (`| head -1`) is no error
/// and ends nothing: files are still written, and the exit code is that of the work.
struct StandardOutput<'a>(io::StdoutLock<'a>);

impl Write for StandardOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(result: io::Result<T>, done: T) -> io::Result<T> {
    result.or_else(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Ok(done),
        io::ErrorKind::Interrupted => Err(e), // callers retry it
        kind => Err(io::Error::new(kind, format!("cannot write to standard output: {e}"))),
    })
}

/// Parses a command line. Help and version go to `out` and end with 0; a mistake is one line and ends with 2.
pub fn parse<P: clap::Parser>(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> anyhow::Result<P> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let error = match P::try_parse_from(args) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let text = error.render().to_string();
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        out.write_all(text.as_bytes())?;
        return Err(Exit::new(0, "").into());
    }
    let said =
        text.split("\nUsage:").next().unwrap_or_default().split("\nFor more information").next().unwrap_or_default();
    let said = one_line(said.strip_prefix("error: ").unwrap_or(said));
    Err(Exit::usage(format!("{said} (--help lists what there is)")).into())
}

/// The name among `allowed` that `name` most likely meant.
pub fn nearest<'a>(name: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |a: &str| strsim::osa_distance(&name, &a.to_lowercase());
    let (best, edits) = allowed.into_iter().map(|a| (a, distance(a))).min_by_key(|&(_, d)| d)?;
    (edits <= (name.chars().count() / 3).max(1)).then_some(best)
}

/// `name` is not one of `allowed`: a usage error that says which it may be. `what` is the kind of name, e.g. `rung`.
pub fn unknown<'a>(what: &str, name: &str, allowed: impl IntoIterator<Item = &'a str> + Clone) -> Exit {
    let list = allowed.clone().into_iter().collect::<Vec<_>>().join(", ");
    let list = if list.is_empty() { "there is none".into() } else { format!("there is {list}") };
    Exit::usage(match nearest(name, allowed) {
        Some(near) => format!("no {what} `{name}`; did you mean `{near}`? ({list})"),
        None => format!("no {what} `{name}`; {list}"),
    })
}

/// The exit that skips cause where `REQUIRE_GPU` or `REQUIRE_AVX512` asks for what they lack.
pub fn required(skips: &[Skip]) -> Result<(), Exit> {
    match skips.iter().find_map(|s| s.requires.filter(|r| r.enforced()).map(|r| (s, r))) {
        Some((skip, requirement)) => {
            Err(Exit::new(code::UNMET, format!("{} is set, but {skip}", requirement.variable())))
        }
        None => Ok(()),
    }
}

/// The exit that failed checks cause.
pub fn checked(failures: &[String]) -> Result<(), Exit> {
    let [first, rest @ ..] = failures else { return Ok(()) };
    let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
    Err(Exit::new(code::CHECK, format!("a check failed: {first}{more}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn errors_map_to_codes_through_their_context() {
        let broken = || anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(status(&broken()), (0, None));
        assert_eq!(status(&broken().context("while printing")), (0, None));
        assert_eq!(status(&Exit::usage("no\nsuch").into()), (2, Some("no such".into())));
        let wrapped = Err::<(), _>(Exit::new(code::CHECK, "wrong")).context("rung").unwrap_err();
        assert_eq!(status(&wrapped), (3, Some("wrong".into())));
        assert_eq!(status(&anyhow::anyhow!("a").context("b")), (1, Some("b: a".into())));
        assert_eq!(status(&anyhow::anyhow!("a").context("b: a").context("c")), (1, Some("c: b: a".into())));
        assert_eq!(status(&anyhow::anyhow!("a\u{1b}[1m").context("b")).1.unwrap(), "b: a\\u{1b}[1m");
    }

    #[test]
    fn names_are_suggested_only_when_near() {
        let names = ["mandelbrot", "matmul", "memhier"];
        assert_eq!(nearest("mandlebrot", names), Some("mandelbrot"));
        assert_eq!(nearest("MATMUL", names), Some("matmul"));
        assert_eq!(nearest("convolution", names), None);
        assert_eq!(nearest("x", []), None);
        assert!(unknown("study", "memheir", names).to_string().contains("did you mean `memhier`?"));
        assert_eq!(unknown("study", "x", []).to_string(), "no study `x`; there is none");
    }

    #[test]
    fn a_command_line_mistake_is_one_line() {
        #[derive(clap::Parser, Debug)]
        struct Args {
            #[arg(long)]
            size: Option<u32>,
        }
        let run = |args: &[&str]| {
            let mut out = Vec::new();
            let args = ["p"].iter().chain(args).map(OsString::from).collect::<Vec<_>>();
            let result = parse::<Args>(args, &mut out).map(|a| a.size).map_err(|e| status(&e));
            (result, String::from_utf8(out).unwrap())
        };
        assert_eq!(run(&["--size", "3"]).0, Ok(Some(3)));
        let (help, text) = run(&["--help"]);
        assert!(help == Err((0, None)) && text.contains("--size"), "{help:?} {text}");
        for args in [&["--sise", "3"][..], &["--size", "-1"], &["--size"], &["--size", "x"], &["extra"]] {
            let (code, message) = run(args).0.unwrap_err();
            let message = message.unwrap();
            assert!(code == 2 && !message.contains('\n') && !message.contains("Usage"), "{message}");
        }
        assert!(run(&["--sise", "3"]).0.unwrap_err().1.unwrap().contains("'--size'"));
    }
}
