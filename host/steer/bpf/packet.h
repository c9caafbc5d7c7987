/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a packet: from bytes of a frame to the few fields that the decision looks at. What is
 * behind its end, or makes no sense, is not read: then the packet is the kernel's. Functions that
 * are not inline are checked by the verifier once each, by themselves.
 */
#ifndef SLUICE_STEER_PACKET_H
#define SLUICE_STEER_PACKET_H

#include "steer.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>

#define EXTENSION_HEADERS 8
#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff
/* Behind this no header is looked for: more than eight extension headers of the usual sizes. */
#define HEADERS_END 4096

struct ports {
	__be16 source;
	__be16 destination;
};

struct icmp {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be16 identifier;
	__be16 sequence;
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 fragment;
	__be32 identification;
};

/* A VXLAN's header, behind that of UDP (RFC 7348 5). */
struct vxlan {
	__u8 flags;
	__u8 reserved[3];
	__be32 vni;
};

enum fragment {
	WHOLE,
	FIRST,
	LATER,
};

/* What the decision looks at. Of ICMP the ports are the identifier, of others 0. */
struct packet {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__be32 identification;
	__u8 protocol;
	__u8 fragment;
	__u8 type;
	__u8 is_ipv6;
	/* Where in the frame its transport header starts. */
	__u32 transport;
	/* That of the VXLAN that it was in, or 0. */
	__u32 network;
};

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

static __always_inline int is_icmp(const struct packet *packet)
{
	return packet->protocol == (packet->is_ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

/* Where a transport header is without tags, options and extension headers. */
static __always_inline __u32 plain_transport(const struct packet *packet)
{
	return sizeof(struct ethhdr) +
	       (packet->is_ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

/* Reads ports, or an ICMP message's type and identifier. */
static __always_inline int read_transport(void *header, void *end, struct packet *packet)
{
	if (has_ports(packet->protocol)) {
		struct ports *ports = header;

		if ((void *)(ports + 1) > end)
			return 0;
		packet->source_port = ports->source;
		packet->destination_port = ports->destination;
	} else if (is_icmp(packet)) {
		struct icmp *icmp = header;

		if ((void *)(icmp + 1) > end)
			return 0;
		packet->type = icmp->type;
		packet->source_port = icmp->identifier;
		packet->destination_port = icmp->identifier;
	}
	return 1;
}

static __always_inline void put_ipv4(struct address *address, __be32 ip)
{
	address->octets[10] = 0xff;
	address->octets[11] = 0xff;
	__builtin_memcpy(&address->octets[12], &ip, sizeof(ip));
}

/* Reads the IPv4 packet that starts `at` so many bytes into the frame. 0: it cannot be read. */
__noinline int read_ipv4(struct xdp_md *context, __u64 at, struct packet *packet)
{
	void *end = (void *)(long)context->data_end;
	struct iphdr *ip;
	__u16 offset;

	if (!packet || at > HEADERS_END)
		return 0;
	ip = (void *)(long)context->data + at;
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	put_ipv4(&packet->source, ip->saddr);
	put_ipv4(&packet->destination, ip->daddr);
	packet->identification = ip->id;
	packet->protocol = ip->protocol;
	packet->transport = at + ip->ihl * 4;
	offset = bpf_ntohs(ip->frag_off);
	if (offset & FRAGMENT_OFFSET) {
		packet->fragment = LATER;
		return 1;
	}
	packet->fragment = offset & MORE_FRAGMENTS ? FIRST : WHOLE;
	return read_transport((void *)ip + ip->ihl * 4, end, packet);
}

/* The same for IPv6. A protocol without ports ends the walk: only known extension headers are
 * looked through.
 */
__noinline int read_ipv6(struct xdp_md *context, __u64 at, struct packet *packet)
{
	void *start = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ipv6hdr *ip;
	__u8 next;

	if (!packet || at > HEADERS_END)
		return 0;
	ip = start + at;
	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	__builtin_memcpy(&packet->source, &ip->saddr, sizeof(packet->source));
	__builtin_memcpy(&packet->destination, &ip->daddr, sizeof(packet->destination));
	packet->is_ipv6 = 1;
	packet->fragment = WHOLE;
	next = ip->nexthdr;
	at += sizeof(*ip);
	for (int headers = 0; headers <= EXTENSION_HEADERS; headers++) {
		struct extension *extension;

		if (at > HEADERS_END)
			return 0;
		extension = start + at;
		switch (next) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			if ((void *)(extension + 1) > end)
				return 0;
			at += (extension->length + 1) * 8;
			break;
		case IPPROTO_AH:
			if ((void *)(extension + 1) > end)
				return 0;
			at += (extension->length + 2) * 4;
			break;
		case IPPROTO_FRAGMENT:
			if ((void *)(extension + 1) > end)
				return 0;
			packet->identification = extension->identification;
			if (extension->fragment & bpf_htons(0xfff8)) {
				packet->protocol = extension->next;
				packet->fragment = LATER;
				return 1;
			}
			if (extension->fragment & bpf_htons(1))
				packet->fragment = FIRST;
			at += sizeof(*extension);
			break;
		default:
			packet->protocol = next;
			packet->transport = at;
			return read_transport(extension, end, packet);
		}
		next = extension->next;
	}
	return 0;
}

#endif
