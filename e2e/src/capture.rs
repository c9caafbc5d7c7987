//! Captures and their independent judge: tcpdump writes, tshark verifies every checksum.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::LabError;
use crate::lab::Netns;
use crate::process::{self, Running, wait_until};

const LIMIT: Duration = Duration::from_secs(15);
const QUIET: Duration = Duration::from_millis(300);
/// The most bytes of a frame with an MTU of 1500 and headers of tunnels, and of a super-packet.
const ORDINARY: &str = "2048";
const LONGEST: &str = "65700";
/// Frames of which a capture does not have all bytes.
const CUT: &str = "frame.cap_len < frame.len";
/// tshark's options that make it verify what it otherwise believes. It does not follow sequence
/// numbers, which takes most of its time and no filter here asks for.
const VERIFY: [&str; 8] = [
    "-o",
    "tcp.analyze_sequence_numbers:FALSE",
    "-o",
    "ip.check_checksum:TRUE",
    "-o",
    "tcp.check_checksum:TRUE",
    "-o",
    "udp.check_checksum:TRUE",
];
/// Frames with a wrong checksum. One of TCP that is 0xffff where RFC 1624 would write 0x0000 adds
/// up all the same: Linux writes it into one of 65,536 segments that it sums itself
/// (`skb_checksum_help` knows no protocol, and for UDP zero means none), and tshark condemns it by
/// that name.
pub const BAD: &str = "ip.checksum.status==0 || udp.checksum.status==0 \
                   || (tcp.checksum.status==0 && !tcp.checksum.ffff)";

/// A capture that runs.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Running,
    file: PathBuf,
}

/// tshark's verdicts on a capture; counts of frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Frames with a wrong IPv4, TCP or UDP checksum.
    pub bad: u64,
    /// The first of those: number, addresses, protocol, what tshark says of it, and its bytes.
    pub worst: Option<String>,
    /// TCP segments whose checksum is right.
    pub good_tcp: u64,
    /// UDP datagrams whose checksum is right.
    pub good_udp: u64,
    /// UDP datagrams over IPv4 that carry no checksum (RFC 768: all zero).
    pub zero_udp: u64,
}

impl Capture {
    /// Captures IPv4 and IPv6 frames of an MTU of 1500 on a device until stopped; returns once it
    /// really does. Longer ones are cut, and nothing is counted in a capture that has any.
    ///
    /// # Errors
    /// When tcpdump does not start.
    pub fn start(space: &Netns, device: &str, name: &str) -> Result<Self, LabError> {
        Self::begin(space, device, name, [ORDINARY, "16384"])
    }

    /// As [`Self::start`], with frames of any length: jumbo frames and super-packets. The kernel
    /// takes 0.2 s to make the buffer ready.
    ///
    /// # Errors
    /// When tcpdump does not start.
    pub fn start_of_long(space: &Netns, device: &str, name: &str) -> Result<Self, LabError> {
        Self::begin(space, device, name, [LONGEST, "262144"])
    }

    /// Captures at most so many bytes of each frame, in a buffer of so many KiB. Each frame takes a
    /// place as large as the longest, so there are some thousand.
    fn begin(
        space: &Netns,
        device: &str,
        name: &str,
        [bytes, buffer]: [&str; 2],
    ) -> Result<Self, LabError> {
        let file = space.dir().join(format!("{name}.pcap"));
        let path = file.to_string_lossy().into_owned();
        // -Z root: tcpdump otherwise becomes a user who may not write into the lab's directory.
        let args = [
            "-i",
            device,
            "--immediate-mode",
            "-s",
            bytes,
            "-U",
            "-n",
            "-B",
            buffer,
            "-Z",
            "root",
            "-w",
            &path,
            "ip or ip6",
        ];
        let mut tcpdump = space.start(&format!("tcpdump-{name}"), "tcpdump", &args)?;
        tcpdump.wait_for_words("listening on", LIMIT)?;
        Ok(Self { tcpdump, file })
    }

    /// Ends the capture, once the file no longer grows (tcpdump leaves unread what it has not read
    /// when it is told to end), and returns the file.
    ///
    /// # Errors
    /// When tcpdump does not end, or the kernel dropped frames it should have seen.
    pub fn stop(mut self) -> Result<PathBuf, LabError> {
        self.wait_for_quiet()?;
        self.tcpdump.signal(Signal::INT);
        self.tcpdump.wait(LIMIT)?;
        let log = self.tcpdump.log();
        if log.contains("\n0 packets dropped by kernel") {
            return Ok(self.file);
        }
        Err(LabError::Wrong(format!("the capture is not whole: {log}")))
    }

    fn wait_for_quiet(&self) -> Result<(), LabError> {
        let mut seen = (0, Instant::now());
        wait_until("the capture to be quiet", LIMIT, || {
            let size = std::fs::metadata(&self.file).map_or(0, |file| file.len());
            if size != seen.0 {
                seen = (size, Instant::now());
            }
            Ok((seen.1.elapsed() > QUIET).then_some(()))
        })
    }
}

/// Lets tshark verify a capture.
///
/// # Errors
/// When tshark fails.
pub fn judge(file: &Path) -> Result<Verdict, LabError> {
    judge_and(file, []).map(|(verdict, [])| verdict)
}

/// As [`judge`], and how many frames match each of some display filters, as [`counts`] says.
///
/// # Errors
/// When tshark fails.
pub fn judge_and<const N: usize>(
    file: &Path,
    filters: [&str; N],
) -> Result<(Verdict, [u64; N]), LabError> {
    let good_tcp = "tcp.checksum.status==1 || tcp.checksum.ffff";
    let own = [BAD, good_tcp, "udp.checksum.status==1", "udp.checksum==0"];
    let found = numbers(file, &[], &[&own[..], &filters].concat())?;
    let (own, more) = found.split_at(own.len());
    let (&[bad, good_tcp, good_udp, zero_udp], Ok(more)) = (own, more.try_into()) else {
        return Err(LabError::Wrong(format!("tshark counted {found:?}")));
    };
    let worst = if bad == 0 { None } else { Some(first(file, BAD)?) };
    Ok((Verdict { bad, worst, good_tcp, good_udp, zero_udp }, more))
}

/// How many frames of a capture match each display filter. tshark reads it once: it takes half a
/// second to begin. A filter here has no comma.
///
/// # Errors
/// When tshark fails.
pub fn counts<const N: usize>(file: &Path, filters: [&str; N]) -> Result<[u64; N], LabError> {
    counts_with(file, &[], filters)
}

/// As [`counts`], with further options of tshark.
///
/// # Errors
/// When tshark fails.
pub fn counts_with<const N: usize>(
    file: &Path,
    more: &[&str],
    filters: [&str; N],
) -> Result<[u64; N], LabError> {
    let found = numbers(file, more, &filters)?;
    let wrong = |found| LabError::Wrong(format!("tshark counted {found:?}"));
    found.try_into().map_err(wrong)
}

/// How many frames of a capture match a display filter.
///
/// # Errors
/// When tshark fails.
pub fn count(file: &Path, filter: &str) -> Result<u64, LabError> {
    counts(file, [filter]).map(|[count]| count)
}

/// How many frames match each filter: as many numbers as there are filters.
fn numbers(file: &Path, more: &[&str], filters: &[&str]) -> Result<Vec<u64>, LabError> {
    let mut command = Command::new("timeout");
    command.args(["120", "tshark", "-n", "-q", "-r"]).arg(file).args(VERIFY).args(more);
    command.args(["-z", &format!("io,stat,0,{CUT},{}", filters.join(","))]);
    let shown = process::run(&mut command)?.ok()?.stdout;
    // One row, for all of the time: `| 0.000 <> 0.920 |`, then frames and bytes of each filter. A
    // capture without a frame has none.
    let Some(row) = shown.lines().find(|line| line.contains(" <> ")) else {
        return Ok(vec![0; filters.len()]);
    };
    let frames = row.split('|').skip(2).step_by(2).map(|field| field.trim().parse().ok());
    let frames: Option<Vec<u64>> = frames.take(1 + filters.len()).collect();
    let what = || "tshark's statistics".to_owned();
    let mut frames = frames.ok_or_else(|| LabError::Unreadable { what: what(), text: shown })?;
    match frames.first() {
        Some(0) => Ok(frames.split_off(1)),
        cut => Err(LabError::Wrong(format!("{}: frames that were cut: {cut:?}", file.display()))),
    }
}

/// The first frame of a capture that matches a display filter, in words and in bytes.
fn first(file: &Path, filter: &str) -> Result<String, LabError> {
    let mut command = Command::new("timeout");
    command.args(["120", "tshark", "-n", "-r"]).arg(file).args(VERIFY);
    command.args(["-Y", filter, "-P", "-x"]);
    let shown = process::run(&mut command)?.ok()?.stdout;
    let mut parts = shown.split("\n\n");
    Ok(parts.by_ref().take(2).collect::<Vec<_>>().join("\n"))
}
