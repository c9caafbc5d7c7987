// SPDX-License-Identifier: Apache-2.0
/* Decides for each received frame whether it is the director's or the kernel's.
 *
 * The director's are, in this order,
 *   - what is sent to a service: a protocol and port, a range of ports, all ports of a protocol,
 *     or everything but the protocols of `is_never`;
 *   - TCP and UDP to a local address with a port of its pool, and answers to ping there whose
 *     identifier is one of these numbers;
 *   - what a real server of NAT mode sends from a service's port to elsewhere;
 *   - what is sent from an inside network to where a rule of source NAT translates it: TCP, UDP and
 *     ping;
 *   - ICMP errors about any of these: the answer to the quoted packet would be the director's;
 *     and those about a tunnel packet of its own;
 *   - later fragments of a protocol that is taken there, unless the first fragment went to the
 *     kernel;
 *   - but first of all, VXLAN to an address and port of a virtual port (see is_tunnelled_ours).
 * "Elsewhere" is no address of this machine, no multicast and no link-local address: connections of
 * real servers to the machine itself are the kernel's.
 *
 * Everything else (ARP, neighbour discovery, ping, VRRP, OSPF, IGMP among it) passes to the kernel
 * untouched; so does whatever cannot be read, and everything as long as no socket is bound to the
 * queue: a machine whose director died behaves as if there were none. What is taken cannot be given
 * back, hence the care to take no more than that.
 *
 * Up to two VLAN tags and eight IPv6 extension headers are looked through. The map xsks_map belongs
 * to the AF_XDP driver, the others to the library beside this file. Functions that are not inline
 * are checked by the verifier once each, by themselves.
 */
#include "packet.h"
#include "steer.h"

#include <linux/in.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>

#define VLAN_TAGS 2
#define PROTOCOL_OSPF 89
#define PROTOCOL_VRRP 112
#define ADDRESS_BITS 128
#define ENDPOINT_BITS 176
#define VXLAN_HAS_VNI 0x08

#define V4_ECHO_REPLY 0
#define V4_ECHO_REQUEST 8
#define V6_ECHO_REQUEST 128
#define V6_ECHO_REPLY 129
#define V6_FIRST_OF_NEIGHBOURS 133
#define V6_LAST_OF_NEIGHBOURS 137

struct vlan_tag {
	__be16 control;
	__be16 protocol;
};

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		*value += 1;
}

/* Protocols that a service of every protocol does not take: the kernel and routing daemons live
 * by them.
 */
static __always_inline int is_never(__u8 protocol)
{
	return protocol == IPPROTO_ICMP || protocol == IPPROTO_IGMP || protocol == IPPROTO_ICMPV6 ||
	       protocol == PROTOCOL_OSPF || protocol == PROTOCOL_VRRP || protocol == IPPROTO_NONE;
}

/* Whether `bits` of a role take a protocol and port. A later fragment has no port: it is taken if
 * any of the protocol's ports is.
 */
static __always_inline int takes(__u16 bits, struct port_prefix *key, int has_port)
{
	__u16 class;

	if (!bits || is_never(key->endpoint.protocol))
		return 0;
	if (bits & EVERYTHING)
		return 1;
	if (key->endpoint.protocol == IPPROTO_TCP)
		class = 0;
	else if (key->endpoint.protocol == IPPROTO_UDP)
		class = 1;
	else if (key->endpoint.protocol == IPPROTO_SCTP)
		class = 2;
	else
		return 0;
	bits >>= class;
	if (bits & ALL_PORTS)
		return 1;
	if (!has_port)
		return bits & (SOME_PORTS | SOME_RANGES) ? 1 : 0;
	if (bits & SOME_PORTS && bpf_map_lookup_elem(&endpoints, &key->endpoint))
		return 1;
	if (!(bits & SOME_RANGES))
		return 0;
	key->bits = ENDPOINT_BITS;
	return bpf_map_lookup_elem(&ranges, key) ? 1 : 0;
}

/* Whether a packet is to one of the ports that an address has at hand. */
static __always_inline int is_to_quick_port(const struct role *role, const struct packet *packet)
{
	if (packet->fragment == LATER || !packet->protocol)
		return 0;
#pragma unroll
	for (int at = 0; at < QUICK_PORTS; at++) {
		if (role->quick[at].port == packet->destination_port &&
		    role->quick[at].protocol == packet->protocol)
			return 1;
	}
	return 0;
}

/* Whether a packet to a local address is one of the sessions'. */
static __always_inline int is_to_pool(const struct role *role, const struct packet *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);
	__u8 reply = packet->is_ipv6 ? V6_ECHO_REPLY : V4_ECHO_REPLY;

	if (!(role->flags & LOCAL))
		return 0;
	if (is_icmp(packet)) {
		if (!(role->flags & LOCAL_ECHO))
			return 0;
		if (packet->fragment != LATER && packet->type != reply)
			return 0;
	} else if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP) {
		return 0;
	}
	return packet->fragment == LATER || (port >= role->first && port <= role->last);
}

/* Whether nothing may be routed to an address: multicast, link-local, loopback, unspecified. */
static __always_inline int is_special(const struct address *address)
{
	const __u8 *octets = address->octets;

	if (octets[10] == 0xff && octets[11] == 0xff && !octets[0] && !octets[1]) {
		return octets[12] >= 224 || octets[12] == 127 || octets[12] == 0 ||
		       (octets[12] == 169 && octets[13] == 254);
	}
	if (octets[0] == 0xff || (octets[0] == 0xfe && (octets[1] & 0xc0) == 0x80))
		return 1;
	return !octets[0] && !octets[1];
}

/* Whether a rule of source NAT translates the packet. */
static __always_inline int is_translated(const struct settings *set, const struct packet *packet)
{
	struct address_prefix key = { .bits = ADDRESS_BITS };
	__u8 request = packet->is_ipv6 ? V6_ECHO_REQUEST : V4_ECHO_REQUEST;
	__u64 *found;
	__u64 rules;

	if (packet->protocol == IPPROTO_TCP)
		rules = set->tcp;
	else if (packet->protocol == IPPROTO_UDP)
		rules = set->udp;
	else if (is_icmp(packet) && (packet->fragment == LATER || packet->type == request))
		rules = set->icmp;
	else
		return 0;
	key.address = packet->source;
	found = bpf_map_lookup_elem(&inside, &key);
	if (!found || !(rules & *found))
		return 0;
	rules &= *found;
	key.address = packet->destination;
	found = bpf_map_lookup_elem(&outside, &key);
	return found && rules & *found ? 1 : 0;
}

/* Whether a packet is the director's, errors and what was seen of its datagram aside. In a VXLAN
 * everything is that is not for this machine itself: only the director knows the way from there.
 */
__noinline int is_ours(struct packet *packet)
{
	struct address_in at = {};
	struct port_prefix key = {};
	struct settings *set;
	struct role *role;
	__u32 first = 0;

	if (!packet)
		return 0;
	at.address = packet->destination;
	at.network = packet->network;
	role = bpf_map_lookup_elem(&addresses, &at);
	key.endpoint.address = packet->destination;
	key.endpoint.network = packet->network;
	key.endpoint.protocol = packet->protocol;
	if (role) {
		if (is_to_quick_port(role, packet))
			return 1;
		key.endpoint.end = DESTINATION;
		key.endpoint.port = packet->destination_port;
		if (takes(role->to, &key, packet->fragment != LATER) || is_to_pool(role, packet))
			return 1;
		if (packet->network ? role->flags & OWN : role->to || role->flags)
			return 0;
	}
	if (packet->network)
		return !is_special(&packet->destination);
	set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !(set->flags & (BY_SOURCE | BY_NETWORK)) || is_special(&packet->destination))
		return 0;
	if (set->flags & BY_SOURCE) {
		at.address = packet->source;
		role = bpf_map_lookup_elem(&addresses, &at);
		key.endpoint.address = packet->source;
		key.endpoint.end = SOURCE;
		key.endpoint.port = packet->source_port;
		if (role && takes(role->from, &key, packet->fragment != LATER))
			return 1;
	}
	return set->flags & BY_NETWORK ? is_translated(set, packet) : 0;
}

static __always_inline int is_error(const struct packet *packet)
{
	if (packet->fragment == LATER || !is_icmp(packet))
		return 0;
	if (packet->is_ipv6)
		return packet->type >= 1 && packet->type <= 4;
	/* Unreachable, source quench, time exceeded, parameter problem. */
	return packet->type == 3 || packet->type == 4 || packet->type == 11 || packet->type == 12;
}

/* Whether a packet has something that tunnels carry: IP or GRE, or UDP to one of their ports. */
static __always_inline int is_tunnelled(const struct packet *packet)
{
	__be16 port = packet->destination_port;

	switch (packet->protocol) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
	case IPPROTO_GRE:
		return 1;
	case IPPROTO_UDP:
		return bpf_map_lookup_elem(&tunnel_ports, &port) ? 1 : 0;
	}
	return 0;
}

/* Whether the director sent a tunnel packet with this source. */
static __always_inline int is_own_tunnel(const struct packet *quoted)
{
	struct address_prefix key = { .bits = ADDRESS_BITS };
	struct settings *set;
	__u32 first = 0;

	set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !(set->flags & BY_TUNNEL) || !is_tunnelled(quoted))
		return 0;
	key.address = quoted->source;
	return bpf_map_lookup_elem(&tunnels, &key) ? 1 : 0;
}

static __always_inline int is_same(const struct address *one, const struct address *other)
{
	__u64 a[2], b[2];

	__builtin_memcpy(a, one, sizeof(a));
	__builtin_memcpy(b, other, sizeof(b));
	return a[0] == b[0] && a[1] == b[1];
}

/* Turns a quoted packet into the answer to it. */
static __always_inline void reverse(struct packet *packet)
{
	struct address source = packet->source;
	__be16 port = packet->source_port;

	packet->source = packet->destination;
	packet->destination = source;
	packet->source_port = packet->destination_port;
	packet->destination_port = port;
	if (!is_icmp(packet))
		return;
	if (packet->is_ipv6)
		packet->type ^= V6_ECHO_REQUEST ^ V6_ECHO_REPLY;
	else
		packet->type ^= V4_ECHO_REQUEST ^ V4_ECHO_REPLY;
}

/* Whether an ICMP error is the director's: sent to the sender of the quoted packet, as errors are,
 * and the answer to that packet would be the director's.
 */
__noinline int is_error_ours(struct xdp_md *context, struct packet *error)
{
	struct packet quoted = {};
	__u64 at;

	if (!error)
		return 0;
	at = error->transport + sizeof(struct icmp);
	if (error->is_ipv6 ? !read_ipv6(context, at, &quoted) : !read_ipv4(context, at, &quoted))
		return 0;
	if (!is_same(&quoted.source, &error->destination))
		return 0;
	if (!error->network && is_own_tunnel(&quoted))
		return 1;
	if (is_icmp(&quoted) && is_error(&quoted))
		return 0;
	quoted.network = error->network;
	reverse(&quoted);
	return is_ours(&quoted);
}

/* Whether a fragment is the director's. A first one that is the kernel's is remembered as long as
 * later ones would otherwise be taken.
 */
__noinline int is_fragment_ours(struct packet *packet)
{
	struct datagram datagram = {};
	__u8 one = 1;
	int ours;

	if (!packet)
		return 0;
	datagram.source = packet->source;
	datagram.destination = packet->destination;
	datagram.identification = packet->identification;
	datagram.network = packet->network;
	datagram.protocol = packet->protocol;
	if (packet->fragment == LATER && bpf_map_lookup_elem(&kernels, &datagram))
		return 0;
	ours = is_ours(packet);
	if (packet->fragment == LATER)
		return ours;
	if (ours) {
		bpf_map_delete_elem(&kernels, &datagram);
		return 1;
	}
	packet->fragment = LATER;
	if (is_ours(packet))
		bpf_map_update_elem(&kernels, &datagram, &one, BPF_ANY);
	return 0;
}

static __always_inline int is_own(const struct packet *packet)
{
	struct address_in at = { .address = packet->destination, .network = packet->network };
	struct role *role = bpf_map_lookup_elem(&addresses, &at);

	return role && role->flags & OWN;
}

/* Whether a packet is a router or neighbour solicitation or advertisement, or a redirect. */
static __always_inline int is_between_neighbours(const struct packet *packet)
{
	return packet->is_ipv6 && is_icmp(packet) && packet->type >= V6_FIRST_OF_NEIGHBOURS &&
	       packet->type <= V6_LAST_OF_NEIGHBOURS;
}

/* One of 64 bits; that of 4789 is no other well-known port's. */
static __always_inline __u64 port_bit(__u16 port)
{
	return 1ULL << ((port ^ port >> 6) & 63);
}

/* Whether a packet may be VXLAN that the director reads: whole, and without tags, options and
 * extension headers, any of which would move the UDP header.
 */
static __always_inline int may_be_tunnelled(const struct packet *packet)
{
	struct settings *set;
	__u32 first = 0;

	if (packet->protocol != IPPROTO_UDP || packet->fragment != WHOLE ||
	    packet->transport != plain_transport(packet))
		return 0;
	set = bpf_map_lookup_elem(&settings, &first);
	return set && set->vxlan & port_bit(bpf_ntohs(packet->destination_port));
}

enum tunnelled {
	NOT_TUNNELLED,
	DIRECTORS,
	KERNELS,
};

/* Whose a UDP datagram is if it is sent to an address and port of virtual ports, whatever else
 * may be taken there. Of these networks the director gets the unicast IP packets, but
 *   - those to the machine's own addresses in the network, unless a service or a local address's
 *     pool takes them (an ICMP error, what it quotes);
 *   - those that no router may forward: neighbour discovery, link-local destinations.
 * The kernel's own VXLAN device gets the rest and answers it: ARP, tagged frames, groups, unknown
 * networks, whatever is cut short.
 */
__noinline int is_tunnelled_ours(struct xdp_md *context, struct packet *outer)
{
	void *end = (void *)(long)context->data_end;
	struct vxlan_key key = { .vni = ANY_VNI };
	struct packet packet = {};
	struct ethhdr *ethernet;
	struct vxlan *vxlan;
	__u32 *network;
	__u64 at;

	if (!outer)
		return NOT_TUNNELLED;
	key.local = outer->destination;
	key.port = outer->destination_port;
	if (!bpf_map_lookup_elem(&vxlans, &key))
		return NOT_TUNNELLED;
	at = plain_transport(outer) + sizeof(struct udphdr);
	vxlan = (void *)(long)context->data + at;
	ethernet = (void *)(vxlan + 1);
	if ((void *)(ethernet + 1) > end || !(vxlan->flags & VXLAN_HAS_VNI))
		return KERNELS;
	key.vni = bpf_ntohl(vxlan->vni) >> 8;
	network = bpf_map_lookup_elem(&vxlans, &key);
	if (!network || ethernet->h_dest[0] & 1)
		return KERNELS;
	packet.network = *network;
	at += sizeof(*vxlan) + sizeof(*ethernet);
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		if (!read_ipv4(context, at, &packet))
			return KERNELS;
	} else if (ethernet->h_proto != bpf_htons(ETH_P_IPV6) ||
		   !read_ipv6(context, at, &packet) || is_between_neighbours(&packet)) {
		return KERNELS;
	}
	if (packet.fragment != WHOLE)
		return is_fragment_ours(&packet) ? DIRECTORS : KERNELS;
	if (is_error(&packet) && is_own(&packet))
		return is_error_ours(context, &packet) ? DIRECTORS : KERNELS;
	return is_ours(&packet) ? DIRECTORS : KERNELS;
}

/* Whether the frame is the director's. */
static __always_inline int is_frame_ours(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = (void *)(long)context->data;
	__u64 at = sizeof(*ethernet);
	struct packet packet = {};
	__be16 protocol;
	int tunnelled;

	/* Multicast and broadcast are never taken. */
	if ((void *)(ethernet + 1) > end || ethernet->h_dest[0] & 1)
		return 0;
	protocol = ethernet->h_proto;
#pragma unroll
	for (int tags = 0; tags < VLAN_TAGS; tags++) {
		struct vlan_tag *tag = (void *)(long)context->data + at;

		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return 0;
		protocol = tag->protocol;
		at += sizeof(*tag);
	}
	if (protocol == bpf_htons(ETH_P_IP)) {
		if (!read_ipv4(context, at, &packet))
			return 0;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		if (!read_ipv6(context, at, &packet))
			return 0;
	} else {
		return 0;
	}
	if (may_be_tunnelled(&packet)) {
		tunnelled = is_tunnelled_ours(context, &packet);
		if (tunnelled != NOT_TUNNELLED)
			return tunnelled == DIRECTORS;
	}
	if (packet.fragment != WHOLE)
		return is_fragment_ours(&packet);
	if (is_error(&packet))
		return is_error_ours(context, &packet);
	return is_ours(&packet);
}

SEC(SECTION)
int sluice_steer(struct xdp_md *context)
{
	int verdict;

	if (!is_frame_ours(context)) {
		count(PASSED);
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS);
	count(verdict == XDP_REDIRECT ? TAKEN : UNOWNED);
	return verdict;
}

char steer_license[] SEC("license") = "Apache-2.0";
