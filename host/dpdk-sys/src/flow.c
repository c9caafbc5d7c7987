/* Flow rules of a NIC (rte_flow): from a flat structure to items and actions. See shim.h. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include "shim.h"

_Static_assert(sizeof(struct sluice_flow) == 84, "size of a flow rule");
_Static_assert(sizeof(struct sluice_flow_error) == 128, "size of an error");

/* Ethernet, IP, transport, VXLAN and the end; queue, RSS or mark, count and the end. */
enum { MAX_ITEMS = 5, MAX_ACTIONS = 4, MAX_QUEUES = 128 };

/* All that the items and actions of a rule point at. */
struct rule {
	struct rte_flow_item items[MAX_ITEMS];
	struct rte_flow_action actions[MAX_ACTIONS];
	unsigned int item_count;
	unsigned int action_count;
	union {
		struct rte_flow_item_ipv4 v4;
		struct rte_flow_item_ipv6 v6;
	} network, network_mask;
	union {
		struct rte_flow_item_tcp tcp;
		struct rte_flow_item_udp udp;
		struct rte_flow_item_sctp sctp;
	} transport, transport_mask;
	struct rte_flow_item_vxlan vxlan, vxlan_mask;
	struct rte_flow_action_mark mark;
	struct rte_flow_action_count count;
	struct rte_flow_action_queue queue;
	struct rte_flow_action_rss rss;
	uint16_t queues[MAX_QUEUES];
};

static bool any_bit(const uint8_t *bytes, size_t count)
{
	for (size_t at = 0; at < count; at++)
		if (bytes[at] != 0)
			return true;
	return false;
}

/* Without a mask, an item matches whatever is of its type. */
static void add_item(struct rule *rule, enum rte_flow_item_type type, bool masked, const void *spec,
		     const void *mask)
{
	struct rte_flow_item *item = &rule->items[rule->item_count++];

	item->type = type;
	if (masked) {
		item->spec = spec;
		item->mask = mask;
	}
}

static void add_action(struct rule *rule, enum rte_flow_action_type type, const void *conf)
{
	struct rte_flow_action *action = &rule->actions[rule->action_count++];

	action->type = type;
	action->conf = conf;
}

static void add_network(struct rule *rule, const struct sluice_flow *flow)
{
	bool masked = any_bit(flow->source_mask, 16) || any_bit(flow->destination_mask, 16);

	if (flow->v6) {
		memcpy(rule->network.v6.hdr.src_addr, flow->source, 16);
		memcpy(rule->network.v6.hdr.dst_addr, flow->destination, 16);
		memcpy(rule->network_mask.v6.hdr.src_addr, flow->source_mask, 16);
		memcpy(rule->network_mask.v6.hdr.dst_addr, flow->destination_mask, 16);
		add_item(rule, RTE_FLOW_ITEM_TYPE_IPV6, masked, &rule->network.v6,
			 &rule->network_mask.v6);
		return;
	}
	memcpy(&rule->network.v4.hdr.src_addr, flow->source, 4);
	memcpy(&rule->network.v4.hdr.dst_addr, flow->destination, 4);
	memcpy(&rule->network_mask.v4.hdr.src_addr, flow->source_mask, 4);
	memcpy(&rule->network_mask.v4.hdr.dst_addr, flow->destination_mask, 4);
	add_item(rule, RTE_FLOW_ITEM_TYPE_IPV4, masked, &rule->network.v4, &rule->network_mask.v4);
}

/* The three headers begin with the same two ports; each item is filled by its own type. */
static int add_transport(struct rule *rule, const struct sluice_flow *flow)
{
	bool masked = flow->source_port_mask != 0 || flow->destination_port_mask != 0;
	rte_be16_t from = rte_cpu_to_be_16(flow->source_port);
	rte_be16_t to = rte_cpu_to_be_16(flow->destination_port);
	rte_be16_t from_mask = rte_cpu_to_be_16(flow->source_port_mask);
	rte_be16_t to_mask = rte_cpu_to_be_16(flow->destination_port_mask);

	switch (flow->protocol) {
	case 6:
		rule->transport.tcp.hdr.src_port = from;
		rule->transport.tcp.hdr.dst_port = to;
		rule->transport_mask.tcp.hdr.src_port = from_mask;
		rule->transport_mask.tcp.hdr.dst_port = to_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_TCP, masked, &rule->transport.tcp,
			 &rule->transport_mask.tcp);
		return 0;
	case 17:
		rule->transport.udp.hdr.src_port = from;
		rule->transport.udp.hdr.dst_port = to;
		rule->transport_mask.udp.hdr.src_port = from_mask;
		rule->transport_mask.udp.hdr.dst_port = to_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_UDP, masked, &rule->transport.udp,
			 &rule->transport_mask.udp);
		return 0;
	case 132:
		rule->transport.sctp.hdr.src_port = from;
		rule->transport.sctp.hdr.dst_port = to;
		rule->transport_mask.sctp.hdr.src_port = from_mask;
		rule->transport_mask.sctp.hdr.dst_port = to_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_SCTP, masked, &rule->transport.sctp,
			 &rule->transport_mask.sctp);
		return 0;
	default:
		return -EPROTONOSUPPORT;
	}
}

static int add_actions(struct rule *rule, uint16_t port, const struct sluice_flow *flow)
{
	struct rte_eth_dev_info device;
	int status;

	switch (flow->target) {
	case SLUICE_FLOW_QUEUE:
		rule->queue.index = flow->queues;
		add_action(rule, RTE_FLOW_ACTION_TYPE_QUEUE, &rule->queue);
		break;
	case SLUICE_FLOW_SPREAD:
		if (flow->queues > MAX_QUEUES)
			return -E2BIG;
		status = rte_eth_dev_info_get(port, &device);
		if (status < 0)
			return status;
		for (uint16_t queue = 0; queue < flow->queues; queue++)
			rule->queues[queue] = queue;
		/* As sluice_port_configure has it. */
		rule->rss.types = device.flow_type_rss_offloads &
				  (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		rule->rss.queue_num = flow->queues;
		rule->rss.queue = rule->queues;
		add_action(rule, RTE_FLOW_ACTION_TYPE_RSS, &rule->rss);
		break;
	default:
		/* Drivers of Intel's pass packets on to the hash by this alone. Nobody reads it. */
		rule->mark.id = 1;
		add_action(rule, RTE_FLOW_ACTION_TYPE_MARK, &rule->mark);
		break;
	}
	if (flow->count)
		add_action(rule, RTE_FLOW_ACTION_TYPE_COUNT, &rule->count);
	add_action(rule, RTE_FLOW_ACTION_TYPE_END, NULL);
	return 0;
}

static int fill(struct rule *rule, uint16_t port, const struct sluice_flow *flow)
{
	int status;

	memset(rule, 0, sizeof(*rule));
	/* Without it, E810's driver accepts a rule and then fails to make it. */
	add_item(rule, RTE_FLOW_ITEM_TYPE_ETH, false, NULL, NULL);
	add_network(rule, flow);
	status = add_transport(rule, flow);
	if (status < 0)
		return status;
	if (flow->has_vni) {
		for (int at = 0; at < 3; at++) {
			rule->vxlan.vni[at] = (uint8_t)(flow->vni >> (16 - 8 * at));
			rule->vxlan_mask.vni[at] = 0xff;
		}
		add_item(rule, RTE_FLOW_ITEM_TYPE_VXLAN, true, &rule->vxlan, &rule->vxlan_mask);
	}
	add_item(rule, RTE_FLOW_ITEM_TYPE_END, false, NULL, NULL);
	return add_actions(rule, port, flow);
}

/* Keeps what the driver said, which is only valid while the port is. */
static int refused(int status, const struct rte_flow_error *error, struct sluice_flow_error *said)
{
	if (status < 0) {
		said->type = (int32_t)error->type;
		snprintf(said->text, sizeof(said->text), "%s",
			 error->message == NULL ? "" : error->message);
	}
	return status;
}

int sluice_flow_create(uint16_t port, const struct sluice_flow *flow, void **handle,
		       struct sluice_flow_error *said)
{
	const struct rte_flow_attr ingress = { .ingress = 1, .priority = flow->priority };
	struct rte_flow_error error = { .type = RTE_FLOW_ERROR_TYPE_NONE };
	struct rte_flow *made;
	struct rule rule;
	int status = fill(&rule, port, flow);

	memset(said, 0, sizeof(*said));
	*handle = NULL;
	if (status < 0)
		return status;
	said->step = SLUICE_FLOW_VALIDATE;
	status = rte_flow_validate(port, &ingress, rule.items, rule.actions, &error);
	/* Some drivers return a positive errno. */
	if (status != 0)
		return refused(status > 0 ? -status : status, &error, said);
	said->step = SLUICE_FLOW_CREATE;
	made = rte_flow_create(port, &ingress, rule.items, rule.actions, &error);
	if (made == NULL)
		return refused(rte_errno > 0 ? -rte_errno : -EIO, &error, said);
	*handle = made;
	return 0;
}

int sluice_flow_destroy(uint16_t port, void *handle, struct sluice_flow_error *said)
{
	struct rte_flow_error error = { .type = RTE_FLOW_ERROR_TYPE_NONE };

	memset(said, 0, sizeof(*said));
	return refused(rte_flow_destroy(port, handle, &error), &error, said);
}

int sluice_flow_hits(uint16_t port, void *handle, uint64_t *hits)
{
	const struct rte_flow_action_count count = { 0 };
	const struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_COUNT, .conf = &count },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_query_count counted = { 0 };
	struct rte_flow_error error;
	int status = rte_flow_query(port, handle, actions, &counted, &error);

	if (status < 0)
		return status;
	*hits = counted.hits;
	return counted.hits_set ? 0 : -ENODATA;
}

int sluice_flow_flush(uint16_t port)
{
	struct rte_flow_error error;

	return rte_flow_flush(port, &error);
}
