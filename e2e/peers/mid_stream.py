"""Sends one TCP ACK that belongs to no connection and says what comes back.

`mid_stream.py ADDRESS PORT SECONDS` prints `nothing`, or the answer's flags and sequence number:
`R 1000`. A reset for a segment with ACK carries the sequence number that the segment acknowledged
(RFC 9293 3.10.7.1).
"""

import logging
import sys

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.all import IP, TCP, conf, sr1  # noqa: E402

conf.verb = 0
address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
segment = IP(dst=address) / TCP(sport=40404, dport=port, flags="A", seq=7, ack=1000)
answer = sr1(segment, timeout=seconds)
if answer is None or TCP not in answer:
    print("nothing")
else:
    print(answer[TCP].flags, answer[TCP].seq)
