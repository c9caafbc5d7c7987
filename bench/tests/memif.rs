//! `sluice-bench memif`, as a process of its own: DPDK's environment starts once in a process.

use std::process::Command;

/// Runs it, and gives what it says.
fn run(more: &[&str]) -> String {
    let args = ["memif", "--sessions", "700", "--rounds", "12", "--frames", "100"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-bench"));
    let ran = command.args(args).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    String::from_utf8(ran.stdout).unwrap()
}

/// The whole of it, which fails when a frame is lost or comes out wrong.
#[test]
fn frames_come_out_plain_and_in_tunnels() {
    let text = run(&["--sizes", "64,1500", "--copy", "cpu,dma", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "{json}");
    for row in rows {
        assert!(row["gbit_per_s"].as_f64() > Some(0.0), "{row}");
        let isolated = row["network"] == "vxlan";
        // Both copies of each frame, if it is long enough.
        let offloads = row["copy"] == "dma" && row["size"] == 1500;
        let copies = row["dma_copies_per_packet"].as_f64().unwrap();
        assert_eq!(copies > 1.0, offloads, "{row}");
        assert_eq!(row["isolation_costs"].is_number(), isolated, "{row}");
    }
}

#[test]
fn the_table_says_what_isolation_costs() {
    let text = run(&["--sizes", "64"]);
    assert!(text.contains("isolation costs"), "{text}");
}
