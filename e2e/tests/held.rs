//! Connections of both families that last over an event: each must go on, and no kernel at either
//! end may have seen a reset.
//!
//! They are to be held until the event is over. A connection that closes while the way stalls makes
//! kernels send resets by themselves: where the client's last acknowledgement takes 300 ms, the
//! server sends its FIN once more, the client acknowledges that as well, and the server no longer
//! knows the connection (16 of 16 closes, without a director).

use std::time::Duration;

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::family::endpoint;
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::{LINES_PORT, make_blob_of};
use sluice_e2e::{LabError, Netns, Running};

use crate::fixture::SOON;

/// Some seconds of what one connection may take.
const BLOB: u64 = 100_000_000;

/// The connections.
pub struct Held {
    running: Vec<Running>,
    downloads: Vec<std::thread::JoinHandle<Result<String, LabError>>>,
    /// Of what each real server has.
    sums: Vec<String>,
    ends: Vec<Netns>,
    resets: Vec<(u64, u64)>,
}

impl Held {
    /// Opens `count` to each virtual address that say a line now and then for so many seconds, and
    /// a download from each.
    pub fn begin(
        client: &Netns,
        reals: &[Netns],
        vips: &[&str],
        (count, seconds): (usize, u32),
    ) -> Result<Self, LabError> {
        let sums = reals.iter().map(|real| make_blob_of(real, BLOB));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let ends: Vec<_> = std::iter::once(client).chain(reals).cloned().collect();
        let resets = resets(&ends)?;
        let (peer, seconds) = (program("sluice-peer")?, seconds.to_string());
        let (mut running, mut downloads) = (Vec::new(), Vec::new());
        for vip in vips {
            for _ in 0..count {
                let args = ["hold", &endpoint(vip, LINES_PORT), &seconds];
                let mut held = client.start("hold", &peer.to_string_lossy(), &args)?;
                held.wait_for_words("line 1", SOON)?;
                running.push(held);
            }
            let (client, url) = (client.clone(), format!("http://{}/blob", endpoint(vip, 80)));
            downloads.push(std::thread::spawn(move || download_sha256(&client, &url, "8M")));
        }
        Ok(Self { running, downloads, sums, ends, resets })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        (self.running.len() + self.downloads.len()) as u64
    }

    /// Waits until all have come to their ends.
    pub fn end(mut self) -> Result<(), LabError> {
        for one in &mut self.running {
            let ended = one.wait(Duration::from_secs(60))?;
            expect(ended.success(), || format!("a connection broke: {}", one.log_tail(3)))?;
        }
        for download in self.downloads {
            let got =
                download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
            expect(self.sums.contains(&got), || format!("{got} is none of {:?}", self.sums))?;
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

    /// Waits until all have come to their ends, and gives the number of those that broke.
    pub fn broken(mut self) -> Result<usize, LabError> {
        let mut broken = 0;
        for one in &mut self.running {
            broken += usize::from(!one.wait(Duration::from_secs(60))?.success());
        }
        let download = |it: std::thread::JoinHandle<Result<String, LabError>>| {
            it.join().is_ok_and(|got| got.is_ok_and(|sum| self.sums.contains(&sum)))
        };
        Ok(broken + self.downloads.into_iter().map(download).filter(|it| !it).count())
    }
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
