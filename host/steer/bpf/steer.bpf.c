// SPDX-License-Identifier: Apache-2.0
/* Decides for each received frame whether it is the director's or the kernel's.
 *
 * The director's are
 *   - TCP and UDP to a configured (protocol, address, port);
 *   - TCP and UDP to a local address, with a port of its pool: replies of real servers;
 *   - later fragments (no ports) of a protocol that is taken at their destination.
 * Everything else, ICMP and ARP among it, passes to the kernel untouched; so does whatever cannot
 * be read, and everything as long as no socket is bound to the queue: a machine whose director died
 * behaves as if there were none.
 *
 * Up to two VLAN tags and eight IPv6 extension headers are looked through. The map xsks_map belongs
 * to the AF_XDP driver, the others to the library beside this file, which keeps the same layout.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN_TAGS 2
#define EXTENSION_HEADERS 8
#define FRAGMENT_OFFSET 0x1fff

/* An IPv4 address is kept as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
struct address {
	__u8 octets[16];
};

/* `port` in network byte order; 0 stands for a fragment without ports. */
struct endpoint {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

/* In host byte order, both included. */
struct port_range {
	__u16 first;
	__u16 last;
};

struct vlan_tag {
	__be16 control;
	__be16 protocol;
};

struct ports {
	__be16 source;
	__be16 destination;
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 fragment;
};

enum counter {
	TAKEN,
	PASSED,
	/* The director's, but no socket took it, so the kernel got it. */
	UNOWNED,
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct endpoint);
	__type(value, __u8);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct port_range);
} locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		*value += 1;
}

static __always_inline int is_balanced(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* Whether a packet to this endpoint is the director's. */
static __always_inline int is_taken(const struct endpoint *to)
{
	const struct port_range *range;

	if (bpf_map_lookup_elem(&services, to))
		return 1;
	if (to->port == 0)
		return 0;
	range = bpf_map_lookup_elem(&locals, &to->address);
	if (!range)
		return 0;
	return bpf_ntohs(to->port) >= range->first && bpf_ntohs(to->port) <= range->last;
}

/* Reads the destination port that starts a TCP or UDP header. A packet to port 0 is nobody's. */
static __always_inline int is_taken_by_port(struct endpoint *to, void *header, void *end)
{
	struct ports *ports = header;

	if ((void *)(ports + 1) > end || ports->destination == 0)
		return 0;
	to->port = ports->destination;
	return is_taken(to);
}

static __always_inline int is_taken_ipv4(void *header, void *end)
{
	struct endpoint to = {};
	struct iphdr *ip = header;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (!is_balanced(ip->protocol))
		return 0;
	to.address.octets[10] = 0xff;
	to.address.octets[11] = 0xff;
	__builtin_memcpy(&to.address.octets[12], &ip->daddr, sizeof(ip->daddr));
	to.protocol = ip->protocol;
	if (ip->frag_off & bpf_htons(FRAGMENT_OFFSET))
		return is_taken(&to);
	return is_taken_by_port(&to, header + ip->ihl * 4, end);
}

static __always_inline int is_taken_ipv6(void *header, void *end)
{
	struct endpoint to = {};
	struct ipv6hdr *ip = header;
	void *cursor = ip + 1;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	__builtin_memcpy(&to.address, &ip->daddr, sizeof(to.address));
	next = ip->nexthdr;
#pragma unroll
	for (int at = 0; at < EXTENSION_HEADERS; at++) {
		struct extension *extension = cursor;

		if (is_balanced(next)) {
			to.protocol = next;
			return is_taken_by_port(&to, cursor, end);
		}
		if ((void *)(extension + 1) > end)
			return 0;
		switch (next) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			cursor += (extension->length + 1) * 8;
			break;
		case IPPROTO_AH:
			cursor += (extension->length + 2) * 4;
			break;
		case IPPROTO_FRAGMENT:
			if (extension->fragment & bpf_htons(0xfff8)) {
				to.protocol = extension->next;
				return is_balanced(to.protocol) && is_taken(&to);
			}
			cursor += 8;
			break;
		default:
			return 0;
		}
		next = extension->next;
	}
	return 0;
}

/* Whether the frame is the director's. */
static __always_inline int is_ours(void *frame, void *end)
{
	struct ethhdr *ethernet = frame;
	void *cursor = ethernet + 1;
	__be16 protocol;

	if ((void *)(ethernet + 1) > end)
		return 0;
	protocol = ethernet->h_proto;
#pragma unroll
	for (int at = 0; at < VLAN_TAGS; at++) {
		struct vlan_tag *tag = cursor;

		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return 0;
		protocol = tag->protocol;
		cursor = tag + 1;
	}
	if (protocol == bpf_htons(ETH_P_IP))
		return is_taken_ipv4(cursor, end);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return is_taken_ipv6(cursor, end);
	return 0;
}

SEC("xdp")
int sluice_steer(struct xdp_md *context)
{
	int verdict;

	if (!is_ours((void *)(long)context->data, (void *)(long)context->data_end)) {
		count(PASSED);
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS);
	count(verdict == XDP_REDIRECT ? TAKEN : UNOWNED);
	return verdict;
}

char steer_license[] SEC("license") = "Apache-2.0";
