//! Exports two symbols of the daemon: DPDK's drivers are plug-ins, and the AF_XDP driver is to find
//! our `bpf_xdp_attach` before libbpf's (host/dpdk-sys/src/xdp_fallback.c says why), and our
//! `ioctl` before the C library's (host/dpdk-sys/src/interface_flags.c).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Undefined at first, so that the linker takes it from the shim's archive.
    for symbol in ["bpf_xdp_attach", "ioctl"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--undefined={symbol}");
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
