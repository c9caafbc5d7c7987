//! AF_XDP ports on a veth pair: only what is steered leaves the kernel, sleeping workers wake, and
//! nothing stays behind, however the port or the process ends. Needs root.

mod bed;

use std::process::{Command, Stdio};

use bed::{Bed, Echo, PORT_ADDRESS, ip, succeed, wait_until};

/// By our own sockets, and by DPDK's driver.
const DEVICE: [&str; 2] = ["--device", "af_xdp:port0"];
const DPDK: [&str; 2] = ["--device", "dpdk_af_xdp:port0"];

/// A service of the host's own, beside the port.
const TCP_ECHO: &str = "import socket; s = socket.create_server(('', 8080));
while True: c, _ = s.accept(); c.sendall(c.recv(100)); c.close()";

#[test]
fn the_port_gets_what_is_steered_and_the_kernel_the_rest() {
    needs_root!();
    steered(DEVICE);
}

#[test]
fn the_port_gets_what_is_steered_and_the_kernel_the_rest_by_dpdk() {
    needs_root!();
    steered(DPDK);
}

fn steered(device: [&str; 2]) {
    let bed = Bed::new(1);
    let mut server = Command::new("ip")
        .args(["netns", "exec", &bed.here, "python3", "-c", TCP_ECHO])
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 is installed");
    let mut echo = Echo::start(&bed, &device);
    assert!(bed.link().contains("sluice_steer"), "the program is on the interface");
    for n in 0..10 {
        assert_eq!(bed.exchange(7, &format!("datagram {n}\n")), format!("datagram {n}\n"));
    }
    assert_eq!(bed.ping(5), (5, 0), "the kernel answers ping");
    let script = format!("echo through the kernel | nc -N -w2 {PORT_ADDRESS} 8080");
    let mut answer = String::new();
    wait_until("the TCP service beside the port answers", || {
        let output = bed.peer("sh").args(["-c", &script]).output().unwrap();
        answer = String::from_utf8_lossy(&output.stdout).into_owned();
        !answer.is_empty()
    });
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(answer, "through the kernel\n");
    assert_eq!(echo.count("rx"), 10, "nothing else came to the port");
    assert_eq!(echo.count("echoed"), 10);
    // On a busy machine some come before it sleeps again, and need not wake it.
    assert!(echo.count("wakes") > 0, "datagrams woke the sleeping program");
    echo.quit();
    assert!(!bed.link().contains("xdp"), "{}", bed.link());
}

#[test]
fn ordinary_pages_and_huge_pages_both_do() {
    needs_root!();
    pages(DEVICE);
}

#[test]
fn ordinary_pages_and_huge_pages_both_do_by_dpdk() {
    needs_root!();
    pages(DPDK);
}

fn pages(device: [&str; 2]) {
    let bed = Bed::new(1);
    for (pages, expected) in [("off", "huge_pages=false"), ("required", "huge_pages=true")] {
        let mut echo = Echo::launch(&bed, &[&device[..], &["--huge-pages", pages]].concat());
        let ready = echo.wait_for("ready");
        assert!(ready.contains(expected), "{ready}");
        assert_eq!(bed.exchange(7, "pages\n"), "pages\n");
        echo.quit();
    }
}

#[test]
fn too_few_huge_pages_are_explained() {
    needs_root!();
    let bed = Bed::new(1);
    let arguments = ["--huge-pages", "required", "--frames", "9000000"];
    let mut echo = Echo::launch(&bed, &[&DEVICE[..], &arguments].concat());
    assert!(!echo.wait_end(), "there is not so much");
    let log = echo.log();
    assert!(log.contains("huge pages are required: "), "{log}");
    assert!(log.contains("sysctl vm.nr_hugepages="), "{log}");
}

#[test]
fn missing_capabilities_are_explained() {
    needs_root!();
    capabilities(DEVICE);
}

#[test]
fn missing_capabilities_are_explained_by_dpdk() {
    needs_root!();
    capabilities(DPDK);
}

fn capabilities(device: [&str; 2]) {
    let bed = Bed::new(1);
    for (dropped, said) in [
        ("net_raw", "needs CAP_NET_RAW. Run as root, or"),
        ("bpf,sys_admin", "needs CAP_BPF. Run as root, or"),
        ("ipc_lock", "needs more locked memory than 8 MB"),
    ] {
        let drop = dropped.split(',').map(|name| format!("-{name}")).collect::<Vec<_>>().join(",");
        let mut echo = Echo::launch_under(
            &bed,
            &["setpriv", "--bounding-set", &drop, "--inh-caps", &drop],
            &[&device[..], &["--huge-pages", "off"]].concat(),
        );
        assert!(!echo.wait_end(), "{dropped} is needed");
        assert!(echo.log().contains(said), "{dropped}: {}", echo.log());
    }
}

#[test]
fn an_interface_may_vanish_and_return_again_and_again() {
    needs_root!();
    vanishes(DEVICE);
}

#[test]
fn an_interface_may_vanish_and_return_again_and_again_by_dpdk() {
    needs_root!();
    vanishes(DPDK);
}

fn vanishes(device: [&str; 2]) {
    let bed = Bed::new(1);
    let mut echo = Echo::start(&bed, &device);
    let free = echo.count("free_frames");
    let descriptors = echo.open_descriptors();
    for round in 0..5 {
        let text = format!("round {round}\n");
        assert_eq!(bed.exchange(7, &text), text);
        bed.cut_wire();
        echo.wait_for("gone");
        wait_until("all buffers are back", || echo.count("free_frames") == 16_384);
        bed.lay_wire();
        echo.wait_for("ready");
    }
    assert_eq!(bed.exchange(7, "and on\n"), "and on\n");
    assert!(echo.count("free_frames") + 64 >= free, "no buffers were lost");
    echo.wait_descriptors(descriptors);
    assert!(echo.log().lines().count() < 100, "it was told once:\n{}", echo.log());
    echo.quit();
    assert!(!bed.link().contains("xdp"), "{}", bed.link());
}

/// Stands before the C library in the program under test: whoever writes an interface's flags says
/// so and then does it half a second later.
const SLOW_FLAGS: &str = r#"
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/sockios.h>
int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (request == SIOCSIFFLAGS) {
        (void)!write(2, "flags are written\n", 18);
        usleep(500000);
    }
    return syscall(SYS_ioctl, fd, request, argument);
}"#;

/// The driver reads the interface's flags and writes them back when a port starts.
#[test]
fn an_interface_set_up_while_its_port_opens_stays_up() {
    needs_root!();
    let bed = Bed::new(1);
    let folder = std::env::temp_dir().join(format!("sluice-flags-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, object) = (folder.join("slow.c"), folder.join("slow.so"));
    std::fs::write(&source, SLOW_FLAGS).unwrap();
    succeed(Command::new("clang").args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&object));
    let preload = format!("LD_PRELOAD={}", object.display());

    ip(&["-n", &bed.here, "link", "set", "port0", "down"]);
    let mut echo = Echo::launch_under(&bed, &["env", &preload], &DPDK);
    wait_until("the port is open or just about to be", || {
        let log = echo.log();
        log.contains("flags are written") || log.contains("port is open")
    });
    ip(&["-n", &bed.here, "link", "set", "port0", "up"]);
    echo.wait_for("ready");
    let link = bed.link();
    assert!(link.contains(",UP"), "it was set up and nobody set it down: {link}");
    bed.wait_for_link();
    assert_eq!(bed.exchange(7, "up\n"), "up\n");
    std::fs::remove_dir_all(&folder).unwrap();
    echo.quit();
}

#[test]
fn no_program_stays_after_a_signal_nor_after_a_kill() {
    needs_root!();
    let bed = Bed::new(1);
    for signal in ["TERM", "KILL"] {
        let mut echo = Echo::start(&bed, &DEVICE);
        echo.signal(signal);
        echo.wait_end();
        assert!(!bed.link().contains("xdp"), "{signal}: {}", bed.link());
        assert_eq!(bed.ping(2), (2, 0));
    }
    let echo = Echo::start(&bed, &DEVICE);
    assert_eq!(bed.exchange(7, "again\n"), "again\n");
    echo.quit();
}

#[test]
fn a_stale_program_of_dpdks_driver_is_replaced() {
    needs_root!();
    let bed = Bed::new(1);
    let mut echo = Echo::start(&bed, &DPDK);
    echo.signal("TERM");
    assert!(echo.wait_end(), "{}", echo.log());
    assert!(!bed.link().contains("xdp"), "{}", bed.link());

    let mut echo = Echo::start(&bed, &DPDK);
    echo.signal("KILL");
    assert!(!echo.wait_end());
    assert!(bed.link().contains("sluice_steer"), "a killed process cannot clean up");
    assert_eq!(bed.ping(2), (2, 0), "without sockets the program passes everything");

    let echo = Echo::start(&bed, &DPDK);
    assert!(echo.log().contains("took off a steering program"), "{}", echo.log());
    assert_eq!(bed.exchange(7, "again\n"), "again\n");
    echo.quit();
    assert!(!bed.link().contains("xdp"), "{}", bed.link());
}

#[test]
fn an_interface_in_use_is_left_alone() {
    needs_root!();
    in_use(DEVICE);
}

#[test]
fn an_interface_in_use_is_left_alone_by_dpdk() {
    needs_root!();
    in_use(DPDK);
}

fn in_use(device: [&str; 2]) {
    let bed = Bed::new(1);
    let first = Echo::start(&bed, &device);
    let mut second = Echo::launch(&bed, &device);
    assert!(!second.wait_end(), "the interface is taken");
    let said = format!("interface port0 is in use by another director (process {})", first.pid());
    assert!(second.log().contains(&said), "{}", second.log());
    assert_eq!(bed.exchange(7, "still here\n"), "still here\n");
    first.quit();
}

#[test]
fn somebody_elses_program_is_left_alone() {
    needs_root!();
    foreign(DEVICE);
}

#[test]
fn somebody_elses_program_is_left_alone_by_dpdk() {
    needs_root!();
    foreign(DPDK);
}

fn foreign(device: [&str; 2]) {
    let bed = Bed::new(1);
    let folder = std::env::temp_dir().join(format!("sluice-foreign-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, object) = (folder.join("pass.c"), folder.join("pass.o"));
    let text = "__attribute__((section(\"xdp\"), used)) int theirs(void *c) { return 2; }\n";
    std::fs::write(&source, text).unwrap();
    let clang = ["-target", "bpf", "-O2", "-c"];
    succeed(Command::new("clang").args(clang).arg(&source).arg("-o").arg(&object));
    let object = object.to_str().unwrap().to_owned();
    ip(&["-n", &bed.here, "link", "set", "port0", "xdp", "obj", &object, "sec", "xdp"]);
    std::fs::remove_dir_all(&folder).unwrap();

    let mut echo = Echo::launch(&bed, &device);
    assert!(!echo.wait_end(), "the interface is taken");
    assert!(echo.log().contains("already carries the XDP program"), "{}", echo.log());
    assert!(bed.link().contains("xdp"), "theirs stays: {}", bed.link());
}

#[test]
fn every_queue_is_served_and_all_must_be() {
    needs_root!();
    every_queue(DEVICE);
}

#[test]
fn every_queue_is_served_and_all_must_be_by_dpdk() {
    needs_root!();
    every_queue(DPDK);
}

fn every_queue(device: [&str; 2]) {
    let bed = Bed::new(2);
    let mut one = Echo::launch(&bed, &device);
    assert!(!one.wait_end(), "one of two queues would be lost");
    assert!(one.log().contains("receives on 2 queues, 1 are configured"), "{}", one.log());

    let mut echo = Echo::launch(&bed, &[&device[..], &["--queues", "2"]].concat());
    let ready = echo.wait_for("ready");
    assert!(ready.contains("wake_fds=2"), "{ready}");
    // The peer spreads flows over its queues by their hash; which flow comes where is its affair.
    for n in 0..32 {
        assert_eq!(bed.exchange(7, &format!("flow {n}\n")), format!("flow {n}\n"));
    }
    assert_eq!(echo.count("rx"), 32);
    assert!(echo.count("queues_used") == 2, "both queues had frames");
    let free = echo.count("free_frames");
    bed.cut_wire();
    echo.wait_for("gone");
    wait_until("all buffers are back", || echo.count("free_frames") == 16_384);
    bed.lay_wire();
    echo.wait_for("ready");
    assert_eq!(bed.exchange(7, "returned\n"), "returned\n");
    assert!(echo.count("free_frames") >= free);
    echo.quit();
    assert!(!bed.link().contains("xdp"), "{}", bed.link());
}
