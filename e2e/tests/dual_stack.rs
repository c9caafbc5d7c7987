//! A fixture with both families and services of one forwarding mode on each: what the tests of
//! forwarding are run on.

use sluice_e2e::bed::REALS;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::web::ECHO_PORT;
use sluice_e2e::{Bed, Director, Family, LabError, Mode, Real, Service};

use crate::fixture::{Fixture, Setup, on_bed};

/// iperf3's usual port.
pub const IPERF_PORT: u16 = 5201;

/// The pool of IPv6 local addresses, and the outer addresses of tunnels.
pub const LOCAL6_AND_TUNNEL: &str = "
[[pool]]
name = \"lan6\"
addresses = [\"2001:db8:2::10\"]

[ipip]
source_v4 = \"192.0.2.1\"
source_v6 = \"2001:db8:2::1\"

";

/// The pool that real servers of a family need in full NAT.
pub fn pool_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "lan",
        Family::V6 => "lan6",
    }
}

/// A service of a mode without real servers yet, and with the pool it needs for those of `family`.
pub fn service(name: &str, protocol: &str, vip: &str, mode: Mode, family: Family) -> Service {
    let service = Service::new(name, protocol, vip).set("mode", mode.name());
    let keys = mode.tunnel_keys().iter();
    let service = keys.fold(service, |service, (key, value)| service.set(key, value));
    if mode == Mode::Fnat { service.set("pool", pool_of(family)) } else { service }
}

/// The first `count` real servers of a family.
pub fn reals(family: Family, count: usize) -> impl Iterator<Item = Real> {
    (0..count).map(move |index| Real::at(Bed::real_of(family, index)))
}

/// HTTP and echo on all real servers, iperf3 on the first; on the virtual address of one family,
/// to real servers of another or the same.
pub fn usual_services(bed: &Bed, mode: Mode, outer: Family, inner: Family) -> String {
    let vip = bed.vip_of(outer);
    let named = |name: &str| format!("{name}-{}{}", outer.bits(), inner.bits());
    [("web", "tcp", 80, REALS), ("echo", "udp", ECHO_PORT, REALS), ("iperf", "tcp", IPERF_PORT, 1)]
        .map(|(name, protocol, port, count)| {
            service(&named(name), protocol, vip, mode, inner)
                .set("port", port)
                .reals(reals(inner, count))
                .to_string()
        })
        .concat()
}

/// A recipe without services, for a bed with both families.
pub fn bare() -> Recipe {
    let more = LOCAL6_AND_TUNNEL.to_owned();
    Recipe { services: Vec::new(), more, ..Recipe::default() }
}

/// Runs a test with both families, real servers made ready for a mode, and services as `more` says.
pub fn on_dual(
    name: &str,
    setup: Setup,
    mode: Mode,
    more: impl FnOnce(&Bed) -> String,
    test: impl FnOnce(&mut Fixture) -> Result<(), LabError>,
) {
    on_bed(
        name,
        Setup { recipe: bare(), ..setup },
        |bed, mut recipe| {
            bed.add_ipv6()?;
            bed.prepare(mode)?;
            recipe.more += &more(bed);
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        test,
    );
}

/// As [`on_dual`], with the usual services of the mode on both families.
pub fn on_mode(
    name: &str,
    setup: Setup,
    mode: Mode,
    test: impl FnOnce(&mut Fixture) -> Result<(), LabError>,
) {
    let services =
        |bed: &Bed| FAMILIES.map(|family| usual_services(bed, mode, family, family)).concat();
    on_dual(name, setup, mode, services, test);
}

/// Makes tests of a mode for clients of one family and real servers of another or the same:
/// `name: driver, workers, mode, outer family, inner family;`. Services come from a function like
/// [`usual_services`]; what is done gets the fixture, the mode and the outer family.
macro_rules! on_modes {
    ($services:path, $run:path;
     $($test:ident: $driver:ident, $workers:literal,
       $mode:ident, $outer:ident, $inner:ident;)+) => {
        $(
            #[test]
            fn $test() {
                use sluice_e2e::{Driver, Family, Mode};
                let (mode, outer, inner) = (Mode::$mode, Family::$outer, Family::$inner);
                let services = |bed: &sluice_e2e::Bed| $services(bed, mode, outer, inner);
                let setup = $crate::fixture::Setup::new(Driver::$driver, $workers);
                let name = $crate::fixture::here!($test);
                $crate::dual_stack::on_dual(name, setup, mode, services, |fixture| {
                    $run(fixture, mode, outer)
                });
            }
        )+
    };
}
pub(crate) use on_modes;
