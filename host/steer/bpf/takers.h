/* SPDX-License-Identifier: Apache-2.0 */
/* Which rule takes a packet, by what its addresses and ports are to the director. */
#ifndef SLUICE_STEER_TAKERS_H
#define SLUICE_STEER_TAKERS_H

#include "packet.h"
#include "steer.h"

#include <linux/in.h>

#include <bpf/bpf_endian.h>

#define PROTOCOL_OSPF 89
#define PROTOCOL_VRRP 112
#define ADDRESS_BITS 128
#define ENDPOINT_BITS 176

#define V4_ECHO_REPLY 0
#define V4_ECHO_REQUEST 8
#define V6_ECHO_REQUEST 128
#define V6_ECHO_REPLY 129
#define V4_UNREACHABLE 3
#define V4_FRAGMENTATION_NEEDED 4
#define V6_PACKET_TOO_BIG 2

/* Protocols that a service of every protocol does not take: the kernel and routing daemons live
 * by them.
 */
static __always_inline int is_never(__u8 protocol)
{
	return protocol == IPPROTO_ICMP || protocol == IPPROTO_IGMP || protocol == IPPROTO_ICMPV6 ||
	       protocol == PROTOCOL_OSPF || protocol == PROTOCOL_VRRP || protocol == IPPROTO_NONE;
}

/* The rule by which `bits` of a role take a protocol and port; 0: none. The narrowest one counts. A
 * later fragment has no port: it is taken if any of the protocol's ports is.
 */
static __always_inline int taker(__u16 bits, const __u16 *whole, struct port_prefix *key,
				 int has_port)
{
	__u16 of_class, *found;
	__u16 all_ports;

	if (!bits || is_never(key->endpoint.protocol))
		return 0;
	if (key->endpoint.protocol == IPPROTO_TCP) {
		of_class = bits;
		all_ports = whole[0];
	} else if (key->endpoint.protocol == IPPROTO_UDP) {
		of_class = bits >> 1;
		all_ports = whole[1];
	} else if (key->endpoint.protocol == IPPROTO_SCTP) {
		of_class = bits >> 2;
		all_ports = whole[2];
	} else {
		return bits & EVERYTHING ? whole[CLASSES_OF_PORTS] : 0;
	}
	if (has_port && of_class & SOME_PORTS) {
		found = bpf_map_lookup_elem(&endpoints, &key->endpoint);
		if (found)
			return *found;
	}
	if (has_port && of_class & SOME_RANGES) {
		key->bits = ENDPOINT_BITS;
		found = bpf_map_lookup_elem(&ranges, key);
		if (found)
			return *found;
	}
	if (of_class & ALL_PORTS)
		return all_ports;
	if (bits & EVERYTHING)
		return whole[CLASSES_OF_PORTS];
	return !has_port && of_class & (SOME_PORTS | SOME_RANGES) ? UNCOUNTED : 0;
}

/* The rule of a packet to one of the ports that an address has at hand; 0: it is to none. */
static __always_inline int quick_rule(const struct role *role, const struct packet *packet)
{
	if (packet->fragment == LATER || !packet->protocol)
		return 0;
#pragma unroll
	for (int at = 0; at < QUICK_PORTS; at++) {
		if (role->quick[at].port == packet->destination_port &&
		    role->quick[at].protocol == packet->protocol)
			return role->quick_rules[at];
	}
	return 0;
}

/* The rule by which a packet to a local address is one of the sessions'; 0: none. */
static __always_inline int pool_rule(const struct role *role, const struct packet *packet)
{
	__u16 port = bpf_ntohs(packet->destination_port);
	__u8 reply = packet->is_ipv6 ? V6_ECHO_REPLY : V4_ECHO_REPLY;
	__u16 rule;

	if (!(role->flags & LOCAL))
		return 0;
	if (is_icmp(packet)) {
		if (!(role->flags & LOCAL_ECHO))
			return 0;
		if (packet->fragment != LATER && packet->type != reply)
			return 0;
		rule = role->local_rules[2];
	} else if (packet->protocol == IPPROTO_TCP) {
		rule = role->local_rules[0];
	} else if (packet->protocol == IPPROTO_UDP) {
		rule = role->local_rules[1];
	} else {
		return 0;
	}
	return packet->fragment == LATER || (port >= role->first && port <= role->last) ? rule : 0;
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

/* The number of the lowest bit that is set. */
static __always_inline __u32 lowest_bit(__u64 bits)
{
	__u32 at = 0;

	bits &= -bits;
	at += bits & 0xffffffff00000000ULL ? 32 : 0;
	at += bits & 0xffff0000ffff0000ULL ? 16 : 0;
	at += bits & 0xff00ff00ff00ff00ULL ? 8 : 0;
	at += bits & 0xf0f0f0f0f0f0f0f0ULL ? 4 : 0;
	at += bits & 0xccccccccccccccccULL ? 2 : 0;
	at += bits & 0xaaaaaaaaaaaaaaaaULL ? 1 : 0;
	return at;
}

/* The rule of source NAT that translates the packet; 0: none. Of several that do, that of the
 * first class counts.
 */
static __always_inline int snat_rule(const struct settings *set, const struct packet *packet)
{
	struct address_prefix key = { .bits = ADDRESS_BITS };
	__u8 request = packet->is_ipv6 ? V6_ECHO_REQUEST : V4_ECHO_REQUEST;
	__u32 protocol;
	__u64 *found;
	__u64 rules;

	if (packet->protocol == IPPROTO_TCP) {
		rules = set->tcp;
		protocol = 0;
	} else if (packet->protocol == IPPROTO_UDP) {
		rules = set->udp;
		protocol = 1;
	} else if (is_icmp(packet) && (packet->fragment == LATER || packet->type == request)) {
		rules = set->icmp;
		protocol = 2;
	} else {
		return 0;
	}
	key.address = packet->source;
	found = bpf_map_lookup_elem(&inside, &key);
	if (!found || !(rules & *found))
		return 0;
	rules &= *found;
	key.address = packet->destination;
	found = bpf_map_lookup_elem(&outside, &key);
	if (!found || !(rules & *found))
		return 0;
	rules &= *found;
	return PLAIN_RULES + (lowest_bit(rules) * 3 + protocol) * 2 + packet->is_ipv6;
}

#endif
