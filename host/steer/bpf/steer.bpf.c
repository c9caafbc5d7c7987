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
 *   - but first of all, VXLAN to an address and port of a virtual port (see rules_of_tunnelled).
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
#include "takers.h"

#include <linux/udp.h>

#define VLAN_TAGS 2
#define VXLAN_HAS_VNI 0x08

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

/* Counts a packet of the rule with this number. */
static __always_inline void hit(__u32 rule)
{
	__u64 *value = bpf_map_lookup_elem(&hits, &rule);

	if (value)
		*value += 1;
}

/* The rule by which a packet is the director's, errors and what was seen of its datagram aside; 0:
 * none. In a VXLAN everything is that is not for this machine itself: only the director knows the
 * way from there.
 */
__noinline int rule_of(struct packet *packet)
{
	struct address_in at = {};
	struct port_prefix key = {};
	struct settings *set;
	struct role *role;
	__u32 first = 0;
	int rule;

	if (!packet)
		return 0;
	at.address = packet->destination;
	at.network = packet->network;
	role = bpf_map_lookup_elem(&addresses, &at);
	key.endpoint.address = packet->destination;
	key.endpoint.network = packet->network;
	key.endpoint.protocol = packet->protocol;
	if (role) {
		rule = quick_rule(role, packet);
		if (rule)
			return rule;
		key.endpoint.end = DESTINATION;
		key.endpoint.port = packet->destination_port;
		rule = taker(role->to, role->to_rules, &key, packet->fragment != LATER);
		if (rule)
			return rule;
		rule = pool_rule(role, packet);
		if (rule)
			return rule;
		if (packet->network ? role->flags & OWN : role->to || role->flags)
			return 0;
	}
	if (packet->network)
		return is_special(&packet->destination) ? 0 : UNCOUNTED;
	set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !(set->flags & (BY_SOURCE | BY_NETWORK)) || is_special(&packet->destination))
		return 0;
	if (set->flags & BY_SOURCE) {
		at.address = packet->source;
		role = bpf_map_lookup_elem(&addresses, &at);
		key.endpoint.address = packet->source;
		key.endpoint.end = SOURCE;
		key.endpoint.port = packet->source_port;
		rule = role ? taker(role->from, role->from_rules, &key,
				    packet->fragment != LATER) : 0;
		if (rule)
			return rule;
	}
	return set->flags & BY_NETWORK ? snat_rule(set, packet) : 0;
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

/* The rule about errors of the director's tunnel packets with this source in a network; 0: it sent
 * none.
 */
static __always_inline int tunnel_rule(const struct packet *quoted, __u32 network)
{
	struct prefix_in key = { .bits = 32 + ADDRESS_BITS, .network = network };
	struct settings *set;
	__u32 first = 0;
	__u16 *rule;

	set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !(set->flags & BY_TUNNEL) || !is_tunnelled(quoted))
		return 0;
	key.address = quoted->source;
	rule = bpf_map_lookup_elem(&tunnels, &key);
	return rule ? *rule : 0;
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

/* One of 64 bits; that of 4789 is no other well-known port's. */
static __always_inline __u64 port_bit(__u16 port)
{
	return 1ULL << ((port ^ port >> 6) & 63);
}

/* Whether an error says that a packet was too large for a link. */
static __always_inline int is_too_large(struct xdp_md *context, const struct packet *error)
{
	void *end = (void *)(long)context->data_end;
	__u64 at = error->transport;
	struct icmp *icmp;

	if (error->is_ipv6)
		return error->type == V6_PACKET_TOO_BIG;
	if (error->type != V4_UNREACHABLE || at > HEADERS_END)
		return 0;
	icmp = (void *)(long)context->data + at;
	return (void *)(icmp + 1) <= end && icmp->code == V4_FRAGMENTATION_NEEDED;
}

/* The rule of the VXLAN that a quoted packet is of, as the director sends them. 0: none. Such
 * errors are the director's if they are about a path's MTU; of the others the kernel learns for the
 * packets of its own device.
 */
static __always_inline int rule_of_vxlan(struct xdp_md *context, const struct packet *quoted)
{
	void *end = (void *)(long)context->data_end;
	__u64 at = quoted->transport;
	struct vxlan_key key = {};
	struct vxlan_value *known;
	struct settings *set;
	struct vxlan *vxlan;
	__u32 first = 0;

	if (quoted->protocol != IPPROTO_UDP || quoted->fragment != WHOLE || at > HEADERS_END)
		return 0;
	set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !(set->vxlan & port_bit(bpf_ntohs(quoted->destination_port))))
		return 0;
	vxlan = (void *)(long)context->data + at + sizeof(struct udphdr);
	if ((void *)(vxlan + 1) > end || !(vxlan->flags & VXLAN_HAS_VNI))
		return 0;
	key.local = quoted->source;
	key.port = quoted->destination_port;
	key.vni = bpf_ntohl(vxlan->vni) >> 8;
	known = bpf_map_lookup_elem(&vxlans, &key);
	if (!known)
		return 0;
	return known->rule ? known->rule : UNCOUNTED;
}

/* The rule by which an ICMP error is the director's: sent to the sender of the quoted packet, as
 * errors are, and the answer to that packet would be the director's by it. 0: none.
 */
__noinline int rule_of_error(struct xdp_md *context, struct packet *error)
{
	struct packet quoted = {};
	__u64 at;
	int rule;

	if (!error)
		return 0;
	at = error->transport + sizeof(struct icmp);
	if (error->is_ipv6 ? !read_ipv6(context, at, &quoted) : !read_ipv4(context, at, &quoted))
		return 0;
	if (!is_same(&quoted.source, &error->destination))
		return 0;
	rule = tunnel_rule(&quoted, error->network);
	if (rule)
		return rule;
	/* The underlay is the default network. */
	if (!error->network && is_too_large(context, error)) {
		rule = rule_of_vxlan(context, &quoted);
		if (rule)
			return rule;
	}
	if (is_icmp(&quoted) && is_error(&quoted))
		return 0;
	quoted.network = error->network;
	reverse(&quoted);
	return rule_of(&quoted);
}

/* The rule by which a fragment is the director's; 0: none. A first one that is the kernel's is
 * remembered as long as later ones would otherwise be taken.
 */
__noinline int rule_of_fragment(struct packet *packet)
{
	struct datagram datagram = {};
	__u8 one = 1;
	int rule;

	if (!packet)
		return 0;
	datagram.source = packet->source;
	datagram.destination = packet->destination;
	datagram.identification = packet->identification;
	datagram.network = packet->network;
	datagram.protocol = packet->protocol;
	if (packet->fragment == LATER && bpf_map_lookup_elem(&kernels, &datagram))
		return 0;
	rule = rule_of(packet);
	if (packet->fragment == LATER)
		return rule;
	if (rule) {
		bpf_map_delete_elem(&kernels, &datagram);
		return rule;
	}
	packet->fragment = LATER;
	if (rule_of(packet))
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

/* In place of rules: the packet is no VXLAN. */
#define NOT_TUNNELLED -1

/* The rules of a VXLAN and of a packet in it, the latter in the lower half; 0 if there is none of
 * the latter.
 */
static __always_inline int both_rules(const struct vxlan_value *vxlan, int inner)
{
	return inner ? inner | vxlan->rule << 16 : 0;
}

/* The rules by which a UDP datagram is the director's if it is sent to an address and port of
 * virtual ports, whatever else may be taken there. Of these networks the director gets the unicast
 * IP packets, but
 *   - those to the machine's own addresses in the network, unless a service or a local address's
 *     pool takes them (an ICMP error, what it quotes);
 *   - those that no router may forward: neighbour discovery, link-local destinations.
 * The kernel's own VXLAN device gets the rest and answers it: ARP, tagged frames, groups, unknown
 * networks, whatever is cut short.
 */
__noinline int rules_of_tunnelled(struct xdp_md *context, struct packet *outer)
{
	void *end = (void *)(long)context->data_end;
	struct vxlan_key key = { .vni = ANY_VNI };
	struct packet packet = {};
	struct ethhdr *ethernet;
	struct vxlan *vxlan;
	struct vxlan_value *known;
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
		return 0;
	key.vni = bpf_ntohl(vxlan->vni) >> 8;
	known = bpf_map_lookup_elem(&vxlans, &key);
	if (!known || ethernet->h_dest[0] & 1)
		return 0;
	packet.network = known->network;
	at += sizeof(*vxlan) + sizeof(*ethernet);
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		if (!read_ipv4(context, at, &packet))
			return 0;
	} else if (ethernet->h_proto != bpf_htons(ETH_P_IPV6) ||
		   !read_ipv6(context, at, &packet) || is_between_neighbours(&packet)) {
		return 0;
	}
	if (packet.fragment != WHOLE)
		return both_rules(known, rule_of_fragment(&packet));
	if (is_error(&packet) && is_own(&packet))
		return both_rules(known, rule_of_error(context, &packet));
	return both_rules(known, rule_of(&packet));
}

/* The rules by which the frame is the director's: one, or those of a VXLAN. 0: none. */
static __always_inline __u32 rules_of_frame(struct xdp_md *context)
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
		tunnelled = rules_of_tunnelled(context, &packet);
		if (tunnelled != NOT_TUNNELLED)
			return tunnelled;
	}
	if (packet.fragment != WHOLE)
		return rule_of_fragment(&packet);
	if (is_error(&packet))
		return rule_of_error(context, &packet);
	return rule_of(&packet);
}

SEC(SECTION)
int sluice_steer(struct xdp_md *context)
{
	__u32 rules = rules_of_frame(context);
	int verdict;

	if (!rules) {
		count(PASSED);
		return XDP_PASS;
	}
	hit(rules & 0xffff);
	if (rules >> 16)
		hit(rules >> 16);
	verdict = bpf_redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS);
	count(verdict == XDP_REDIRECT ? TAKEN : UNOWNED);
	return verdict;
}

char steer_license[] SEC("license") = "Apache-2.0";
