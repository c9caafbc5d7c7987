//! Exports one symbol of the daemon: DPDK's drivers are plug-ins, and the AF_XDP driver is to find
//! our `bpf_xdp_attach` before libbpf's (host/dpdk-sys/src/xdp_fallback.c says why).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Undefined at first, so that the linker takes it from the shim's archive.
    println!("cargo::rustc-link-arg-bins=-Wl,--undefined=bpf_xdp_attach");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=bpf_xdp_attach");
}
