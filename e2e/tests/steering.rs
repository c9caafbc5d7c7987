//! Only balanced traffic is taken: everything else on the same interface stays the kernel's.

use sluice_e2e::bed::ADMIN_PORT;
use sluice_e2e::error::expect;
use sluice_e2e::load::{ping, wrk};
use sluice_e2e::{Director, Driver, LabError};

use crate::field::{Field, REFUSED, SOON, Setup, here, on, on_bed};

#[test]
fn an_ssh_like_service_and_ping_keep_working() {
    on(here!(an_ssh_like_service_and_ping_keep_working), Setup::usual(), beside_under_load);
}

/// A session to the director's own machine lives through load on the services, and ping too.
fn beside_under_load(field: &mut Field) -> Result<(), LabError> {
    field.bed.start_admin()?;
    let own = field.bed.front_address();
    let mut held = field.hold(&format!("{own}:{ADMIN_PORT}"), 4)?;
    let load = wrk(&field.bed.client, &format!("{}/", field.url()), 16, 2)?;
    expect(load.socket_errors == 0, || format!("{load:?}"))?;
    expect(ping(&field.bed.client, own, 10)?, || "no answer to ping".to_owned())?;
    let ended = held.wait(SOON)?;
    expect(ended.success(), || held.log_tail(5))
}

#[test]
fn ping_to_the_virtual_address_is_answered() {
    on(here!(ping_to_the_virtual_address_is_answered), Setup::usual(), |field| {
        let answered = ping(&field.bed.client, field.bed.vip(), 10)?;
        expect(answered, || "no answer to ping".to_owned())
    });
}

/// A port of the virtual address that is no service is the kernel's: it refuses the connection.
#[test]
fn other_ports_of_the_virtual_address_are_the_kernels() {
    on(here!(other_ports_of_the_virtual_address_are_the_kernels), Setup::usual(), |field| {
        let url = format!("http://{}:81/", field.bed.vip());
        let ran = field.bed.client.run("curl", &["-sS", "--max-time", "5", &url])?;
        expect(ran.status.code() == Some(REFUSED), || format!("{ran:?}"))
    });
}

/// Traffic that the director's machine only routes passes by the program too.
#[test]
fn routed_traffic_passes_by() {
    on(here!(routed_traffic_passes_by), Setup::usual(), |field| {
        field.bed.route_directly()?;
        let answer = sluice_e2e::load::curl(&field.bed.client, "http://192.0.2.12/")?;
        expect(answer == "Real Server 02", || answer.clone())
    });
}

/// A driver may know XDP and refuse it all the same (here veth, whose peer sends by more queues
/// than it receives by; on virtual machines virtio_net): the generic form serves then.
#[test]
fn a_driver_that_refuses_xdp_gets_the_generic_form() {
    on_bed(
        here!(a_driver_that_refuses_xdp_gets_the_generic_form),
        Setup::new(Driver::AfXdp, 2),
        |bed, recipe| {
            let fewer = bed.director.run("ethtool", &["-L", "front", "rx", "1"])?;
            expect(fewer.status.success(), || format!("{fewer:?}"))?;
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        |field| {
            let ports = field.director.ask("ports")?;
            let mode = |port: usize| ports["ports"][port]["steering"]["mode"].clone();
            expect(mode(0) == "generic" && mode(1) == "native", || ports.to_string())?;
            field.wait_for_answer(SOON)?;
            expect(ping(&field.bed.client, field.bed.vip(), 10)?, || "no answer".to_owned())?;
            let ended = field.director.stop()?;
            expect(ended.success(), || format!("{ended:?}"))?;
            let link = field.bed.director.ip(&["-d", "link", "show", "front"])?;
            expect(!format!("{link:?}").contains("xdp"), || format!("{link:?}"))
        },
    );
}
