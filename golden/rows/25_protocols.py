"""SCTP, and protocols without ports."""

from scapy.layers.sctp import (
    SCTPChunkAbort,
    SCTPChunkCookieAck,
    SCTPChunkCookieEcho,
    SCTPChunkData,
    SCTPChunkInit,
    SCTPChunkInitAck,
    SCTPChunkSACK,
    SCTPChunkShutdown,
    SCTPChunkShutdownAck,
    SCTPChunkShutdownComplete,
)

from modes import DR4, DR6, IPIP4, IPIP6, IPIP46, IPIP64, NAT4, NAT6
from rows import rows_for

MODES = (NAT4, NAT6, DR4, DR6, IPIP4, IPIP6, IPIP46, IPIP64)
NAT = (NAT4, NAT6)


def sigtran(s, m, **keys):
    """An SCTP service and a flow to it."""
    m.service(s, "sigtran", "sctp", 2905, **keys)
    return s.flow("sigtran")


def associate(f):
    """The four-way handshake (RFC 9260 5.1)."""
    f.chunk(SCTPChunkInit(init_tag=0x62628282, init_tsn=100), tag=0)
    f.real_chunk(SCTPChunkInitAck(init_tag=0x51517171, init_tsn=200))
    f.chunk(SCTPChunkCookieEcho(cookie=b"cookie12"))
    f.real_chunk(SCTPChunkCookieAck())
    return f


@rows_for(MODES, "SCTP: handshake and data")
def sctp(s, m):
    f = associate(sigtran(s, m))
    f.chunk(SCTPChunkData(tsn=100, data=b"hello", beginning=1, ending=1))
    f.real_chunk(SCTPChunkSACK(cumul_tsn_ack=100))
    f.real_chunk(SCTPChunkData(tsn=200, data=b"world", beginning=1, ending=1))
    f.chunk(SCTPChunkSACK(cumul_tsn_ack=200))


@rows_for(NAT, "SCTP on another port: the CRC32c is computed anew (RFC 9260 6.8)")
def sctp_real_port(s, m):
    f = associate(sigtran(s, m, real_port=3868))
    for length in (1, 2, 3, 4, 63, 1000):
        f.chunk(SCTPChunkData(tsn=100, data=b"\x5a" * length))
        f.real_chunk(SCTPChunkData(tsn=200, data=b"\xa5" * length))


@rows_for(NAT, "SCTP addresses are not in the CRC32c: on the same port it stays, even a wrong one")
def sctp_wrong_checksum(s, m):
    from scapy.layers.sctp import SCTP

    f = associate(sigtran(s, m))
    f.inbound(SCTP(tag=1, chksum=0xDEADBEEF), bytes(SCTPChunkData(tsn=1, data=b"damaged")))


@rows_for(MODES, "SCTP: two associations to two real servers")
def sctp_two(s, m):
    one = sigtran(s, m)
    two = s.flow("sigtran", real=2, client=(m.client, 40001))
    associate(one)
    associate(two)
    one.chunk(SCTPChunkData(tsn=1, data=b"one"))
    two.real_chunk(SCTPChunkData(tsn=1, data=b"two"))


@rows_for(NAT, "SCTP: a shutdown passes both ways; the session is gone when it is complete")
def sctp_shutdown(s, m):
    f = associate(sigtran(s, m))
    f.chunk(SCTPChunkShutdown(cumul_tsn_ack=1))
    f.real_chunk(SCTPChunkShutdownAck())
    f.chunk(SCTPChunkShutdownComplete(), ends=True)


@rows_for(MODES, "SCTP: an abort passes and ends the session")
def sctp_abort(s, m):
    f = associate(sigtran(s, m))
    f.chunk(SCTPChunkAbort(), ends=True)


@rows_for(MODES, "SCTP: what would end an association but has a wrong tag ends nothing")
def blind_abort_keeps_session(s, m):
    f = associate(sigtran(s, m))
    # The receiver's own tag goes with the T bit, and only then (RFC 9260 8.5.1).
    for tag, flags in ((0, 0), (1, 0), (0x62628282, 0), (0x51517171, 1), (0, 1)):
        f.chunk(SCTPChunkAbort(TCB=flags), tag=tag)
        f.chunk(SCTPChunkShutdownComplete(TCB=flags), tag=tag)
    for tag, flags in ((0, 0), (0x51517171, 0), (0x62628282, 1)):
        f.real_chunk(SCTPChunkAbort(TCB=flags), tag=tag)
    f.chunk(SCTPChunkData(tsn=100, data=b"goes on", beginning=1, ending=1))
    f.real_chunk(SCTPChunkSACK(cumul_tsn_ack=100))


@rows_for(MODES, "SCTP: an abort with the T bit and the receiver's own tag ends the session")
def sctp_reflected_abort(s, m):
    f = associate(sigtran(s, m))
    f.chunk(SCTPChunkAbort(TCB=1), tag=0x62628282, ends=True)


@rows_for(NAT, "SCTP: an abort by the real server ends the session")
def sctp_abort_by_real(s, m):
    f = associate(sigtran(s, m))
    f.real_chunk(SCTPChunkAbort(), ends=True)


@rows_for(MODES, "SCTP: only INIT, with a tag of zero, opens a session")
def sctp_no_session(s, m):
    f = sigtran(s, m)
    f.chunk(SCTPChunkData(tsn=100, data=b"out of the blue"), drop="no_session")
    f.chunk(SCTPChunkCookieEcho(cookie=b"cookie12"), drop="no_session")
    f.chunk(SCTPChunkInit(init_tag=5), tag=7, drop="no_session")
    f.chunk(SCTPChunkAbort(), drop="no_session")
    associate(f)


@rows_for(MODES, "an SCTP session lives 900 seconds from its last packet")
def sctp_expiry(s, m):
    f = associate(sigtran(s, m))
    s.wait(898)
    f.chunk(SCTPChunkData(tsn=1, data=b"still there"))
    s.wait(902)
    f.expire()
    g = s.flow("sigtran", real=2)
    g.chunk(SCTPChunkInit(init_tag=5), tag=0)


@rows_for((NAT4, NAT6, DR4, DR6), "VLANs on both sides of an SCTP service")
def sctp_vlan(s, m):
    f = sigtran(s, m)
    s.vlan(m.client, 10)
    s.vlan(f.real_address, 20)
    associate(f)


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "another protocol's session lives 300 seconds")
def other_expiry(s, m):
    m.service(s, "host", "any", None)
    f = s.flow("host", client=(m.client, 0), port=1)
    f.raw(47, b"\0\0\x08\0inside")
    s.wait(298)
    f.raw(47, b"\0\0\x08\0inside")
    s.wait(302)
    f.expire()
    s.flow("host", real=2, client=(m.client, 0), port=1).raw(47, b"\0\0\x08\0inside")


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "a protocol without ports keeps its bytes: odd "
          "lengths, none at all")
def other_lengths(s, m):
    m.service(s, "host", "any", None, reals=[1])
    f = s.flow("host", client=(m.client, 0), port=1)
    for length in (1, 2, 3, 7, 100, 1001):
        f.raw(99, bytes(index % 253 for index in range(length)))
        f.real_raw(99, b"\xee" * length)
