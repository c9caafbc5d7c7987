//! `sluice trace` and `sluice capture`: asking, and writing what comes as it comes.

mod blocks;

use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use sluice::filter;
use sluice_api::Client;
use sluice_api::model::{LookKind, LookRequest, TraceLine};

use crate::Socket;
use crate::cli::look::{Capture, Trace};
use crate::output;
use crate::show;
use blocks::Blocks;

/// Becomes true when the operator has had enough.
fn enough() -> io::Result<Arc<AtomicBool>> {
    let enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&enough))?;
        signal_hook::flag::register(signal, Arc::clone(&enough))?;
    }
    Ok(enough)
}

fn compiled(expression: Option<&str>) -> Result<Option<Vec<[u32; 4]>>, String> {
    expression.map(filter::compile).transpose()
}

/// Asks, and gives `write` what comes until there is no more or nobody wants more.
fn look(
    client: &Client,
    (kind, request): (LookKind, &LookRequest),
    mut write: impl FnMut(&[u8]) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let enough = enough()?;
    let mut failed = None;
    client.look(kind, request, &mut |bytes| {
        if !bytes.is_empty()
            && let Err(error) = write(bytes)
        {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        match enough.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    match failed {
        Some(error) if !is_closed(&*error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether nobody reads any more, which is no error.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// `sluice trace`.
pub fn trace(asked: Trace, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let (client, json) = (socket.client(&asked.asking), asked.asking.json);
    let filter = compiled(asked.packets.filter.as_deref())?;
    let request = asked.request(filter);
    let mut part = Vec::new();
    let mut packets = 0;
    look(&client, (LookKind::Trace, &request), |bytes| {
        part.extend_from_slice(bytes);
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = part.drain(..=end).collect();
            let line: TraceLine = serde_json::from_slice(&text)?;
            packets += u64::from(matches!(line, TraceLine::Packet(_)));
            let shown = if json { String::from_utf8(text)? } else { show::trace(&line) };
            let mut stdout = anstream::stdout().lock();
            stdout.write_all(shown.as_bytes())?;
            stdout.flush()?;
            if !json && let Some(remark) = show::trace_remark(&line, &request) {
                output::remark(&remark);
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `sluice capture`.
pub fn capture(asked: Capture, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let client = socket.client_at(asked.socket.as_deref());
    let filter = compiled(asked.packets.filter.as_deref())?;
    let path = asked.write.clone();
    let request = asked.request(filter);
    let mut blocks = Blocks::default();
    let mut file: Option<Box<dyn Write>> = None;
    look(&client, (LookKind::Capture, &request), |bytes| {
        // Made once the director looks, so that a refusal leaves an older file as it is.
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(open(&path)?),
        };
        file.write_all(&blocks.whole(bytes))?;
        file.flush()?;
        Ok(())
    })?;
    output::remark(&blocks.summary());
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<Box<dyn Write>, Box<dyn Error>> {
    if path != Path::new("-") {
        let file = File::create(path);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        return Ok(Box::new(file));
    }
    if io::stdout().is_terminal() {
        return Err("a capture is not for terminals: pipe it (-w - | tcpdump -n -r -), or name a \
                    file"
            .into());
    }
    Ok(Box::new(io::stdout().lock()))
}
