//! The real programs on the real servers, and the little ones of our own (`sluice-peer`).

use std::path::PathBuf;
use std::time::Duration;

use crate::director::program;
use crate::error::LabError;
use crate::lab::Netns;
use crate::process::{Running, wait_until};

/// UDP echo (RFC 862).
pub const ECHO_PORT: u16 = 7;
/// A TCP service that greets and echoes lines, for sessions that stay open.
pub const LINES_PORT: u16 = 2000;
/// The port where nginx and HAProxy want the PROXY protocol and answer with the client they are
/// told of.
pub const TOLD_PORT: u16 = 8081;
/// Where [`start_sink`] listens.
pub const SINK_PORT: u16 = 8083;
/// Bytes of the file that every nginx offers as `/blob`.
pub const BLOB_BYTES: u64 = 50 * 1024 * 1024;

/// Where nginx says what it has counted.
const COUNTED: &str = "/counted";
const START_LIMIT: Duration = Duration::from_secs(15);

/// nginx on port 80: answers "Real Server 0N", and `/blob` with the lab's blob when there is one.
///
/// # Errors
/// When it does not answer within 15 s.
pub fn start_nginx(real: &Netns, number: usize) -> Result<Running, LabError> {
    let name = format!("nginx{number}");
    let dir = real.dir();
    let config = dir.join(format!("{name}.conf"));
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {pid};\nerror_log stderr warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000;\n  sendfile on;\n\
         \x20 client_body_temp_path {temp}-body;\n  proxy_temp_path {temp}-proxy;\n\
         \x20 fastcgi_temp_path {temp}-fcgi;\n  uwsgi_temp_path {temp}-uwsgi;\n\
         \x20 scgi_temp_path {temp}-scgi;\n\
         \x20 server {{\n    listen 80 backlog=4096 reuseport;\n\
         \x20   listen [::]:80 backlog=4096 reuseport ipv6only=on;\n\
         \x20   location / {{\n      default_type text/plain;\n\
         \x20     return 200 \"Real Server {number:02}\\n\";\n    }}\n\
         \x20   location = {COUNTED} {{ stub_status; }}\n\
         \x20   location = /blob {{ root {dir}; }}\n  }}\n\
         \x20 server {{\n    listen {TOLD_PORT} proxy_protocol;\n\
         \x20   listen [::]:{TOLD_PORT} proxy_protocol ipv6only=on;\n\
         \x20   location / {{\n      default_type text/plain;\n\
         \x20     return 200 \"$proxy_protocol_addr $proxy_protocol_port\";\n    }}\n\
         \x20   location = /blob {{ root {dir}; }}\n  }}\n}}\n",
        pid = dir.join(format!("{name}.pid")).display(),
        temp = dir.join(&name).display(),
        dir = dir.display(),
    );
    std::fs::write(&config, text).map_err(LabError::file(config.display().to_string()))?;
    let mut nginx = real.start(
        &name,
        "nginx",
        &["-e", "stderr", "-p", &dir.to_string_lossy(), "-c", &config.to_string_lossy()],
    )?;
    wait_until(&format!("{name} to answer"), START_LIMIT, || {
        if nginx.ended()?.is_some() {
            return Err(LabError::Wrong(format!("{name} ended: {}", nginx.log_tail(10))));
        }
        let answer = real.run("curl", &["-s", "--max-time", "2", "http://127.0.0.1/"])?;
        Ok(answer.status.success().then_some(()))
    })?;
    Ok(nginx)
}

/// What an nginx has counted since its start, on all its addresses and ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Connections accepted.
    pub accepts: u64,
    /// Requests answered.
    pub requests: u64,
}

/// Asks the nginx of a real server what it has counted, this very request included.
///
/// # Errors
/// When it does not say.
pub fn nginx_counted(real: &Netns) -> Result<Counted, LabError> {
    let url = format!("http://127.0.0.1{COUNTED}");
    let text = crate::load::curl(real, &url)?;
    // "server accepts handled requests" and below it the numbers.
    let numbers: Vec<u64> = text
        .lines()
        .skip_while(|line| !line.contains("accepts"))
        .nth(1)
        .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default();
    match numbers[..] {
        [accepts, _, requests] => Ok(Counted { accepts, requests }),
        _ => Err(LabError::Unreadable { what: "nginx's counts".to_owned(), text }),
    }
}

/// Makes the lab's blob of [`BLOB_BYTES`] random bytes and returns its SHA-256.
///
/// # Errors
/// When it cannot be written or read.
pub fn make_blob(space: &Netns) -> Result<String, LabError> {
    make_blob_of(space, BLOB_BYTES)
}

/// As [`make_blob`], with another size.
///
/// # Errors
/// When it cannot be written or read.
pub fn make_blob_of(space: &Netns, bytes: u64) -> Result<String, LabError> {
    let path: PathBuf = space.dir().join("blob");
    let size = bytes.to_string();
    let script = "head -c \"$1\" /dev/urandom > \"$2\" && sha256sum < \"$2\"";
    let ran = space.run("sh", &["-c", script, "sh", &size, &path.to_string_lossy()])?.ok()?;
    Ok(ran.stdout.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Debian's own Python, the one that has scapy.
pub const PYTHON: &str = "/usr/bin/python3";

/// A script of `e2e/peers`.
pub fn script(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers").join(name).display().to_string()
}

/// Starts a script of `e2e/peers` and waits until it says that it is listening.
///
/// # Errors
/// When it ends first, or takes longer than 15 s.
pub fn start_script(
    space: &Netns,
    name: &str,
    file: &str,
    args: &[&str],
) -> Result<Running, LabError> {
    let path = script(file);
    let mut all = vec![&*path];
    all.extend(args);
    let mut running = space.start(name, PYTHON, &all)?;
    running.wait_for_words("listening", START_LIMIT)?;
    Ok(running)
}

fn start_peer(space: &Netns, name: &str, args: &[&str]) -> Result<Running, LabError> {
    let peer = program("sluice-peer")?;
    let mut running = space.start(name, &peer.to_string_lossy(), args)?;
    running.wait_for_words("listening", START_LIMIT)?;
    Ok(running)
}

/// A UDP echo on port 7 that checks nothing and answers from the address it was asked at.
///
/// # Errors
/// When it does not come up.
pub fn start_echo(space: &Netns, name: &str) -> Result<Running, LabError> {
    start_peer(space, name, &["udp-echo", &ECHO_PORT.to_string()])
}

/// A TCP service that greets like ssh does and echoes lines.
///
/// # Errors
/// When it does not come up.
pub fn start_lines(space: &Netns, name: &str, port: u16) -> Result<Running, LabError> {
    start_peer(space, name, &["lines", &port.to_string()])
}

/// HTTP that answers a PUT with the SHA-256 of what it got.
///
/// # Errors
/// When it does not come up.
pub fn start_sink(space: &Netns, name: &str) -> Result<Running, LabError> {
    start_script(space, name, "sink.py", &[&SINK_PORT.to_string()])
}

/// An iperf3 server on its usual port.
///
/// # Errors
/// When it does not come up.
pub fn start_iperf3(space: &Netns, name: &str) -> Result<Running, LabError> {
    let mut running = space.start(name, "iperf3", &["-s", "--forceflush"])?;
    running.wait_for_words("Server listening", START_LIMIT)?;
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script's own folder comes first where it imports from: one that is called as a module of
    /// Python's breaks all others that need it.
    #[test]
    fn scripts_hide_no_module_of_pythons() {
        const LOOK: &str = "import pathlib, sys; \
            print(*(it.stem for it in pathlib.Path(sys.argv[1]).glob('*.py') \
            if it.stem in sys.stdlib_module_names))";
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
        let ran = std::process::Command::new(PYTHON).args(["-c", LOOK, peers]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "");
    }
}
