//! Compiles the BPF programs with clang; their object files are embedded in the library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Object file, source and what is defined. As `xdp.frags` a program says that it can have packets
/// in several buffers: ours reads headers only, which are in the first one.
const PROGRAMS: [(&str, &str, &[&str]); 3] = [
    ("steer", "steer", &["-DSECTION=\"xdp\""]),
    ("steer_frags", "steer", &["-DSECTION=\"xdp.frags\""]),
    ("seal", "seal", &[]),
];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    for (object, source, defined) in PROGRAMS {
        compile(object, source, defined, &folder);
    }
}

fn compile(object: &str, source: &str, defined: &[&str], folder: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let source = format!("bpf/{source}.bpf.c");
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps asm/ by architecture; other systems do not have this folder.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(defined)
        .args(["-c", &source, "-o"])
        .arg(folder.join(format!("{object}.bpf.o")))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source} ({status})"),
        Err(error) => panic!("{clang} cannot be run ({error}): apt-get install clang libbpf-dev"),
    }
}
