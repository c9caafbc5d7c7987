/* See shim.h. Kept free of policy: each function is one DPDK call or a short fixed sequence. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#include "shim.h"

/* The Rust side mirrors these fields (src/lib.rs, Mbuf). */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "buf_addr");
_Static_assert(offsetof(struct rte_mbuf, data_off) == 16, "data_off");
_Static_assert(offsetof(struct rte_mbuf, refcnt) == 18, "refcnt");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "nb_segs");
_Static_assert(offsetof(struct rte_mbuf, port) == 22, "port");
_Static_assert(offsetof(struct rte_mbuf, ol_flags) == 24, "ol_flags");
_Static_assert(offsetof(struct rte_mbuf, packet_type) == 32, "packet_type");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "pkt_len");
_Static_assert(offsetof(struct rte_mbuf, data_len) == 40, "data_len");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == 54, "buf_len");
_Static_assert(offsetof(struct rte_mbuf, tx_offload) == 64 + 8, "tx_offload");
_Static_assert(RTE_MBUF_L2_LEN_BITS + RTE_MBUF_L3_LEN_BITS + RTE_MBUF_L4_LEN_BITS == 24,
	       "tso_segsz");
_Static_assert(sizeof(struct rte_mbuf) == 128, "size of an mbuf");
_Static_assert(RTE_MBUF_F_RX_IP_CKSUM_MASK == ((1ULL << 4) | (1ULL << 7)), "ip mask");
_Static_assert(RTE_MBUF_F_RX_IP_CKSUM_BAD == (1ULL << 4), "ip bad");
_Static_assert(RTE_MBUF_F_RX_IP_CKSUM_GOOD == (1ULL << 7), "ip good");
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_MASK == ((1ULL << 3) | (1ULL << 8)), "l4 mask");
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_BAD == (1ULL << 3), "l4 bad");
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_GOOD == (1ULL << 8), "l4 good");
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_NONE == ((1ULL << 3) | (1ULL << 8)), "l4 none");
_Static_assert(RTE_MBUF_F_RX_LRO == (1ULL << 16), "lro");

static sluice_log_fn log_function;

static ssize_t log_write(void *cookie, const char *text, size_t length)
{
	int severity = rte_lcore_id() < RTE_MAX_LCORE ? rte_log_cur_msg_loglevel() : 0;

	(void)cookie;
	log_function((uint32_t)severity, text, length);
	return (ssize_t)length;
}

int sluice_log_to(sluice_log_fn function)
{
	const cookie_io_functions_t io = { .write = log_write };
	FILE *stream = fopencookie(NULL, "w", io);

	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	log_function = function;
	return rte_openlog_stream(stream);
}

int sluice_eal_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

const char *sluice_runtime_folder(void)
{
	return rte_eal_get_runtime_dir();
}

const char *sluice_error_text(int error)
{
	return rte_strerror(error);
}

int sluice_iova_is_virtual(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

int sluice_thread_register(void)
{
	return rte_thread_register() < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

void sluice_thread_unregister(void)
{
	rte_thread_unregister();
}

struct rte_mempool *sluice_pool_create(const char *name, uint32_t count, uint32_t cache,
				       uint16_t room, int tight, int *error)
{
	struct rte_pktmbuf_pool_private data = { .mbuf_data_room_size = room };
	unsigned int flags = tight ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
	struct rte_mempool *pool;
	int status;

	pool = rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf) + room, cache,
					sizeof(data), SOCKET_ID_ANY, flags);
	if (pool == NULL) {
		*error = rte_errno ? rte_errno : ENOMEM;
		return NULL;
	}
	status = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (status == 0) {
		rte_pktmbuf_pool_init(pool, &data);
		status = rte_mempool_populate_default(pool);
	}
	if (status < 0) {
		rte_mempool_free(pool);
		*error = -status;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

void sluice_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

void sluice_pool_flush(struct rte_mempool *pool)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, pool);
}

uint32_t sluice_pool_chunks(const struct rte_mempool *pool)
{
	return pool->nb_mem_chunks;
}

uint32_t sluice_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

uint32_t sluice_pool_size(const struct rte_mempool *pool)
{
	return pool->populated_size;
}

uintptr_t sluice_pool_base(const struct rte_mempool *pool)
{
	const struct rte_mempool_memhdr *first = STAILQ_FIRST(&pool->mem_list);

	return first == NULL ? 0 : (uintptr_t)first->addr;
}

uint32_t sluice_pool_stride(const struct rte_mempool *pool)
{
	return pool->header_size + pool->elt_size + pool->trailer_size;
}

uint32_t sluice_pool_header(const struct rte_mempool *pool)
{
	return pool->header_size;
}

int sluice_frames_alloc(struct rte_mempool *pool, struct rte_mbuf **frames, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, frames, count);
}

void sluice_frames_free(struct rte_mbuf **frames, uint32_t count)
{
	rte_pktmbuf_free_bulk(frames, count);
}

int sluice_frame_linearize(struct rte_mbuf *frame)
{
	return rte_pktmbuf_linearize(frame);
}

int sluice_device_add(const char *arguments, const char *name, uint16_t *port)
{
	int status = rte_dev_probe(arguments);

	if (status < 0)
		return status;
	return rte_eth_dev_get_port_by_name(name, port);
}

int sluice_device_remove(const char *bus, const char *name)
{
	return rte_eal_hotplug_remove(bus, name);
}

int sluice_device_info(uint16_t port, struct sluice_device_info *info)
{
	const uint64_t checksum = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM |
				  RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
	struct rte_eth_dev_info device;
	const struct rte_bus *bus;
	int status = rte_eth_dev_info_get(port, &device);

	if (status < 0)
		return status;
	bus = rte_dev_bus(device.device);
	memset(info, 0, sizeof(*info));
	snprintf(info->driver, sizeof(info->driver), "%s", device.driver_name);
	snprintf(info->device, sizeof(info->device), "%s", rte_dev_name(device.device));
	snprintf(info->bus, sizeof(info->bus), "%s", bus == NULL ? "" : rte_bus_name(bus));
	info->interface_index = device.if_index;
	info->max_rx_queues = device.max_rx_queues;
	info->max_tx_queues = device.max_tx_queues;
	info->max_frame = device.max_rx_pktlen;
	info->rx_checksum = (device.rx_offload_capa & checksum) == checksum;
	info->rss = device.flow_type_rss_offloads != 0;
	return 0;
}

int sluice_port_configure(uint16_t port, const struct sluice_port_setup *setup)
{
	struct rte_eth_conf conf = { .rxmode = { .mtu = setup->mtu } };
	struct rte_eth_dev_info device;
	int status = rte_eth_dev_info_get(port, &device);

	if (status < 0)
		return status;
	if (setup->rx_checksum)
		conf.rxmode.offloads = device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_CHECKSUM;
	if (setup->rss && setup->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			device.flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	}
	return rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
}

/* The nearest number of descriptors that the device takes. */
static uint16_t descriptors_within(uint16_t wanted, uint16_t preferred, uint16_t fallback,
				   const struct rte_eth_desc_lim *limit)
{
	uint16_t count = wanted != 0 ? wanted : preferred != 0 ? preferred : fallback;

	if (limit->nb_align > 1)
		count = RTE_ALIGN_CEIL(count, limit->nb_align);
	if (limit->nb_max != 0 && count > limit->nb_max)
		count = limit->nb_max;
	return count < limit->nb_min ? limit->nb_min : count;
}

int sluice_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors,
			 struct rte_mempool *pool)
{
	struct rte_eth_dev_info device;
	int status = rte_eth_dev_info_get(port, &device);

	if (status < 0)
		return status;
	descriptors = descriptors_within(descriptors, device.default_rxportconf.ring_size, 1024,
					 &device.rx_desc_lim);
	return rte_eth_rx_queue_setup(port, queue, descriptors, rte_eth_dev_socket_id(port), NULL,
				      pool);
}

int sluice_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors)
{
	struct rte_eth_dev_info device;
	int status = rte_eth_dev_info_get(port, &device);

	if (status < 0)
		return status;
	descriptors = descriptors_within(descriptors, device.default_txportconf.ring_size, 1024,
					 &device.tx_desc_lim);
	return rte_eth_tx_queue_setup(port, queue, descriptors, rte_eth_dev_socket_id(port), NULL);
}

int sluice_port_start(uint16_t port, int keep_flags)
{
	int status;

	sluice_keep_interface_flags(keep_flags);
	status = rte_eth_dev_start(port);
	sluice_keep_interface_flags(0);
	return status;
}

int sluice_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

int sluice_port_close(uint16_t port)
{
	return rte_eth_dev_close(port);
}

int sluice_port_link(uint16_t port)
{
	struct rte_eth_link link;
	int status = rte_eth_link_get_nowait(port, &link);

	return status < 0 ? status : link.link_status == RTE_ETH_LINK_UP;
}

int sluice_port_stats(uint16_t port, struct sluice_port_stats *stats)
{
	struct rte_eth_stats device;
	int status = rte_eth_stats_get(port, &device);

	if (status < 0)
		return status;
	stats->rx_frames = device.ipackets;
	stats->tx_frames = device.opackets;
	stats->rx_bytes = device.ibytes;
	stats->tx_bytes = device.obytes;
	stats->rx_missed = device.imissed;
	stats->rx_errors = device.ierrors;
	stats->tx_errors = device.oerrors;
	stats->rx_no_buffer = device.rx_nombuf;
	return 0;
}

int sluice_port_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr address;
	int status = rte_eth_macaddr_get(port, &address);

	if (status == 0)
		memcpy(mac, address.addr_bytes, sizeof(address.addr_bytes));
	return status;
}

int sluice_port_set_mac(uint16_t port, const uint8_t mac[6])
{
	struct rte_ether_addr address;

	memcpy(address.addr_bytes, mac, sizeof(address.addr_bytes));
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int sluice_port_mtu(uint16_t port, uint16_t *mtu)
{
	return rte_eth_dev_get_mtu(port, mtu);
}

int sluice_port_set_mtu(uint16_t port, uint16_t mtu)
{
	return rte_eth_dev_set_mtu(port, mtu);
}

int sluice_port_allmulticast(uint16_t port, int on)
{
	return on ? rte_eth_allmulticast_enable(port) : rte_eth_allmulticast_disable(port);
}

int sluice_port_promiscuous(uint16_t port, int on)
{
	return on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
}

uint16_t sluice_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, frames, count);
}

uint16_t sluice_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, frames, count);
}

uint64_t sluice_tsc(void)
{
	return rte_rdtsc();
}

uint64_t sluice_tsc_hz(void)
{
	return rte_get_tsc_hz();
}
