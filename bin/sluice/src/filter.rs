//! tcpdump's filter language, compiled by libpcap to the classic BPF that the director runs.
//!
//! It is compiled here, not in the director, so that a parser of foreign text runs as whoever
//! typed it; the director checks the program.

use pcap::{Capture, Linktype};

/// Compiles an expression for Ethernet frames: code, jt, jf and k of each instruction.
///
/// # Errors
/// Says how far the expression was understood, and what libpcap says of it.
pub fn compile(expression: &str) -> Result<Vec<[u32; 4]>, String> {
    let program = program(expression).map_err(|wrong| explained(expression, &wrong))?;
    let read = |text: String| {
        let numbers: Vec<u32> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().map_err(|_| format!("libpcap made a strange instruction: {text}"))
    };
    program.get_instructions().iter().map(|instruction| read(instruction.to_string())).collect()
}

fn program(expression: &str) -> Result<pcap::BpfProgram, String> {
    // Bytes of zero end a string in C, and libpcap's crate would panic.
    if expression.contains('\0') {
        return Err("a byte of zero is in it".to_owned());
    }
    let dead = Capture::dead(Linktype::ETHERNET).map_err(|error| error.to_string())?;
    dead.compile(expression, true).map_err(|error| {
        let text = error.to_string();
        text.trim_start_matches("libpcap error: ").to_owned()
    })
}

/// What is wrong, and where: what of the expression makes sense by itself.
fn explained(expression: &str, wrong: &str) -> String {
    let ends = expression.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, _)| at);
    let ends: Vec<_> = ends.collect();
    let good = ends
        .iter()
        .rev()
        .map(|end| expression.split_at(*end))
        .find(|(before, _)| !before.trim().is_empty() && program(before).is_ok());
    let place = match good {
        Some((before, after)) => {
            format!("understood: `{}`; not understood: `{}`", before.trim(), after.trim())
        }
        None => format!("not understood: `{}`", expression.trim()),
    };
    format!(
        "the filter is wrong: {wrong}; {place}; man 7 pcap-filter explains the language, for \
         example: host 203.0.113.9 and tcp port 80"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_becomes_a_program() {
        let program = compile("tcp port 80").expect("a program");
        assert!(program.len() > 5, "{program:?}");
        // What tcpdump -ddd begins with too: the Ethernet type.
        assert_eq!(program[0], [0x28, 0, 0, 12]);
        assert_eq!(program.last().map(|last| last[0]), Some(6));
        assert!(compile("").is_ok(), "no expression takes everything");
    }

    #[test]
    fn a_wrong_expression_is_told_where() {
        let told = compile("host 203.0.113.9 prot 80").expect_err("wrong");
        assert!(
            told.contains("understood: `host 203.0.113.9`; not understood: `prot 80`"),
            "{told}"
        );
        let told = compile("prot 80").expect_err("wrong");
        assert!(told.contains("not understood: `prot 80`"), "{told}");
        let told = compile("port\0").expect_err("wrong");
        assert!(told.contains("zero"), "{told}");
    }
}
