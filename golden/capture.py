"""Capture files."""

import struct

NS = 1_000_000_000


def pcap(records):
    """A capture file with nanosecond time stamps, little-endian whatever the machine."""
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
    for at_ns, frame in records:
        out += struct.pack("<IIII", at_ns // NS, at_ns % NS, len(frame), len(frame)) + frame
    return out
