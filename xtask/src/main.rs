//! Chores of the repository that need Rust and are no part of the product.
//!
//! `cargo xtask tidy` reads the whole tree and says where it breaks the house's rules: which crate
//! may use which, what the pure crates may name, how long things may get. It is a program and not
//! a test so that it prints every finding at once, each with the place and what would be right.
#![forbid(unsafe_code)]

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks dependency directions, sizes, names and the marks of unfinished work
    Tidy {
        /// The repository's root; default: the one this program was built in
        #[arg(long)]
        root: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Chore::Tidy { root } = Cli::parse().chore;
    let root = root.unwrap_or_else(|| {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().unwrap_or_default()
    });
    match tidy::check(&root) {
        Ok(report) => {
            for finding in &report.findings {
                println!("{finding}");
            }
            println!(
                "tidy: {} crates, {} files, {} functions: {} findings",
                report.crates,
                report.files,
                report.functions,
                report.findings.len()
            );
            ExitCode::from(u8::from(!report.findings.is_empty()))
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}
