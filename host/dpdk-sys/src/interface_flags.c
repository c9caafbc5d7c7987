/* An interface's flags stay as they are while DPDK starts a port on it.
 *
 * When a port starts, DPDK restores its promiscuous mode. net_af_xdp does so by reading all flags
 * of the interface (SIOCGIFFLAGS) and writing them back (SIOCSIFFLAGS). Whatever changes between
 * the two is undone: an interface that is just being set up goes down again, and stays down. The
 * driver needs no flag of the interface, and nobody here asks it for promiscuous mode.
 *
 * So this definition stands before the C library's, and a thread that asked for it writes no flags.
 * The driver is a plug-in: it finds the symbol because the linker exports what the DPDK libraries
 * refer to (and build.rs of the daemon says so, too). If it found the C library's instead, the
 * driver would write the flags as before.
 */
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "shim.h"

static __thread int flags_are_kept;

void sluice_keep_interface_flags(int keep)
{
	flags_are_kept = keep;
}

__attribute__((visibility("default"), used))
int ioctl(int descriptor, unsigned long request, ...)
{
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	if (request == SIOCSIFFLAGS && flags_are_kept)
		return 0;
	return (int)syscall(SYS_ioctl, descriptor, request, argument);
}
