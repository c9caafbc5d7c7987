//! Unpacks the committed corpora for the fuzzer, `fuzz/corpus/TARGET.tar` to
//! `fuzz/corpus/TARGET/`, and packs them again:
//! `cargo run -p sluice-properties --bin corpus -- unpack|pack [TARGET…]`; without a target, all.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

use sluice_properties::{ALL, corpus};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let chore = match args.first().map(String::as_str) {
        Some("unpack") => corpus::unpack,
        Some("pack") => corpus::pack,
        _ => {
            eprintln!("usage: corpus unpack|pack [TARGET…]");
            return ExitCode::from(2);
        }
    };
    let all = ALL.map(|(target, _)| target.to_owned());
    let targets = if args.len() > 1 { &args[1..] } else { &all[..] };
    for target in targets {
        match chore(target, &corpus::folder().join(target)) {
            Ok(count) => println!("{target}: {count} inputs"),
            Err(error) => {
                eprintln!("corpus: {target}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
