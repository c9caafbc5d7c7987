//! The raw face of DPDK: the shim's functions (`shim.h` documents them) and a mirror of the first
//! fields of a packet buffer.
//!
//! Invariant: every declaration here equals one in `shim.h`, and [`Mbuf`] equals DPDK's
//! `struct rte_mbuf`, which `shim.c` asserts when it is compiled. Only `sluice-dpdk` uses this
//! crate. It is written by hand, not generated, because the surface is small and must stay so.
//!
//! Unsafe: calls across a C interface cannot be anything else.

use std::ffi::{c_char, c_int, c_void};

/// DPDK's packet buffer, as far as it is touched from here.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// Start of the buffer.
    pub buf_addr: *mut u8,
    /// The same for the device.
    pub buf_iova: u64,
    /// Offset of the first byte of data in the buffer.
    pub data_off: u16,
    /// Owners.
    pub refcnt: u16,
    /// Buffers in this chain.
    pub nb_segs: u16,
    /// Port it came from.
    pub port: u16,
    /// Offload flags, see `RX_*`.
    pub ol_flags: u64,
    /// What the device found in the headers.
    pub packet_type: u32,
    /// Bytes in the whole chain.
    pub pkt_len: u32,
    /// Bytes in this buffer.
    pub data_len: u16,
    /// Stripped VLAN tag.
    pub vlan_tci: u16,
    /// Flow hash and the like.
    pub hash: [u16; 4],
    /// Stripped outer VLAN tag.
    pub vlan_tci_outer: u16,
    /// Bytes in the buffer, headroom included.
    pub buf_len: u16,
    /// The pool it belongs to.
    pub pool: *mut Mempool,
    /// The second cache line.
    pub rest: [u64; 8],
}

const _: () = assert!(size_of::<Mbuf>() == 128);
const _: () = assert!(std::mem::offset_of!(Mbuf, data_off) == 16);
const _: () = assert!(std::mem::offset_of!(Mbuf, refcnt) == 18);
const _: () = assert!(std::mem::offset_of!(Mbuf, nb_segs) == 20);
const _: () = assert!(std::mem::offset_of!(Mbuf, port) == 22);
const _: () = assert!(std::mem::offset_of!(Mbuf, ol_flags) == 24);
const _: () = assert!(std::mem::offset_of!(Mbuf, packet_type) == 32);
const _: () = assert!(std::mem::offset_of!(Mbuf, pkt_len) == 36);
const _: () = assert!(std::mem::offset_of!(Mbuf, data_len) == 40);
const _: () = assert!(std::mem::offset_of!(Mbuf, buf_len) == 54);

/// Mask of what the device says of the IPv4 header checksum.
pub const RX_IP_MASK: u64 = (1 << 4) | (1 << 7);
/// The IPv4 header checksum is wrong.
pub const RX_IP_BAD: u64 = 1 << 4;
/// The IPv4 header checksum is right.
pub const RX_IP_GOOD: u64 = 1 << 7;
/// Mask of what the device says of the TCP or UDP checksum.
pub const RX_L4_MASK: u64 = (1 << 3) | (1 << 8);
/// The TCP or UDP checksum is wrong.
pub const RX_L4_BAD: u64 = 1 << 3;
/// The TCP or UDP checksum is right.
pub const RX_L4_GOOD: u64 = 1 << 8;

/// The TCP or UDP checksum is not in the packet, whose data is sound all the same.
pub const RX_L4_NONE: u64 = (1 << 3) | (1 << 8);
/// The frame is of several segments, whose size is in the word [`TX_OFFLOAD`].
pub const RX_LRO: u64 = 1 << 16;
/// Index in [`Mbuf::rest`] of the word with the size of segments.
pub const TX_OFFLOAD: usize = 1;
/// Where the size of segments is in that word: behind the lengths of headers.
pub const SEGMENT_SIZE_SHIFT: u32 = 24;

/// A pool of packet buffers; only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct Mempool {
    opaque: [u8; 0],
    not_send: std::marker::PhantomData<*mut c_void>,
}

/// What a device can do and what it sits on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    /// The driver's name.
    pub driver: [c_char; 64],
    /// The device's name on its bus.
    pub device: [c_char; 64],
    /// The bus.
    pub bus: [c_char; 32],
    /// Index of the kernel interface behind it, 0 without one.
    pub interface_index: u32,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Largest frame in bytes.
    pub max_frame: u32,
    /// Verifies checksums on receipt.
    pub rx_checksum: u8,
    /// Spreads flows over receive queues.
    pub rss: u8,
}

/// How a device is to be set up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortSetup {
    /// Queue pairs.
    pub queues: u16,
    /// Receive descriptors, 0 for the driver's preference.
    pub rx_descriptors: u16,
    /// Transmit descriptors, 0 for the driver's preference.
    pub tx_descriptors: u16,
    /// Let the device verify checksums.
    pub rx_checksum: u8,
    /// Let the device spread flows.
    pub rss: u8,
    /// Largest IP packet in bytes, 0 for the driver's default.
    pub mtu: u16,
}

/// A device's counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped at a full receive queue.
    pub rx_missed: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Receptions that failed for want of a buffer.
    pub rx_no_buffer: u64,
}

/// What a copy engine can do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DmaInfo {
    /// Copies from memory to memory.
    pub copies: u8,
    /// Takes the process's own addresses of any memory.
    pub virtual_addresses: u8,
    /// Most copies at a time.
    pub descriptors: u16,
}

/// A copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmaJob {
    /// Where the bytes are.
    pub from: *const u8,
    /// Where they are to be.
    pub to: *mut u8,
    /// How many.
    pub length: u32,
}

const _: () = assert!(size_of::<DmaJob>() == 24);

/// Packets come to one queue.
pub const FLOW_QUEUE: u8 = 0;
/// The device spreads packets over queues.
pub const FLOW_SPREAD: u8 = 1;
/// Packets come to the queue that they would come to anyway.
pub const FLOW_UNCHANGED: u8 = 2;

/// A flow rule of a port; `shim.h` says what fields mean.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "shim.h documents each of them")]
pub struct Flow {
    pub source: [u8; 16],
    pub source_mask: [u8; 16],
    pub destination: [u8; 16],
    pub destination_mask: [u8; 16],
    pub source_port: u16,
    pub source_port_mask: u16,
    pub destination_port: u16,
    pub destination_port_mask: u16,
    pub vni: u32,
    pub queues: u16,
    pub protocol: u8,
    pub v6: u8,
    pub has_vni: u8,
    pub priority: u8,
    pub count: u8,
    pub target: u8,
}

const _: () = assert!(size_of::<Flow>() == 84);

/// `rte_flow_validate` refused a rule.
pub const FLOW_VALIDATE: i32 = 1;
/// `rte_flow_create` refused a rule.
pub const FLOW_CREATE: i32 = 2;

/// What the driver said of a rule.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FlowError {
    /// One of DPDK's `enum rte_flow_error_type`.
    pub kind: i32,
    /// Which call refused it: `FLOW_VALIDATE`, `FLOW_CREATE`, or none of both.
    pub step: i32,
    /// Its words.
    pub text: [c_char; 120],
}

const _: () = assert!(size_of::<FlowError>() == 128);

/// Receives DPDK's log: severity (1 emergency to 8 debug, 0 unknown), text, length.
pub type LogFn = unsafe extern "C" fn(u32, *const c_char, usize);

#[allow(missing_docs, reason = "shim.h documents each of them")]
unsafe extern "C" {
    pub fn sluice_log_to(function: LogFn) -> c_int;
    pub fn sluice_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub fn sluice_runtime_folder() -> *const c_char;
    pub fn sluice_error_text(error: c_int) -> *const c_char;
    pub fn sluice_iova_is_virtual() -> c_int;
    pub fn sluice_thread_register() -> c_int;
    pub fn sluice_thread_unregister();

    pub fn sluice_pool_create(
        name: *const c_char,
        count: u32,
        cache: u32,
        room: u16,
        tight: c_int,
        error: *mut c_int,
    ) -> *mut Mempool;
    pub fn sluice_pool_free(pool: *mut Mempool);
    pub fn sluice_pool_flush(pool: *mut Mempool);
    pub fn sluice_pool_chunks(pool: *const Mempool) -> u32;
    pub fn sluice_pool_available(pool: *const Mempool) -> u32;
    pub fn sluice_pool_size(pool: *const Mempool) -> u32;
    pub fn sluice_pool_base(pool: *const Mempool) -> usize;
    pub fn sluice_pool_stride(pool: *const Mempool) -> u32;
    pub fn sluice_pool_header(pool: *const Mempool) -> u32;

    pub fn sluice_frames_alloc(pool: *mut Mempool, frames: *mut *mut Mbuf, count: u32) -> c_int;
    pub fn sluice_frames_free(frames: *mut *mut Mbuf, count: u32);
    pub fn sluice_frame_linearize(frame: *mut Mbuf) -> c_int;

    pub fn sluice_device_add(
        arguments: *const c_char,
        name: *const c_char,
        port: *mut u16,
    ) -> c_int;
    pub fn sluice_device_remove(bus: *const c_char, name: *const c_char) -> c_int;
    pub fn sluice_device_info(port: u16, info: *mut DeviceInfo) -> c_int;

    pub fn sluice_port_configure(port: u16, setup: *const PortSetup) -> c_int;
    pub fn sluice_port_rx_queue(
        port: u16,
        queue: u16,
        descriptors: u16,
        pool: *mut Mempool,
    ) -> c_int;
    pub fn sluice_port_tx_queue(port: u16, queue: u16, descriptors: u16) -> c_int;
    pub fn sluice_port_start(port: u16, keep_flags: c_int) -> c_int;
    pub fn sluice_port_stop(port: u16) -> c_int;
    pub fn sluice_port_close(port: u16) -> c_int;
    pub fn sluice_port_link(port: u16) -> c_int;
    pub fn sluice_port_stats(port: u16, stats: *mut PortStats) -> c_int;
    pub fn sluice_port_mac(port: u16, mac: *mut u8) -> c_int;
    pub fn sluice_port_set_mac(port: u16, mac: *const u8) -> c_int;
    pub fn sluice_port_mtu(port: u16, mtu: *mut u16) -> c_int;
    pub fn sluice_port_set_mtu(port: u16, mtu: u16) -> c_int;
    pub fn sluice_port_allmulticast(port: u16, on: c_int) -> c_int;
    pub fn sluice_port_promiscuous(port: u16, on: c_int) -> c_int;

    pub fn sluice_rx_burst(port: u16, queue: u16, frames: *mut *mut Mbuf, count: u16) -> u16;
    pub fn sluice_tx_burst(port: u16, queue: u16, frames: *mut *mut Mbuf, count: u16) -> u16;

    pub fn sluice_dma_open(
        arguments: *const c_char,
        name: *const c_char,
        device: *mut i16,
        info: *mut DmaInfo,
    ) -> c_int;
    pub fn sluice_dma_start(device: i16, descriptors: u16) -> c_int;
    pub fn sluice_dma_stop(device: i16) -> c_int;
    pub fn sluice_dma_copy(device: i16, jobs: *const DmaJob, count: u16) -> u16;
    pub fn sluice_dma_over(device: i16, done: *mut u8, count: u16) -> u16;

    pub fn sluice_flow_create(
        port: u16,
        flow: *const Flow,
        handle: *mut *mut c_void,
        said: *mut FlowError,
    ) -> c_int;
    pub fn sluice_flow_destroy(port: u16, handle: *mut c_void, said: *mut FlowError) -> c_int;
    pub fn sluice_flow_hits(port: u16, handle: *mut c_void, hits: *mut u64) -> c_int;
    pub fn sluice_flow_flush(port: u16) -> c_int;

    pub fn sluice_event_open(
        name: *const c_char,
        helpers: u16,
        device: *mut u8,
        service: *mut u32,
    ) -> c_int;
    pub fn sluice_event_close(device: u8);
    pub fn sluice_event_schedule(service: u32) -> c_int;
    pub fn sluice_event_deal(device: u8, payloads: *const u64, count: u16) -> u16;
    pub fn sluice_event_take(device: u8, helper: u16, payloads: *mut u64, count: u16) -> u16;
    pub fn sluice_event_give(device: u8, helper: u16, payloads: *const u64, count: u16) -> u16;

    pub fn sluice_tsc() -> u64;
    pub fn sluice_tsc_hz() -> u64;
}
