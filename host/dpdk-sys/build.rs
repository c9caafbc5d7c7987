//! Compiles the shim against the installed DPDK and links the few libraries it calls.
//!
//! DPDK's own pkg-config file names every library DPDK has. The shim uses six of them, and EAL
//! loads drivers as plug-ins at run time, so only those six are linked: the program starts faster
//! and depends on fewer packages. The linker leaves out what a program does not call, as most do
//! not call `rte_eventdev`.

use std::process::Command;

/// The DPDK libraries the shim calls.
const LIBRARIES: [&str; 6] =
    ["rte_dmadev", "rte_eal", "rte_ethdev", "rte_eventdev", "rte_mbuf", "rte_mempool"];

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config").args(arguments).arg("libdpdk").output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => panic!(
            "DPDK was not found: {}\nInstall it with: apt-get install libdpdk-dev",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => {
            panic!("pkg-config cannot be run ({error}): apt-get install pkg-config libdpdk-dev")
        }
    };
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=src/shim.h");
    println!("cargo::rerun-if-changed=src/dma.c");
    println!("cargo::rerun-if-changed=src/flow.c");
    println!("cargo::rerun-if-changed=src/event.c");
    println!("cargo::rerun-if-changed=src/interface_flags.c");
    println!("cargo::rerun-if-changed=src/xdp_fallback.c");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let mut shim = cc::Build::new();
    shim.file("src/shim.c")
        .file("src/dma.c")
        .file("src/flow.c")
        .file("src/event.c")
        .file("src/interface_flags.c")
        .file("src/xdp_fallback.c")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true);
    for flag in pkg_config(&["--cflags"]) {
        shim.flag(flag);
    }
    // DPDK's headers are written for GNU C and trip pedantic warnings that are not ours.
    shim.flag_if_supported("-Wno-unused-parameter");
    shim.flag_if_supported("-Wno-sign-compare");
    shim.opt_level(3).compile("sluice_dpdk_shim");
    for flag in pkg_config(&["--libs-only-L"]) {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={folder}");
        }
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
