//! Rust source as text: what is code, what is a comment, what is a string.

/// One file, read without a parser.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The source with comments and the insides of literals blanked; lines stay where they were.
    pub(crate) code: String,
    /// Every string literal without its quotes, escapes untouched, and the line it starts on.
    pub(crate) strings: Vec<(usize, String)>,
}

impl Scan {
    /// Reads `source`, which is assumed to compile.
    pub(crate) fn of(source: &str) -> Self {
        let mut scan = Self::default();
        let bytes = source.as_bytes();
        let mut at = 0;
        let mut line = 1;
        while at < source.len() {
            let rest = &source[at..];
            let word_before = at > 0 && is_word(bytes[at - 1]);
            let (length, literal) = if rest.starts_with("//") {
                (rest.find('\n').unwrap_or(rest.len()), None)
            } else if rest.starts_with("/*") {
                (block_comment(rest), None)
            } else if let Some((length, open, close)) = string(rest, word_before) {
                (length, Some(&rest[open..length - close]))
            } else if let Some(length) = character(rest) {
                (length, None)
            } else {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                scan.code.push_str(&rest[..length]);
                line += usize::from(rest.starts_with('\n'));
                at += length;
                continue;
            };
            if let Some(literal) = literal {
                scan.strings.push((line, literal.to_string()));
            }
            scan.code.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
            line += rest[..length].matches('\n').count();
            at += length;
        }
        scan
    }

    /// Lines (from 1) of `code` where `token` stands, not as part of a longer word.
    pub(crate) fn lines_with(&self, token: &str) -> Vec<usize> {
        let numbered = self.code.lines().zip(1..);
        numbered.filter(|(line, _)| has_token(line, token)).map(|(_, number)| number).collect()
    }

    /// Lines of `allow(...)` or `expect(...)` lists that name `lint`.
    pub(crate) fn lines_allowing(&self, lint: &str) -> Vec<usize> {
        let mut lines = Vec::new();
        for keyword in ["allow", "expect"] {
            for (at, _) in self.code.match_indices(keyword) {
                let rest = self.code[at + keyword.len()..].trim_start();
                let list = rest.strip_prefix('(').and_then(|list| list.split(')').next());
                if list.is_some_and(|list| list.split(',').any(|name| name.trim() == lint)) {
                    lines.push(self.code[..at].matches('\n').count() + 1);
                }
            }
        }
        lines.sort_unstable();
        lines
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn has_token(line: &str, token: &str) -> bool {
    let bytes = line.as_bytes();
    line.match_indices(token).any(|(at, _)| {
        let end = at + token.len();
        let longer = (at > 0 && is_word(bytes[at - 1])) || bytes.get(end).is_some_and(|&next| is_word(next));
        !longer
    })
}

/// Length of the (nested) block comment that `rest` starts with.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0usize, 0);
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of the string literal that `rest` starts with, and of its opening and closing marks.
fn string(rest: &str, word_before: bool) -> Option<(usize, usize, usize)> {
    let prefix = if word_before { 0 } else { rest.find(|c| !"bcr".contains(c)).filter(|&n| n <= 2)? };
    let body = &rest[prefix..];
    if rest[..prefix].ends_with('r') {
        let hashes = body.find(|c| c != '#')?;
        if !body[hashes..].starts_with('"') {
            return None;
        }
        let close = format!("\"{}", &body[..hashes]);
        let open = prefix + hashes + 1;
        let length = rest[open..].find(&close).map_or(rest.len(), |end| open + end + close.len());
        return Some((length, open, close.len()));
    }
    if !body.starts_with('"') {
        return None;
    }
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return Some((prefix + at + 1, prefix + 1, 1)),
            _ => escaped = false,
        }
    }
    Some((rest.len(), prefix + 1, 0))
}

/// Length of the character literal that `rest` starts with; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.strip_prefix('\'')?.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 2);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_not_code() {
        let source = r####"let a = "unsafe \" unsafe"; // unsafe
/* unsafe /* unsafe */ unsafe */ let b = r#"unsafe " unsafe"#; let c = '"'; let d: &'static str = b"x";
fn f<'a>(x: &'a u8) -> char { '\'' } unsafe {}
let e = br"\"; let r#type = '\u{7f}'; unsafe_code();
"####;
        let scan = Scan::of(source);
        assert_eq!(scan.lines_with("unsafe"), [3]);
        assert_eq!(scan.code.lines().count(), source.lines().count());
        let strings: Vec<&str> = scan.strings.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(strings, [r#"unsafe \" unsafe"#, r#"unsafe " unsafe"#, "x", r"\"]);
        assert_eq!(scan.strings[3].0, 4);
        assert!(scan.code.contains("let r#type =") && scan.code.contains("fn f<'a>(x: &'a u8)"));
    }

    #[test]
    fn lists_of_lints_are_read_across_lines() {
        let scan =
            Scan::of("#![allow(unsafe_code)]\n#[expect(\n  missing_docs,\n  unsafe_code\n)]\n// allow(unsafe_code)\n");
        assert_eq!(scan.lines_allowing("unsafe_code"), [1, 2]);
        assert_eq!(scan.lines_allowing("dead_code"), [0; 0]);
    }

    #[test]
    fn text_that_ends_inside_a_literal_or_comment_is_no_panic() {
        for source in ["\"abc", "/* abc", "r#\"abc", "'", "b", "/", "r#", "\"\\", "'\\", "\u{e9}'\u{e9}'"] {
            Scan::of(source);
        }
    }
}
