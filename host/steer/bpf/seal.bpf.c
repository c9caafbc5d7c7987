// SPDX-License-Identifier: Apache-2.0
/* Drops whatever an interface receives, after packet sockets have had their copy and before the
 * kernel's own stack sees it: the interface then belongs to whoever reads the packet socket.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

SEC("classifier")
int sluice_seal(struct __sk_buff *frame)
{
	(void)frame;
	return TC_ACT_SHOT;
}

char seal_license[] SEC("license") = "Apache-2.0";
