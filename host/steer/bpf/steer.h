/* SPDX-License-Identifier: Apache-2.0 */
/* What the steering program and the library share: keys, values and limits of the maps. The
 * library's side of it is src/layout.rs.
 */
#ifndef SLUICE_STEER_H
#define SLUICE_STEER_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

/* An IPv4 address is kept as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
struct address {
	__u8 octets[16];
};

/* Which end of a packet a match is about. */
enum end {
	DESTINATION,
	SOURCE,
};

/* Bits of `struct role`'s to and from: what is taken, for each of TCP, UDP and SCTP (shift by
 * 0, 1, 2), or for every protocol but those of `is_never`.
 */
#define SOME_PORTS 0x0001
#define SOME_RANGES 0x0008
#define ALL_PORTS 0x0040
#define EVERYTHING 0x0200

/* Bits of `struct role`'s flags. */
/* An address of this machine. */
#define OWN 1
/* A local address: TCP and UDP to its ports are taken. */
#define LOCAL 2
/* Answers to ping with an identifier in the range of its ports are taken, too. */
#define LOCAL_ECHO 4

/* A port of a service, so close at hand that most packets need no second lookup. */
struct quick_port {
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

#define QUICK_PORTS 4

/* Values of the maps name the rule that takes a packet, by the number of its counter in `hits`.
 * 0: none does. UNCOUNTED: taken by a rule without a counter, or by none of its own. The rules of
 * source NAT have the last numbers, by class, protocol and family (see `snat_rule`).
 */
#define UNCOUNTED 1
#define PLAIN_RULES 16384
#define SNAT_RULES 384

/* The rules of a role that are in no other map: TCP's, UDP's and SCTP's with all ports, and the one
 * of every protocol.
 */
#define CLASSES_OF_PORTS 3
#define WHOLE_RULES 4
/* Of a local address: TCP's, UDP's, and that of answers to ping. */
#define LOCAL_RULES 3

/* What an address is to the director. Ports in host byte order, both included; quick ports are
 * some of those in `endpoints`, and have protocol 0 where there are fewer.
 */
struct role {
	__u16 to;
	__u16 from;
	__u16 flags;
	__u16 first;
	__u16 last;
	struct quick_port quick[QUICK_PORTS];
	__u16 quick_rules[QUICK_PORTS];
	__u16 local_rules[LOCAL_RULES];
	__u16 to_rules[WHOLE_RULES];
	__u16 from_rules[WHOLE_RULES];
};

/* An address in a network: 0 for what is received as it is, the number of an isolated network for
 * what is in its VXLANs. There the same addresses may be somebody else's.
 */
struct address_in {
	struct address address;
	__u32 network;
};

struct endpoint {
	struct address address;
	__u16 network;
	__u8 end;
	__u8 protocol;
	__be16 port;
	__u16 zero;
};

/* Ports by their leading bits: a range is some of these. */
struct port_prefix {
	__u32 bits;
	struct endpoint endpoint;
};

struct address_prefix {
	__u32 bits;
	struct address address;
};

/* The same in a network, as in `struct address_in`. */
struct prefix_in {
	__u32 bits;
	__u32 network;
	struct address address;
};

/* Bits of `struct settings`'s flags: which maps have anything at all. */
#define BY_SOURCE 1
#define BY_NETWORK 2
#define BY_TUNNEL 4

/* For each protocol of source NAT the classes of rules that take it. Each UDP port that VXLANs
 * are sent to sets a bit of `vxlan` (see `port_bit`): most other ports need no lookup.
 */
struct settings {
	__u64 flags;
	__u64 tcp;
	__u64 udp;
	__u64 icmp;
	__u64 vxlan;
};

/* A datagram whose first fragment the kernel got. */
struct datagram {
	struct address source;
	struct address destination;
	__be32 identification;
	__u16 network;
	__u16 protocol;
};

/* In place of a network identifier, which has 24 bits: any. */
#define ANY_VNI 0xffffffff

/* What a VXLAN's packets are sent to. */
struct vxlan_key {
	struct address local;
	__u32 vni;
	__be16 port;
	__u16 zero;
};

/* A VXLAN's network, and its rule. */
struct vxlan_value {
	__u16 network;
	__u16 rule;
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
	__type(key, struct address_in);
	__type(value, struct role);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 524288);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct endpoint);
	__type(value, __u16);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct port_prefix);
	__type(value, __u16);
} ranges SEC(".maps");

/* Networks whose connections are translated, and where to. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address_prefix);
	__type(value, __u64);
} inside SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address_prefix);
	__type(value, __u64);
} outside SEC(".maps");

/* Outer source addresses of tunnels, by network. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix_in);
	__type(value, __u16);
} tunnels SEC(".maps");

/* UDP ports that tunnels are sent to, in network order. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be16);
	__type(value, __u8);
} tunnel_ports SEC(".maps");

/* Each VXLAN, and for each address and port that one is sent to an entry with
 * ANY_VNI, whose value means nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct vxlan_key);
	__type(value, struct vxlan_value);
} vxlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The oldest gives way: then its later fragments go where those of an unknown datagram go. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct datagram);
	__type(value, __u8);
} kernels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Packets by the rule that takes them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLAIN_RULES + SNAT_RULES);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

#endif
