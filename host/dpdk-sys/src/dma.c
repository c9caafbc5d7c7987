/* Copy engines: see shim.h. rte_dmadev is experimental in DPDK 22.11, hence the definition. */
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_dmadev.h>

#include "shim.h"

_Static_assert(sizeof(struct sluice_dma_job) == 24, "size of a job");

/* The one channel of a device that is used. */
#define CHANNEL 0
#define STATUSES 128

static int find(const char *name)
{
	char queue[80];
	int id = rte_dma_get_dev_id_by_name(name);

	if (id >= 0)
		return id;
	/* Work queues of a PCI device have its address and their number. */
	snprintf(queue, sizeof(queue), "%s-q0", name);
	return rte_dma_get_dev_id_by_name(queue);
}

int sluice_dma_open(const char *arguments, const char *name, int16_t *device,
		    struct sluice_dma_info *info)
{
	struct rte_dma_info dma;
	int status, id = find(name);

	if (id < 0) {
		status = rte_dev_probe(arguments);
		if (status < 0)
			return status;
		id = find(name);
		if (id < 0)
			return -ENODEV;
	}
	status = rte_dma_info_get(id, &dma);
	if (status < 0)
		return status;
	memset(info, 0, sizeof(*info));
	info->copies = (dma.dev_capa & RTE_DMA_CAPA_OPS_COPY) != 0 &&
		       (dma.dev_capa & RTE_DMA_CAPA_MEM_TO_MEM) != 0;
	info->virtual_addresses = (dma.dev_capa & RTE_DMA_CAPA_SVA) != 0;
	info->descriptors = dma.max_desc;
	*device = (int16_t)id;
	return 0;
}

int sluice_dma_start(int16_t device, uint16_t descriptors)
{
	const struct rte_dma_conf conf = { .nb_vchans = 1 };
	const struct rte_dma_vchan_conf channel = {
		.direction = RTE_DMA_DIR_MEM_TO_MEM,
		.nb_desc = descriptors,
	};
	int status = rte_dma_configure(device, &conf);

	if (status < 0)
		return status;
	status = rte_dma_vchan_setup(device, CHANNEL, &channel);
	return status < 0 ? status : rte_dma_start(device);
}

int sluice_dma_stop(int16_t device)
{
	return rte_dma_stop(device);
}

uint16_t sluice_dma_copy(int16_t device, const struct sluice_dma_job *jobs, uint16_t count)
{
	uint16_t room = rte_dma_burst_capacity(device, CHANNEL);
	uint16_t begun;

	if (count > room)
		count = room;
	for (begun = 0; begun < count; begun++) {
		/* The result is read next, by us or the peer. */
		uint64_t flags = RTE_DMA_OP_FLAG_LLC;

		if (begun + 1 == count)
			flags |= RTE_DMA_OP_FLAG_SUBMIT;
		if (rte_dma_copy(device, CHANNEL, (rte_iova_t)(uintptr_t)jobs[begun].from,
				 (rte_iova_t)(uintptr_t)jobs[begun].to, jobs[begun].length,
				 flags) < 0) {
			if (begun > 0)
				rte_dma_submit(device, CHANNEL);
			break;
		}
	}
	return begun;
}

uint16_t sluice_dma_over(int16_t device, uint8_t *done, uint16_t count)
{
	enum rte_dma_status_code statuses[STATUSES];
	uint16_t last, at;

	if (count > STATUSES)
		count = STATUSES;
	count = rte_dma_completed_status(device, CHANNEL, count, &last, statuses);
	for (at = 0; at < count; at++)
		done[at] = statuses[at] == RTE_DMA_STATUS_SUCCESSFUL;
	return count;
}
