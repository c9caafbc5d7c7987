//! `sluice doctor`.

use super::table::broken;
use super::{BAD, NOTE, Shown, TITLE, styled};
use crate::doctor::{Finding, Mark};

/// Columns before the text of a finding.
const MARGIN: usize = 8;
/// Text is not made narrower than this.
const NARROWEST: usize = 40;

/// Findings by section; what is well only with `all`, or in a line of each section.
pub fn doctor(findings: &[Finding], all: bool, width: Option<usize>) -> Shown {
    let mut out = String::new();
    let mut section = None;
    for finding in findings.iter().filter(|it| all || it.mark != Mark::Ok) {
        if section != Some(finding.section) {
            let gap = if section.is_some() { "\n" } else { "" };
            out.push_str(&format!("{gap}{}\n", styled(TITLE, finding.section.title())));
            section = Some(finding.section);
        }
        out.push_str(&one(finding, width));
    }
    let count = |mark| findings.iter().filter(|finding| finding.mark == mark).count();
    let (fails, warns) = (count(Mark::Fail), count(Mark::Warn));
    let (unseen, well) = (count(Mark::Unseen), count(Mark::Ok));
    let gap = if section.is_some() { "\n" } else { "" };
    out.push_str(&format!("{gap}{fails} wrong, {warns} to look at, {well} well"));
    if unseen > 0 {
        out.push_str(&format!(", {unseen} not seen"));
    }
    out.push('\n');
    Shown::new(out)
}

fn one(finding: &Finding, width: Option<usize>) -> String {
    let mark = match finding.mark {
        Mark::Ok => "  ok    ".to_owned(),
        Mark::Unseen => format!("  {}     ", styled(NOTE, "?")),
        Mark::Warn => format!("  {}  ", styled(NOTE, "warn")),
        Mark::Fail => format!("  {}  ", styled(BAD, "FAIL")),
    };
    let mut out = mark + &flowing(&finding.text, width) + "\n";
    let margin = " ".repeat(MARGIN);
    if !finding.advice.is_empty() {
        out.push_str(&format!("{margin}{}\n", flowing(&finding.advice, width)));
    }
    for command in &finding.fix {
        // Never broken: it is to be copied.
        out.push_str(&format!("{margin}  # {command}\n"));
    }
    out
}

fn flowing(text: &str, width: Option<usize>) -> String {
    let margin = format!("\n{}", " ".repeat(MARGIN));
    let lines = text.lines().flat_map(|line| match width {
        Some(width) => broken(line, width.saturating_sub(MARGIN).max(NARROWEST)),
        None => vec![line.to_owned()],
    });
    lines.collect::<Vec<_>>().join(&margin)
}

/// The commands alone, each below what it is for, for a shell.
pub fn fix_script(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|it| it.mark > Mark::Unseen && !it.fix.is_empty()) {
        for line in finding.text.lines() {
            out.push_str(&format!("# {line}\n"));
        }
        for command in &finding.fix {
            out.push_str(&format!("{command}\n"));
        }
    }
    out
}
