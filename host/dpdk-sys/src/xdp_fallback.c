/* XDP in the driver where the driver will have it, else in the kernel's generic receive path.
 *
 * net_af_xdp attaches its program with libbpf's bpf_xdp_attach and names no mode: the kernel then
 * asks the driver if the driver knows XDP at all, and a driver that knows it may still refuse
 * (virtio_net with receive offloads or with few queues, veth with uneven ones). The driver offers
 * no way to ask for the generic form, so this definition stands before libbpf's: the program that
 * links it must export the symbol (build.rs of the daemon), and the driver, a
 * plug-in, then finds it first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <rte_log.h>

#include "shim.h"

/* linux/if_link.h: not included, since its flags are all that is needed. */
#define XDP_FLAGS_SKB_MODE (1U << 1)
#define XDP_FLAGS_MODES ((1U << 1) | (1U << 2) | (1U << 3))

typedef int attach_function(int, int, uint32_t, const void *);

static attach_function *libbpf_attach(void)
{
	/* Loaded already, by the driver that calls. */
	void *libbpf = dlopen("libbpf.so.1", RTLD_NOW | RTLD_NOLOAD);

	return libbpf ? (attach_function *)dlsym(libbpf, "bpf_xdp_attach") : NULL;
}

/* A refusal that the generic form would meet too. */
static int is_final(int status)
{
	return status == -EBUSY || status == -EEXIST || status == -EPERM || status == -ENODEV;
}

__attribute__((visibility("default"), used))
int bpf_xdp_attach(int interface, int program, uint32_t flags, const void *options)
{
	attach_function *attach = libbpf_attach();
	int status;

	if (attach == NULL || attach == bpf_xdp_attach)
		return -ENOSYS;
	status = attach(interface, program, flags, options);
	if (status >= 0 || program < 0 || (flags & XDP_FLAGS_MODES) || is_final(status))
		return status;
	RTE_LOG(WARNING, EAL, "the driver of interface %d refuses XDP (%s): "
		"the kernel's generic form is used, which is slower\n",
		interface, strerror(-status));
	return attach(interface, program, flags | XDP_FLAGS_SKB_MODE, options);
}
