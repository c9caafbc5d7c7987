//! Loads BPF objects.
//!
//! A loader reads the kernel's types (`/sys/kernel/btf/vmlinux`, some megabytes) when it is made,
//! and the first load asks the kernel for its features. That takes longer than loading our
//! programs, which need none of these types. So all loads share one loader, and a director that
//! starts makes it beside other work ([`prepare`]).

use std::sync::{LazyLock, Mutex, PoisonError};

use aya::{Ebpf, EbpfError, EbpfLoader};

static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// Does ahead what the first load would wait for.
pub fn prepare() {
    LazyLock::force(&LOADER);
    // Detected once in a process.
    let _ = aya::features();
}

/// Loads an object.
pub(crate) fn load(object: &[u8]) -> Result<Ebpf, EbpfError> {
    LOADER.lock().unwrap_or_else(PoisonError::into_inner).load(object)
}
