//! Writes the seeds that come from the golden cases into a folder of corpora, for the fuzzer:
//! `cargo run -p sluice-properties --bin seeds -- target/golden target/seeds`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let args: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [cases, out] = &args[..] else {
        eprintln!("usage: seeds GOLDEN_CASES OUT_DIR");
        return ExitCode::from(2);
    };
    match write(cases, out) {
        Ok(count) => {
            println!("{count} seeds written to {}", out.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("seeds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(cases: &std::path::Path, out: &std::path::Path) -> io::Result<usize> {
    let seeds = sluice_properties::seeds::from_cases(cases)?;
    for (target, name, bytes) in &seeds {
        let folder = out.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    Ok(seeds.len())
}
