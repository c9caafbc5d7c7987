"""What is not the director's business goes to the kernel."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from frames import CLIENT, CLIENT_MAC, LADDR, VIP, real_address, real_mac
from rows import row


@row("ARP requests and answers")
def kernel_arp(s):
    s.service()
    ask = ARP(op=1, hwsrc=CLIENT_MAC, psrc=CLIENT, pdst=VIP)
    s.kernel(s.front, Ether(src=CLIENT_MAC, dst="ff:ff:ff:ff:ff:ff") / ask, "not_ip")
    say = ARP(op=2, hwsrc=real_mac(1), psrc=real_address(1), hwdst=s.back.mac, pdst=LADDR)
    s.kernel(s.back, Ether(src=real_mac(1), dst=s.back.mac) / say, "not_ip")


@row("LLDP, and Ethernet types nobody knows")
def kernel_other_types(s):
    s.service()
    lldp = Ether(src=CLIENT_MAC, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\0" * 46)
    s.kernel(s.front, lldp, "not_ip")
    other = Ether(src=CLIENT_MAC, dst=s.front.mac, type=0x88B5) / Raw(b"local experiment")
    s.kernel(s.front, other, "not_ip")


@row("IPv6, where only IPv4 is balanced")
def kernel_ipv6(s):
    s.service()
    echo = IPv6(src="2001:db8::48", dst="2001:db8::200") / ICMPv6EchoRequest()
    s.kernel(s.front, Ether(src=CLIENT_MAC, dst=s.front.mac) / echo, "not_ours")
    syn = IPv6(src="2001:db8::48", dst="2001:db8::200") / TCP(dport=80, flags="S")
    s.kernel(s.front, Ether(src=CLIENT_MAC, dst=s.front.mac) / syn, "not_ours")


@row("A ping to the virtual address, and one to a local address")
def kernel_ping(s):
    s.service()
    ping = ICMP(id=1, seq=1) / Raw(b"ping")
    s.kernel(s.front, s.client_frame(IP(src=CLIENT, dst=VIP) / ping), "not_ours")
    s.kernel(s.back, s.real_frame(IP(src=real_address(1), dst=LADDR) / ping), "not_ours")


@row("A port of the virtual address without a service; the other protocol on a service's port")
def kernel_no_service(s):
    s.service()
    ssh = IP(src=CLIENT, dst=VIP) / TCP(sport=40000, dport=22, flags="S")
    s.kernel(s.front, s.client_frame(ssh), "not_ours")
    udp = IP(src=CLIENT, dst=VIP) / UDP(sport=40000, dport=80) / Raw(b"quic?")
    s.kernel(s.front, s.client_frame(udp), "not_ours")


@row("A local address's port below the pool's range, and above it")
def kernel_outside_pool(s):
    s.pools["lan"]["ports"] = "2000-2999"
    s.service()
    for port in (22, 1999, 3000, 65535):
        answer = IP(src=real_address(1), dst=LADDR) / TCP(sport=80, dport=port, flags="A")
        s.kernel(s.back, s.real_frame(answer), "not_ours")


@row("Other addresses, other IP protocols")
def kernel_not_ours(s):
    s.service()
    away = IP(src=CLIENT, dst="203.0.113.9") / TCP(sport=40000, dport=80, flags="S")
    s.kernel(s.front, s.client_frame(away), "not_ours")
    for protocol in (2, 47, 50, 89, 132):
        other = IP(src=CLIENT, dst=VIP, proto=protocol) / Raw(b"\0" * 32)
        s.kernel(s.front, s.client_frame(other), "not_ours")


@row("Frames to a broadcast or multicast MAC, even with a service's address inside")
def kernel_group(s):
    s.service()
    syn = IP(src=CLIENT, dst=VIP) / TCP(sport=40000, dport=80, flags="S")
    for mac in ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:12"):
        s.kernel(s.front, Ether(src=CLIENT_MAC, dst=mac) / syn, "group")
