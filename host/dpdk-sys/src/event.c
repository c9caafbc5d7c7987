/* An ordered stage of rte_eventdev, by DPDK's scheduler in software (event_sw): see shim.h. Only
 * sluice-bench calls it. Nothing of rte_eventdev is linked into what does not.
 */
#include <errno.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eventdev.h>
#include <rte_service.h>

#include "shim.h"

/* The ordered queue, and the one that what it gives back goes to, in order. */
#define ORDERED 0
#define EGRESS 1
/* Ports: who deals, then the helpers, then who collects. */
#define DEALER 0
#define FIRST_HELPER 1
/* Events under way, and places in the order: no more than there are flows, and with one the queue
 * would never schedule.
 */
#define UNDER_WAY 4096
#define ORDER 2048
/* What a port gives or takes in one call. */
#define BURST 64
#define DEPTH 128

static int set_up(uint8_t device, uint16_t helpers)
{
	const struct rte_event_dev_config config = {
		.nb_event_queues = 2,
		.nb_event_ports = helpers + 2,
		.nb_events_limit = UNDER_WAY,
		.nb_event_queue_flows = ORDER,
		.nb_event_port_dequeue_depth = DEPTH,
		.nb_event_port_enqueue_depth = BURST,
		.nb_single_link_event_port_queues = 1,
	};
	const struct rte_event_queue_conf ordered = {
		.schedule_type = RTE_SCHED_TYPE_ORDERED,
		.priority = RTE_EVENT_DEV_PRIORITY_NORMAL,
		.nb_atomic_flows = 1024,
		.nb_atomic_order_sequences = ORDER,
	};
	const struct rte_event_queue_conf egress = {
		.event_queue_cfg = RTE_EVENT_QUEUE_CFG_SINGLE_LINK,
		.schedule_type = RTE_SCHED_TYPE_ATOMIC,
		.priority = RTE_EVENT_DEV_PRIORITY_HIGHEST,
		.nb_atomic_flows = 1024,
		.nb_atomic_order_sequences = ORDER,
	};
	struct rte_event_port_conf port = {
		.new_event_threshold = UNDER_WAY / 2,
		.dequeue_depth = DEPTH,
		.enqueue_depth = BURST,
	};
	const uint8_t queues[] = { ORDERED, EGRESS };
	int status = rte_event_dev_configure(device, &config);
	uint16_t at;

	if (status < 0)
		return status;
	status = rte_event_queue_setup(device, ORDERED, &ordered);
	if (status < 0)
		return status;
	status = rte_event_queue_setup(device, EGRESS, &egress);
	for (at = DEALER; status >= 0 && at < FIRST_HELPER + helpers; at++)
		status = rte_event_port_setup(device, at, &port);
	if (status < 0)
		return status;
	port.event_port_cfg = RTE_EVENT_PORT_CFG_SINGLE_LINK;
	status = rte_event_port_setup(device, FIRST_HELPER + helpers, &port);
	if (status < 0)
		return status;
	for (at = FIRST_HELPER; at < FIRST_HELPER + helpers; at++)
		if (rte_event_port_link(device, at, &queues[ORDERED], NULL, 1) != 1)
			return -EINVAL;
	if (rte_event_port_link(device, FIRST_HELPER + helpers, &queues[EGRESS], NULL, 1) != 1)
		return -EINVAL;
	return 0;
}

int sluice_event_open(const char *name, uint16_t helpers, uint8_t *device, uint32_t *service)
{
	int status, id;

	status = rte_dev_probe(name);
	if (status < 0)
		return status;
	id = rte_event_dev_get_dev_id(name);
	if (id < 0)
		return -ENODEV;
	*device = (uint8_t)id;
	status = set_up(*device, helpers);
	if (status < 0)
		return status;
	/* Its scheduler runs where and when the caller says, not on a core of its own. */
	status = rte_event_dev_service_id_get(*device, service);
	if (status < 0)
		return status;
	rte_service_set_runstate_mapped_check(*service, 0);
	status = rte_service_runstate_set(*service, 1);
	return status < 0 ? status : rte_event_dev_start(*device);
}

void sluice_event_close(uint8_t device)
{
	rte_event_dev_stop(device);
	rte_event_dev_close(device);
}

int sluice_event_schedule(uint32_t service)
{
	return rte_service_run_iter_on_app_lcore(service, 1);
}

uint16_t sluice_event_deal(uint8_t device, const uint64_t *payloads, uint16_t count)
{
	struct rte_event events[BURST];
	uint16_t at;

	if (count > BURST)
		count = BURST;
	for (at = 0; at < count; at++) {
		events[at].event = 0;
		events[at].flow_id = 1;
		events[at].op = RTE_EVENT_OP_NEW;
		events[at].sched_type = RTE_SCHED_TYPE_ORDERED;
		events[at].queue_id = ORDERED;
		events[at].priority = RTE_EVENT_DEV_PRIORITY_NORMAL;
		events[at].u64 = payloads[at];
	}
	return rte_event_enqueue_new_burst(device, DEALER, events, count);
}

uint16_t sluice_event_take(uint8_t device, uint16_t helper, uint64_t *payloads, uint16_t count)
{
	struct rte_event events[BURST];
	uint16_t at;

	if (count > BURST)
		count = BURST;
	count = rte_event_dequeue_burst(device, FIRST_HELPER + helper, events, count, 0);
	for (at = 0; at < count; at++)
		payloads[at] = events[at].u64;
	return count;
}

/* A port's events are completed in the order in which it took them, whatever they carry. */
uint16_t sluice_event_give(uint8_t device, uint16_t helper, const uint64_t *payloads,
			   uint16_t count)
{
	struct rte_event events[BURST];
	uint16_t at;

	if (count > BURST)
		count = BURST;
	for (at = 0; at < count; at++) {
		events[at].event = 0;
		events[at].flow_id = 1;
		events[at].op = payloads[at] == SLUICE_EVENT_DROPPED ? RTE_EVENT_OP_RELEASE :
								       RTE_EVENT_OP_FORWARD;
		events[at].sched_type = RTE_SCHED_TYPE_ATOMIC;
		events[at].queue_id = EGRESS;
		events[at].priority = RTE_EVENT_DEV_PRIORITY_NORMAL;
		events[at].u64 = payloads[at];
	}
	return rte_event_enqueue_burst(device, FIRST_HELPER + helper, events, count);
}
