//! `sluice ipvsadm`, and this program under the names `ipvsadm`, `ipvsadm-save` and
//! `ipvsadm-restore`: what stock 1.31 does, and DPVS's additions, without a library preloaded.
//!
//! All that can be said and shown is `sluice-ipvsadm`'s; here are the director's socket, the names
//! of hosts and services, and the three streams. Nothing is read by clap: its rules are not popt's.

mod names;

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, StdoutLock, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use sluice_ipvs::call::{CallError, Caller};
use sluice_ipvs::{Answer, Reply, Request};
use sluice_ipvsadm::{Gone, Transport, World};

use names::Names;

/// What this program was called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// `ipvsadm`.
    Itself,
    /// `ipvsadm-save`: `ipvsadm -S`.
    Save,
    /// `ipvsadm-restore`: `ipvsadm -C`, then `ipvsadm -R` without comments.
    Restore,
}

impl Named {
    /// By the name that the program was called by.
    pub fn by(program: Option<&OsStr>) -> Option<Self> {
        match program.map(Path::new).and_then(Path::file_name)?.to_str()? {
            "ipvsadm" => Some(Self::Itself),
            "ipvsadm-save" => Some(Self::Save),
            "ipvsadm-restore" => Some(Self::Restore),
            _ => None,
        }
    }
}

/// Runs a command line; `name` is what messages call the program.
pub fn run(named: Named, name: &str, arguments: &[String], caller: Caller) -> ExitCode {
    let mut machine = Machine::new(caller);
    let code = match named {
        Named::Itself => sluice_ipvsadm::run(name, arguments, &mut machine),
        Named::Save => save(name, arguments, &mut machine),
        Named::Restore => restore(&mut machine),
    };
    machine.end(code)
}

/// The wrapper knows one option.
fn save(name: &str, arguments: &[String], machine: &mut Machine) -> u8 {
    let strange = |argument: &&String| argument.starts_with('-') && *argument != "-n";
    if arguments.iter().find(strange).is_some() {
        let name = Path::new(name).file_name().and_then(OsStr::to_str).unwrap_or(name);
        machine.err(&format!(
            "{name}: Script to save the IPVS table to stdout.\n   \
             With the -n option, prints out the table in numeric format.\n"
        ));
        return 1;
    }
    let numeric = arguments.iter().any(|argument| argument == "-n");
    let words = ["-S", "-n"].iter().take(if numeric { 2 } else { 1 });
    let words: Vec<String> = words.map(|word| (*word).to_owned()).collect();
    sluice_ipvsadm::run("ipvsadm", &words, machine)
}

/// All is read before anything is cleared: what saves into the same pipe is done by then.
fn restore(machine: &mut Machine) -> u8 {
    let mut lines = Vec::new();
    while let Some(line) = machine.line() {
        lines.extend(Some(line).filter(|line| !line.starts_with('#')));
    }
    lines.reverse();
    machine.lines = Some(lines);
    sluice_ipvsadm::run("ipvsadm", &["-C".to_owned()], machine);
    sluice_ipvsadm::run("ipvsadm", &["-R".to_owned()], machine)
}

/// Standard input without the standard library's buffer, into which nobody can look.
struct Input;

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(stdin(), buffer) {
            // Closed: as empty.
            Err(Errno::BADF) => Ok(0),
            read => Ok(read?),
        }
    }
}

/// This machine.
struct Machine {
    caller: Caller,
    names: Names,
    input: BufReader<Input>,
    out: BufWriter<StdoutLock<'static>>,
    /// Whether somebody still reads standard output.
    read: bool,
    /// Lines that stand for standard input, the last one first.
    lines: Option<Vec<String>>,
}

impl Machine {
    fn new(caller: Caller) -> Self {
        let out = BufWriter::new(io::stdout().lock());
        let input = BufReader::new(Input);
        Self { caller, names: Names::default(), input, out, read: true, lines: None }
    }

    /// Keeps account of what became of something written.
    fn wrote(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome
            && std::mem::replace(&mut self.read, false)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.err(&format!("sluice: standard output: {error}\n"));
        }
    }

    fn end(mut self, code: u8) -> ExitCode {
        let flushed = self.out.flush();
        self.wrote(flushed);
        ExitCode::from(code)
    }
}

impl World for Machine {
    fn ask(&mut self, request: &Request) -> Result<Answer, Gone> {
        self.caller.ask(request).map_err(|error| {
            let denied = matches!(error, CallError::Denied { .. });
            let why = if denied { Gone::DENIED } else { Gone::ABSENT };
            Gone { why, advice: error.to_string() }
        })
    }

    fn ask_all(&mut self, requests: &[Request]) -> Result<Vec<Answer>, Gone> {
        if let [request] = requests {
            return Ok(vec![self.ask(request)?]);
        }
        match self.ask(&Request::Many(requests.to_vec()))? {
            Answer::Ok(Reply::Many(answers)) if answers.len() == requests.len() => Ok(answers),
            refused @ Answer::Refused { .. } => Ok(vec![refused; requests.len()]),
            Answer::Ok(_) => Err(Gone { why: Gone::ABSENT, advice: Gone::STRANGE.to_owned() }),
        }
    }

    fn host_address(&mut self, name: &str) -> Option<Ipv4Addr> {
        names::address(name)
    }

    fn host_name(&mut self, address: Ipv4Addr) -> Option<String> {
        self.names.host(address)
    }

    fn service_port(&mut self, name: &str, transport: Transport) -> Option<u16> {
        self.names.port(name, transport.name())
    }

    fn service_name(&mut self, port: u16, transport: Transport) -> Option<String> {
        self.names.service(port, transport.name())
    }

    fn out(&mut self, text: &str) {
        if self.read {
            let outcome = self.out.write_all(text.as_bytes());
            self.wrote(outcome);
        }
    }

    fn err(&mut self, text: &str) {
        // On a terminal both streams are one to the eye: what came first stands first.
        if self.read && io::stdout().is_terminal() {
            let flushed = self.out.flush();
            self.wrote(flushed);
        }
        // There is nobody to tell that nobody can be told.
        drop(io::stderr().write_all(text.as_bytes()));
    }

    fn line(&mut self) -> Option<String> {
        if let Some(lines) = &mut self.lines {
            return lines.pop();
        }
        let mut line = Vec::new();
        match self.input.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(String::from_utf8_lossy(&line).into_owned()),
            Err(error) => {
                self.err(&format!("sluice: standard input: {error}\n"));
                None
            }
        }
    }

    /// More may have been read than was asked for.
    fn has_more(&mut self) -> bool {
        if self.lines.is_some() || self.input.buffer().contains(&b'\n') {
            return true;
        }
        let mut fds = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // What cannot be polled is read at once.
        poll(&mut fds, Some(&now)) != Ok(0)
    }
}
