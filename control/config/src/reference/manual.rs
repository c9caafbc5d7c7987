//! The same reference as a manual page, `sluice.toml(5)`, in roff's `man` macros.

use std::fmt::{self, Write};

use crate::device::KINDS;
use crate::schema::keys::FILE;
use crate::schema::{Key, Section, Without};

const HEAD: &str = "\
.TH SLUICE.TOML 5 \"\" \"Sluice\" \"File Formats\"
.SH NAME
sluice.toml \\- configuration of the director of Sluice
.SH DESCRIPTION
.B sluiced
and
.B sluice replay
read one file in TOML.
.B sluice config check
.I FILE
checks it without starting; a running director rereads it on SIGHUP or
.BR \"sluice config reload\" ,
and keeps its configuration if the file is invalid.
.PP
An error message names file, line, column and key, what was found and what would be valid, for all
errors of the file at once.
A key that is not on this page is an error.
.PP
Addresses and prefixes may be IPv4 or IPv6.
";

const TAIL: &str = "\
.SH FILES
.TP
.I /etc/sluice/sluice.toml
.SH SEE ALSO
.BR sluice (1),
.BR sluiced (8)
";

/// The page.
pub fn manual() -> String {
    let mut text = HEAD.to_owned();
    for section in FILE.flatten().into_iter().filter(|section| !section.heading.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_section(&mut text, section);
    }
    text.push_str(".SH DEVICES\nThe device of a port is KIND:WHAT.\n");
    for (kind, example, about) in KINDS {
        let _ = write!(text, ".TP\n.B {kind}\n{}\nExample: {}\n", roff(about), roff(example));
    }
    text + TAIL
}

fn write_section(out: &mut String, section: &Section) -> fmt::Result {
    let more = if section.repeats() { " (any number)" } else { "" };
    let heading = roff(section.heading);
    writeln!(out, ".SH \"{heading}{more}\"\n{}", roff(section.about))?;
    for Key { name, kind, without, example, about } in section.keys {
        writeln!(out, ".TP\n.B {}\n{}", roff(name), roff(about))?;
        writeln!(out, ".br\nValue: {}.", roff(&super::describe(kind)))?;
        match without {
            Without::Required | Without::Awaited => writeln!(out, "Required.")?,
            other => writeln!(out, "Default: {}.", roff(&super::default(other)))?,
        }
        writeln!(out, "Example: {}", roff(example))?;
    }
    Ok(())
}

/// Markdown's text as roff has it: no marks of code, no bold, nothing that roff would obey.
fn roff(markdown: &str) -> String {
    let plain = markdown.replace(['`'], "").replace("**", "");
    let mut out = String::with_capacity(plain.len());
    for (at, line) in plain.trim().lines().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        // A control character at the beginning of a line would be a request.
        if line.starts_with(['.', '\'']) {
            out.push_str("\\&");
        }
        for letter in line.chars() {
            match letter {
                '\\' => out.push_str("\\e"),
                '-' => out.push_str("\\-"),
                '"' => out.push_str("\\(dq"),
                '~' => out.push_str("\\(ti"),
                '^' => out.push_str("\\(ha"),
                other => out.push(other),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_place() {
        let page = manual();
        for section in FILE.flatten() {
            for key in section.keys {
                assert!(page.contains(&format!("\n.B {}\n", key.name)), "{}", key.name);
            }
        }
        let requests = page.lines().filter(|line| line.starts_with('.'));
        for line in requests {
            let word = line.split(' ').next().unwrap_or_default();
            assert!(
                [".TH", ".SH", ".TP", ".B", ".BR", ".I", ".PP", ".br"].contains(&word),
                "{line}"
            );
        }
    }

    #[test]
    fn text_is_not_obeyed() {
        assert_eq!(roff(".so `x`"), "\\&.so x");
        assert_eq!(roff("a-b \"c\\d\""), "a\\-b \\(dqc\\ed\\(dq");
        assert_eq!(roff("'quoted"), "\\&'quoted");
    }
}
