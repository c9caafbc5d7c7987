//! Connections of both families that last over an event: each must go on, and no kernel at either
//! end may have seen a reset.
//!
//! They are held until the event is over: until [`Held::end`] or one of its like. A connection that
//! closes while the way stalls makes kernels send resets by themselves: where the client's last
//! acknowledgement takes 300 ms, the server sends its FIN once more, the client acknowledges that
//! as well, and the server no longer knows the connection (16 of 16 closes, without a director).
//! So does one that gives up: where a failover takes longer than the second that `curl` asks for,
//! the client's kernel resets what is answered later (`tcp_send_reset` says NO_SOCKET). Only resets
//! that a kernel has seen end a connection.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::family::endpoint;
use sluice_e2e::web::{LINES_PORT, make_blob_of};
use sluice_e2e::{LabError, Netns, Running};

use crate::fixture::SOON;

/// How long the rest of all may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What a download has, and how fast it goes while it is held: half a minute.
const BLOB: u64 = 64_000_000;
const BYTES_PER_S: &str = "2000000";
/// The most that an event may take.
const SECONDS: &str = "120";
/// Gets a page slowly until it is over, and sums it. What is asked for again is not whole then, but
/// where nothing had come.
const DOWNLOAD: &str = "set -o pipefail; \
    curl -sS --fail --max-time 150 --retry 9 --retry-delay 1 --retry-all-errors \"$1\" | \
    \"$2\" pace \"$3\" \"$4\" | sha256sum";

/// The connections.
pub struct Held {
    lines: Vec<Running>,
    downloads: Vec<Running>,
    /// Of what each real server has.
    sums: Vec<String>,
    ends: Vec<Netns>,
    resets: Vec<(u64, u64)>,
    /// Who finds this file need hold its connection no longer.
    over: PathBuf,
}

impl Held {
    /// Opens `count` to each virtual address that say a line now and then, and a download from
    /// each.
    pub fn begin(
        client: &Netns,
        reals: &[Netns],
        vips: &[&str],
        count: usize,
    ) -> Result<Self, LabError> {
        let sums = reals.iter().map(|real| make_blob_of(real, BLOB));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let ends: Vec<_> = std::iter::once(client).chain(reals).cloned().collect();
        let resets = resets(&ends)?;
        let over = client.dir().join("held-long-enough");
        // An earlier event's.
        let _ = std::fs::remove_file(&over);
        let (peer, file) =
            (program("sluice-peer")?.display().to_string(), over.display().to_string());
        let (mut lines, mut downloads) = (Vec::new(), Vec::new());
        for vip in vips {
            for _ in 0..count {
                let args = ["hold", &endpoint(vip, LINES_PORT), SECONDS, &file];
                // Each has a log of its own.
                let mut held = client.start(&format!("hold{}", lines.len()), &peer, &args)?;
                held.wait_for_words("line 1", SOON)?;
                lines.push(held);
            }
            let url = format!("http://{}/blob", endpoint(vip, 80));
            let args = ["-c", DOWNLOAD, "bash", &url, &peer, BYTES_PER_S, &file];
            downloads.push(client.start(&format!("download{}", downloads.len()), "bash", &args)?);
        }
        Ok(Self { lines, downloads, sums, ends, resets, over })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        (self.lines.len() + self.downloads.len()) as u64
    }

    /// Ends them: each must come to its end.
    pub fn end(mut self) -> Result<(), LabError> {
        self.let_go()?;
        for one in &mut self.lines {
            let ended = one.wait(LIMIT)?;
            expect(ended.success(), || format!("a connection broke: {}", one.log_tail(3)))?;
        }
        for one in &mut self.downloads {
            let ended = one.wait(LIMIT)?;
            expect(ended.success() && is_whole(one, &self.sums), || {
                format!("{ended}: {} is none of {:?}", one.log_tail(3), self.sums)
            })?;
        }
        let now = resets(&self.ends)?;
        let seen = |of: &[(u64, u64)]| of.iter().map(|(seen, _)| *seen).collect::<Vec<_>>();
        // Kernels may send some by themselves: see above.
        let none = seen(&now) == seen(&self.resets);
        expect(none, || format!("resets seen, sent: {:?}, now {now:?}", self.resets))
    }

    /// As [`Self::broken`], and the resets that the kernels of both ends have seen since, by which
    /// a connection ended, and sent. Beside load some may be sent: see above.
    pub fn broken_and_resets(self) -> Result<(usize, [u64; 2]), LabError> {
        let (ends, before) = (self.ends.clone(), self.resets.clone());
        let broken = self.broken()?;
        let sum = |of: &[(u64, u64)]| {
            of.iter().fold([0, 0], |[seen, sent], one| [seen + one.0, sent + one.1])
        };
        let ([seen, sent], [seen_before, sent_before]) = (sum(&resets(&ends)?), sum(&before));
        Ok((broken, [seen - seen_before, sent - sent_before]))
    }

    /// Ends them, and gives the number of those that broke.
    pub fn broken(mut self) -> Result<usize, LabError> {
        self.let_go()?;
        // One that stands still has broken as well.
        let ended = |one: &mut Running| one.wait(LIMIT).is_ok_and(|status| status.success());
        let lines: usize = self.lines.iter_mut().map(|one| usize::from(!ended(one))).sum();
        let whole = |one: &mut Running| ended(one) && is_whole(one, &self.sums);
        let downloads: usize = self.downloads.iter_mut().map(|one| usize::from(!whole(one))).sum();
        Ok(lines + downloads)
    }

    /// They need be held no longer.
    fn let_go(&self) -> Result<(), LabError> {
        std::fs::write(&self.over, "").map_err(LabError::file("ending held connections"))
    }
}

/// Whether a download has brought what one of the real servers has.
fn is_whole(download: &Running, sums: &[String]) -> bool {
    download.log().split_whitespace().next().is_some_and(|got| sums.iter().any(|sum| sum == got))
}

/// Connections that these kernels have seen reset, and resets that they have sent.
fn resets(ends: &[Netns]) -> Result<Vec<(u64, u64)>, LabError> {
    let of = |space: &Netns| {
        let text = space.run("nstat", &["-as", "-j"])?.ok()?.stdout;
        let read: Value = serde_json::from_str(&text)
            .map_err(|_| LabError::Unreadable { what: "nstat".to_owned(), text })?;
        let of = |name: &str| read["kernel"][name].as_u64().unwrap_or(0);
        Ok((of("TcpEstabResets"), of("TcpOutRsts")))
    };
    ends.iter().map(of).collect()
}
