//! Compiles the XDP program with clang; the object file is embedded in the library.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf/steer.bpf.c");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v2", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps asm/ by architecture; other systems do not have this folder.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-c", "bpf/steer.bpf.c", "-o"])
        .arg(folder.join("steer.bpf.o"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile bpf/steer.bpf.c ({status})"),
        Err(error) => panic!("{clang} cannot be run ({error}): apt-get install clang libbpf-dev"),
    }
}
