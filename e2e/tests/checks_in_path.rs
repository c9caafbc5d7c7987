//! Health checks through the data path: a real server that a plain check finds well, and that no
//! client reaches, is found down, and up again when the way is whole.

use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::{Director, Driver, Family, LabError, Mode};

use crate::dual_stack::{bare, reals, service};
use crate::fixture::{Fixture, Setup, here, on_bed};
use crate::health::wait_for;

/// Where probes come from: in front, so that real servers answer as they answer clients; but where
/// answers pass the director by, in the real servers' own network, since they would pass it by here
/// too.
const fn from(mode: Mode) -> (&'static str, [&'static str; 2]) {
    match mode {
        mode if mode.answers_past() => ("back", ["192.0.2.9", "2001:db8:2::9"]),
        _ => ("front", ["198.51.100.9", "2001:db8:1::9"]),
    }
}

const CHECKS: &str = "[[check]]\nname = \"through\"\nkind = \"http\"\nthrough = \"service\"\n\
                      interval_ms = 200\ntimeout_ms = 200\nrise = 2\nfall = 2\n\
                      jitter_percent = 0\nexpect = \"Real Server\"\n\n\
                      [[check]]\nname = \"past\"\nkind = \"tcp\"\nport = 80\ninterval_ms = 200\n\
                      timeout_ms = 200\njitter_percent = 0\n\n";

fn on(name: &str, (driver, workers, mode): (Driver, u32, Mode), test: Test) {
    let setup = Setup { recipe: bare(), ..Setup::new(driver, workers) };
    on_bed(
        name,
        setup,
        |bed, mut recipe| {
            bed.add_ipv6()?;
            bed.prepare(mode)?;
            let (port, addresses) = from(mode);
            recipe.more += CHECKS;
            for (family, check, port) in FAMILIES
                .into_iter()
                .flat_map(|family| [(family, "through", 80), (family, "past", 81)])
            {
                let name = format!("{check}{}", family.bits());
                let service = service(&name, "tcp", bed.vip_of(family), mode, family);
                let service = service.set("port", port).set("check", check);
                recipe.more += &service.reals(reals(family, REALS)).to_string();
            }
            let from = format!("[director]\nprobe_addresses = {addresses:?}\n");
            let text = recipe.text(bed).replacen("[director]\n", &from, 1);
            let director = Director::start(bed, &text)?;
            // A twin is there only now.
            for (family, from) in FAMILIES.into_iter().zip(addresses) {
                let address = format!("{from}/{}", family.bits());
                bed.director.address(&bed.kernel_device(port), &address)?;
            }
            Ok((director, recipe))
        },
        |fixture| test(fixture, mode),
    );
}

type Test = fn(&mut Fixture, Mode) -> Result<(), LabError>;

/// What cuts clients off from the first real server and leaves a plain check its way, and mends it.
fn way(fixture: &Fixture, mode: Mode, family: Family) -> [Vec<String>; 2] {
    let (bits, vip) = (family.bits(), fixture.bed.vip_of(family));
    let version = if family == Family::V4 { "-4" } else { "-6" };
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
    match mode {
        mode if mode.answers_past() => {
            let address = |what: &str| words(format!("address {what} {vip}/{bits} dev lo"));
            [address("del"), address("add")]
        }
        _ => {
            let from = if family == Family::V4 { "198.51.100.0/24" } else { "2001:db8:1::/64" };
            let local = if family == Family::V4 { "192.0.2.10" } else { "2001:db8:2::10" };
            let to = if mode == Mode::Nat { from } else { local };
            let route = |what: &str| words(format!("{version} route {what} blackhole {to}"));
            [route("add"), route("del")]
        }
    }
}

fn cut_off(fixture: &mut Fixture, mode: Mode) -> Result<(), LabError> {
    for family in FAMILIES {
        let (through, past) =
            (format!("through{}", family.bits()), format!("past{}", family.bits()));
        for index in 0..REALS {
            wait_for(fixture, &through, index, "up")?;
            wait_for(fixture, &past, index, "up")?;
        }
        let [cut, mend] = way(fixture, mode, family);
        let real = fixture.bed.reals[0].clone();
        real.ip(&cut.iter().map(String::as_str).collect::<Vec<_>>())?;
        let down = wait_for(fixture, &through, 0, "down")?;
        expect(down["reason"].as_str().is_some_and(|it| !it.is_empty()), || down.to_string())?;
        let others = wait_for(fixture, &through, 1, "up")?;
        expect(others["probes"].as_u64() > Some(2), || others.to_string())?;
        let blind = wait_for(fixture, &past, 0, "up")?;
        expect(blind["last"]["outcome"] == "passed", || format!("the plain one: {blind}"))?;
        real.ip(&mend.iter().map(String::as_str).collect::<Vec<_>>())?;
        wait_for(fixture, &through, 0, "up")?;
    }
    // Probes are nobody's sessions.
    let said = fixture.director.ask("services")?;
    let counted = said["services"].as_array().into_iter().flatten();
    let counted: u64 = counted.filter_map(|it| it["counted"]["sessions_total"].as_u64()).sum();
    expect(counted == 0, || format!("{counted} sessions, and no client: {said}"))?;
    Ok(())
}

macro_rules! ways {
    ($($test:ident: $driver:ident, $workers:literal, $mode:ident;)+) => {
        $(
            #[test]
            fn $test() {
                on(here!($test), (Driver::$driver, $workers, Mode::$mode), cut_off);
            }
        )+
    };
}

ways! {
    by_fnat: AfXdp, 1, Fnat;
    by_nat: AfXdp, 1, Nat;
    by_dr: AfXdp, 1, Dr;
    by_ipip: AfXdp, 1, Ipip;
    by_dr_af_packet: AfPacket, 1, Dr;
    by_nat_two_workers: AfXdp, 2, Nat;
    by_ipip_two_workers: AfXdp, 2, Ipip;
}
