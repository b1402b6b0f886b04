//! Text for terminals: foreign strings made harmless, long lines broken at spaces.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// Columns of text that goes to a file or a pipe.
pub const WIDTH: u16 = 100;

static TERMINAL: OnceLock<u16> = OnceLock::new();

/// From here on [`width`] is that of the terminal that standard output is, if it is one.
pub(crate) fn use_terminal() {
    if io::stdout().is_terminal()
        && let Some((terminal_size::Width(columns), _)) = terminal_size::terminal_size()
    {
        // Narrower than 60 no table can be read, wider than 160 no sentence.
        let _ = TERMINAL.set(columns.clamp(60, 160));
    }
}

/// Columns that text may take.
pub fn width() -> u16 {
    *TERMINAL.get().unwrap_or(&WIDTH)
}

/// Everything that could move the cursor, change colours or turn the direction of writing, written as an escape:
/// strings of a report can come from anywhere.
pub fn clean(text: &str) -> String {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if hostile(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// The words of a cleaned text in lines of at most `width` columns, each with a newline; lines after the first begin
/// with `indent` spaces. A word that is longer than a line stays whole, since names are there to be copied.
pub fn wrap(text: &str, width: u16, indent: usize) -> String {
    let text = clean(text);
    let (mut out, mut line, mut used) = (String::new(), String::new(), 0);
    let (mut spaces, mut empty) = (0, true);
    for word in text.trim_end().split(' ') {
        let length = word.chars().count();
        if length > 0 {
            if !empty && used + spaces + length > usize::from(width) {
                out.push_str(&line);
                out.push('\n');
                line.clear();
                (used, spaces) = (0, indent);
            }
            line.extend(std::iter::repeat_n(' ', spaces));
            line.push_str(word);
            used += spaces + length;
            (spaces, empty) = (0, false);
        }
        spaces += 1;
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_as_escapes() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\t\u{9b}\u{7f}\u{202e}c"), "a\\u{1b}[31mb\\r\\n\\t\\u{9b}\\u{7f}\\u{202e}c");
        assert_eq!(clean("µs, 日本 'x' \\"), "µs, 日本 'x' \\");
    }

    #[test]
    fn lines_break_at_spaces_and_names_stay_whole() {
        assert_eq!(wrap(" one two three", 8, 3), " one two\n   three\n");
        assert_eq!(wrap(" one two", 8, 3), " one two\n");
        assert_eq!(wrap("a a_name_longer_than_a_line b", 10, 2), "a\n  a_name_longer_than_a_line\n  b\n");
        assert_eq!(wrap("a_name_longer_than_a_line", 10, 2), "a_name_longer_than_a_line\n");
        assert_eq!(wrap("  claim     one two", 15, 12), "  claim     one\n            two\n");
        assert_eq!(wrap("one\ntwo", 80, 2), "one\\ntwo\n");
        assert_eq!(wrap("", 80, 2), "\n");
    }
}
