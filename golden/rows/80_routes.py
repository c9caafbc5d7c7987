"""Where packets go: routes, gateways, neighbours."""

from frames import CLIENT, GATEWAY, GATEWAY_MAC, real_address
from rows import row

FAR = "203.0.113.77"


def default_route(s):
    """A gateway on the front side for everything else."""
    s.routes.append(("0.0.0.0/0", GATEWAY, "front"))
    s.hop(GATEWAY, GATEWAY_MAC)


@row("A client behind a gateway: the answer goes to the gateway's MAC")
def route_gateway(s):
    default_route(s)
    s.service()
    f = s.flow(client=(FAR, 40000), via=GATEWAY).handshake()
    f.send(b"from afar")
    f.answer(b"to afar")


@row("An on-link client beside a default route is reached directly")
def route_on_link(s):
    default_route(s)
    s.service()
    s.flow().handshake()


@row("The longest prefix wins: /32 over /25 over /24 over the default")
def route_longest_prefix(s):
    default_route(s)
    s.service(reals=[1])
    for number, (prefix, client) in enumerate((
        ("203.0.113.0/24", "203.0.113.200"),
        ("203.0.113.0/25", "203.0.113.100"),
        ("203.0.113.7/32", "203.0.113.7"),
    )):
        gateway = f"198.51.100.{240 + number}"
        s.routes.append((prefix, gateway, "front"))
        s.hop(gateway, f"02:00:00:00:02:{0xf0 + number:02x}")
        s.flow(lport=1024 + number, client=(client, 40000), via=gateway).handshake()
    s.flow(lport=1027, client=("192.88.99.1", 40000), via=GATEWAY).handshake()


@row("Real servers behind a router of their own")
def route_to_reals(s):
    s.routes[1] = ("192.0.2.0/24", "10.0.0.1", "back")
    s.routes.append(("10.0.0.0/24", None, "back"))
    s.hop("10.0.0.1", "02:00:00:00:01:fe", "back")
    s.service()
    f = s.flow(real_via="10.0.0.1").handshake()
    f.send(b"through the router")
    f.answer(b"through the router")


@row("A gateway on a VLAN: the answer carries its tag")
def route_gateway_vlan(s):
    s.routes.append(("0.0.0.0/0", GATEWAY, "front"))
    s.hop(GATEWAY, GATEWAY_MAC, "front", 300)
    s.service()
    s.flow(client=(FAR, 40000), via=GATEWAY).handshake()


@row("No route to the real server: no session is opened")
def no_route_to_real(s):
    s.routes = s.routes[:1]
    s.service()
    f = s.flow()
    f.syn(drop="no_route")
    f.syn(drop="no_route")


@row("No route back to the client: no session is opened, and no real server loses its turn")
def no_route_to_client(s):
    s.hop(GATEWAY, GATEWAY_MAC)
    s.service()
    s.flow(client=(FAR, 40000), via=GATEWAY).syn(drop="no_route")
    s.flow(real=1).handshake()


@row("The real server's MAC is unknown: the packet waits, and is given up at the capture's end")
def real_unresolved(s):
    s.forget(real_address(1))
    s.service()
    s.flow().syn(drop="unresolved")


@row("The client's MAC is unknown: the answer waits, and is given up at the capture's end")
def client_unresolved(s):
    s.forget(CLIENT)
    s.service()
    f = s.flow()
    f.syn()
    f.syn_ack(drop="unresolved")


@row("A client that comes in by another port than its route's: the answer follows the route")
def route_asymmetric(s):
    s.service()
    f = s.flow()
    f.syn(enters=s.back)
    f.syn_ack()
