//! Series of networks, and of what is in them.

use crate::{CONFIG, page, sample, sample_of};
use sluice_api::Exposition;

/// What is in an isolated network says so; what is not has the labels that it always had.
#[test]
fn networks_are_told_where_there_is_any() {
    let said = page(sample(), Exposition::Text);
    for line in [
        "sluice_network_sessions{network=\"default\"} 30",
        "sluice_network_sessions{network=\"blue\"} 12",
        "sluice_network_session_capacity{network=\"blue\"} 1000",
        "sluice_network_packets_dropped_total{network=\"default\",reason=\"too_big\"} 15",
        "sluice_network_packets_dropped_total{network=\"blue\",reason=\"too_big\"} 2",
    ] {
        assert!(said.lines().any(|found| found == line), "no {line} in\n{said}");
    }
    let moved = CONFIG
        .replace("name = \"lan\"", "name = \"lan\"\nnetwork = \"blue\"")
        .replace("name = \"web\"", "name = \"web\"\nnetwork = \"blue\"")
        .replace("name = \"outbound\"", "name = \"outbound\"\nnetwork = \"blue\"");
    let said = page(sample_of(&moved), Exposition::Text);
    for line in [
        "sluice_service_incoming_packets_total{service=\"web\",network=\"blue\"} 105",
        "sluice_service_real_servers{service=\"web\",network=\"blue\",state=\"up\"} 1",
        "sluice_real_up{service=\"web\",real=\"192.0.2.12:80\",network=\"blue\"} 1",
    ] {
        assert!(said.lines().any(|found| found == line), "no {line} in\n{said}");
    }
    assert!(said.contains("scheduler=\"rr\",network=\"blue\"} 1\n"), "{said}");
    assert!(said.contains("sluice_snat_sessions{rule=\"outbound\",network=\"blue\"} "), "{said}");
    let single = CONFIG.split("[[network]]").next().unwrap_or_default().to_owned()
        + "[[pool]]"
        + CONFIG.split("[[pool]]").nth(1).unwrap_or_default();
    assert!(!page(sample_of(&single), Exposition::Text).contains("network"));
}
