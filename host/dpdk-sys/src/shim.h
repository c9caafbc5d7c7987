/* The C face that the Rust side sees of DPDK.
 *
 * DPDK's packet functions are static inline and its structures change between releases. This shim
 * gives them symbols, one call a burst and never one a packet, and plain structures of our own.
 * Functions return 0 or a negative errno value unless they say otherwise.
 */
#ifndef SLUICE_SHIM_H
#define SLUICE_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* What a device can do and what it sits on. */
struct sluice_device_info {
	char driver[64];
	/* Name on its bus, to remove it by. */
	char device[64];
	char bus[32];
	/* Index of the kernel interface behind it, 0 without one. */
	uint32_t interface_index;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	/* Largest frame it can receive, without the frame check sequence. */
	uint32_t max_frame;
	/* Whether it verifies IPv4, TCP and UDP checksums on receipt. */
	uint8_t rx_checksum;
	/* Whether it can spread flows over its receive queues. */
	uint8_t rss;
};

/* How a device is to be set up. */
struct sluice_port_setup {
	uint16_t queues;
	/* Descriptors of each queue; the driver's preference when 0. */
	uint16_t rx_descriptors;
	uint16_t tx_descriptors;
	uint8_t rx_checksum;
	uint8_t rss;
	/* The largest IP packet in bytes; the driver's default when 0. */
	uint16_t mtu;
};

struct sluice_port_stats {
	uint64_t rx_frames;
	uint64_t tx_frames;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	/* Frames the device dropped because its receive queue was full. */
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	/* Receptions that failed for want of a buffer. */
	uint64_t rx_no_buffer;
};

/* Severity as syslog counts it plus one: 1 emergency to 8 debug; 0 when it is not known. */
typedef void (*sluice_log_fn)(uint32_t severity, const char *text, size_t length);

/* Sends DPDK's log to a function instead of the standard error. Call before sluice_eal_init. */
int sluice_log_to(sluice_log_fn function);

/* Starts the environment layer. Once in a process. */
int sluice_eal_init(int argc, char **argv);
/* The folder that the environment layer made for its files. */
const char *sluice_runtime_folder(void);
/* The text of a (positive) errno or rte_errno value. Never null. */
const char *sluice_error_text(int error);
/* 1 when devices address memory by virtual address, 0 by physical address. */
int sluice_iova_is_virtual(void);
int sluice_thread_register(void);
void sluice_thread_unregister(void);

/* Creates a pool of `count` packet buffers with `room` bytes each after the buffer header. With
 * `tight` set, buffers lie back to back without regard to page boundaries, as net_af_xdp's
 * arithmetic expects. Null with *error set (positive) on failure.
 */
struct rte_mempool *sluice_pool_create(const char *name, uint32_t count, uint32_t cache,
				       uint16_t room, int tight, int *error);
void sluice_pool_free(struct rte_mempool *pool);
/* Gives the calling thread's cache of free buffers back to the pool. */
void sluice_pool_flush(struct rte_mempool *pool);
uint32_t sluice_pool_chunks(const struct rte_mempool *pool);
uint32_t sluice_pool_available(const struct rte_mempool *pool);
uint32_t sluice_pool_size(const struct rte_mempool *pool);
/* Where the pool's first chunk of memory begins, and the distance between two buffers. */
uintptr_t sluice_pool_base(const struct rte_mempool *pool);
uint32_t sluice_pool_stride(const struct rte_mempool *pool);
uint32_t sluice_pool_header(const struct rte_mempool *pool);

/* Fills `frames` completely (0) or not at all. */
int sluice_frames_alloc(struct rte_mempool *pool, struct rte_mbuf **frames, uint32_t count);
void sluice_frames_free(struct rte_mbuf **frames, uint32_t count);
/* Joins a chain into its first buffer: 0, or negative when it does not fit. */
int sluice_frame_linearize(struct rte_mbuf *frame);

/* Adds a device. `arguments` is the whole devargs text: "net_ring0" or "net_tap3,iface=x". */
int sluice_device_add(const char *arguments, const char *name, uint16_t *port);
int sluice_device_remove(const char *bus, const char *name);
int sluice_device_info(uint16_t port, struct sluice_device_info *info);

/* Configures a port and its transmit queues. Receive queues follow by sluice_port_rx_queue. */
int sluice_port_configure(uint16_t port, const struct sluice_port_setup *setup);
int sluice_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors,
			 struct rte_mempool *pool);
int sluice_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors);
/* With `keep_flags`, the flags of the kernel interface below (up, promiscuous, ...) are left alone:
 * see interface_flags.c.
 */
int sluice_port_start(uint16_t port, int keep_flags);
void sluice_keep_interface_flags(int keep);
int sluice_port_stop(uint16_t port);
int sluice_port_close(uint16_t port);
/* 1 up, 0 down, negative when it cannot be told. Does not wait. */
int sluice_port_link(uint16_t port);
int sluice_port_stats(uint16_t port, struct sluice_port_stats *stats);
int sluice_port_mac(uint16_t port, uint8_t mac[6]);
int sluice_port_set_mac(uint16_t port, const uint8_t mac[6]);
int sluice_port_mtu(uint16_t port, uint16_t *mtu);
int sluice_port_set_mtu(uint16_t port, uint16_t mtu);
int sluice_port_allmulticast(uint16_t port, int on);
int sluice_port_promiscuous(uint16_t port, int on);

uint16_t sluice_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);
uint16_t sluice_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);

/* What a copy engine can do. */
struct sluice_dma_info {
	/* Whether it copies from memory to memory. */
	uint8_t copies;
	/* Whether it takes the process's own (virtual) addresses of any memory. */
	uint8_t virtual_addresses;
	/* Most copies at a time. */
	uint16_t descriptors;
};

struct sluice_dma_job {
	const void *from;
	void *to;
	uint32_t length;
};

/* Finds a copy engine by its name, after probing `arguments` (its devargs) if it is not there. */
int sluice_dma_open(const char *arguments, const char *name, int16_t *device,
		    struct sluice_dma_info *info);
/* Starts it with one channel. The functions below are for one thread at a time. */
int sluice_dma_start(int16_t device, uint16_t descriptors);
int sluice_dma_stop(int16_t device);
/* Begins copies from the front, as one batch; returns how many there was room for. */
uint16_t sluice_dma_copy(int16_t device, const struct sluice_dma_job *jobs, uint16_t count);
/* Says of copies that are over, in the order they were begun, whether they were done. */
uint16_t sluice_dma_over(int16_t device, uint8_t *done, uint16_t count);

/* What becomes of packets that a flow rule matches. */
enum {
	/* They come to the queue with the number `queues`. */
	SLUICE_FLOW_QUEUE = 0,
	/* The device spreads them over the first `queues` queues. */
	SLUICE_FLOW_SPREAD = 1,
	/* They come to the queue that they would come to anyway. */
	SLUICE_FLOW_UNCHANGED = 2,
};

/* A flow rule of a port. IPv4 addresses are the first four bytes; ports are in host order. Bits
 * without a mask match anything.
 */
struct sluice_flow {
	uint8_t source[16];
	uint8_t source_mask[16];
	uint8_t destination[16];
	uint8_t destination_mask[16];
	uint16_t source_port;
	uint16_t source_port_mask;
	uint16_t destination_port;
	uint16_t destination_port_mask;
	/* Number of a VXLAN, behind UDP. */
	uint32_t vni;
	uint16_t queues;
	/* 6 TCP, 17 UDP, 132 SCTP. */
	uint8_t protocol;
	uint8_t v6;
	uint8_t has_vni;
	/* 0 is before 1, if the NIC has an order. */
	uint8_t priority;
	uint8_t count;
	uint8_t target;
};

/* Which call refused a rule. */
enum {
	SLUICE_FLOW_VALIDATE = 1,
	SLUICE_FLOW_CREATE = 2,
};

/* What the driver said of a rule. */
struct sluice_flow_error {
	/* One of DPDK's enum rte_flow_error_type. */
	int32_t type;
	int32_t step;
	char text[120];
};

/* Has the driver check a rule, and make it. Not for workers: drivers may wait for the device. */
int sluice_flow_create(uint16_t port, const struct sluice_flow *flow, void **handle,
		       struct sluice_flow_error *said);
/* Whatever it returns, the handle is not to be used again. */
int sluice_flow_destroy(uint16_t port, void *handle, struct sluice_flow_error *said);
/* Packets that a rule with `count` has matched. */
int sluice_flow_hits(uint16_t port, void *handle, uint64_t *hits);
/* Takes all rules away; all handles are dead. */
int sluice_flow_flush(uint16_t port);

/* An ordered stage of event_sw: what is dealt goes to helpers by turns, and what they give back is
 * collected in the order in which it was dealt. The functions are for the thread that started the
 * environment layer, or one that is registered, and each port's for one thread at a time.
 */
#define SLUICE_EVENT_DROPPED UINT64_MAX

/* `name` is event_sw with a number that is not in use. */
int sluice_event_open(const char *name, uint16_t helpers, uint8_t *device, uint32_t *service);
void sluice_event_close(uint8_t device);
/* Lets the scheduler work once. */
int sluice_event_schedule(uint32_t service);
/* At most 64 at a time; these return how many. Helper `helpers` is who collects: what it takes is
 * over with its next call. What a helper takes it gives back in the same order, all of it, dropped
 * or not, before it takes more.
 */
uint16_t sluice_event_deal(uint8_t device, const uint64_t *payloads, uint16_t count);
uint16_t sluice_event_take(uint8_t device, uint16_t helper, uint64_t *payloads, uint16_t count);
uint16_t sluice_event_give(uint8_t device, uint16_t helper, const uint64_t *payloads,
			   uint16_t count);

/* The time stamp counter, and how fast it runs (known after sluice_eal_init). */
uint64_t sluice_tsc(void);
uint64_t sluice_tsc_hz(void);

#endif
