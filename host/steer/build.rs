//! Compiles the BPF programs with clang; their object files are embedded in the library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["steer", "seal"];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    for program in PROGRAMS {
        compile(program, &folder);
    }
}

fn compile(program: &str, folder: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let source = format!("bpf/{program}.bpf.c");
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps asm/ by architecture; other systems do not have this folder.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-c", &source, "-o"])
        .arg(folder.join(format!("{program}.bpf.o")))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source} ({status})"),
        Err(error) => panic!("{clang} cannot be run ({error}): apt-get install clang libbpf-dev"),
    }
}
