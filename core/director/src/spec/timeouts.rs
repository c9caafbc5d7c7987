//! How long sessions may be silent.

/// Session timeouts in seconds, counted from the session's last packet. The defaults are IPVS's
/// where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// SYN seen, handshake not complete.
    pub tcp_syn_recv_s: u32,
    /// Handshake complete.
    pub tcp_established_s: u32,
    /// The client closed its side first.
    pub tcp_fin_wait_s: u32,
    /// The real server closed its side first.
    pub tcp_close_wait_s: u32,
    /// Both sides closed, the last acknowledgement is missing.
    pub tcp_last_ack_s: u32,
    /// After the four-way close. 0 deletes the session with the last acknowledgement.
    pub tcp_time_wait_s: u32,
    /// After a reset. 0 deletes the session with the reset.
    pub tcp_close_s: u32,
    /// UDP.
    pub udp_s: u32,
    /// UDP of a service that schedules each packet by itself: how long an answer is waited for.
    pub one_packet_s: u32,
    /// SCTP.
    pub sctp_s: u32,
    /// ICMP echo through SNAT.
    pub icmp_s: u32,
    /// Any other protocol.
    pub other_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_recv_s: 60,
            tcp_established_s: 900,
            tcp_fin_wait_s: 120,
            tcp_close_wait_s: 60,
            tcp_last_ack_s: 30,
            tcp_time_wait_s: 0,
            tcp_close_s: 0,
            udp_s: 300,
            one_packet_s: 10,
            sctp_s: 900,
            icmp_s: 30,
            other_s: 300,
        }
    }
}
