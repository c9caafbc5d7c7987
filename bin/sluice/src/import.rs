//! `sluice import`: reads files and names for `sluice-import`, and shows what came of them.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sluice_import::{Files, Imported, Names, Source};

use crate::cli::import::{Import, Way};
use crate::output::{self, Output};
use crate::show::Shown;

/// Something has no equivalent.
const INCOMPLETE: u8 = 3;
/// The longest file that is read, in bytes.
const LONGEST: u64 = 16 << 20;

/// # Errors
/// When a file cannot be read or written.
pub fn run(command: Import) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Import::Keepalived { config_id, way } => {
            let source = source(&way.file)?;
            let id = config_id.unwrap_or_else(host);
            let imported = sluice_import::keepalived(&source, &id, &mut Disk);
            let title = format!("from {} by `sluice import keepalived`", source.name);
            show(&imported, &title, &way)
        }
        Import::IpvsadmSave { resolve, way } => {
            let source = source(&way.file)?;
            let mut names = System { resolve, known: HashMap::new() };
            let imported = sluice_import::ipvsadm_save(&source, &mut names);
            let title = format!("from {} by `sluice import ipvsadm-save`", source.name);
            show(&imported, &title, &way)
        }
    }
}

fn show(imported: &Imported, title: &str, way: &Way) -> Result<ExitCode, Box<dyn Error>> {
    let text = match way.json {
        true => serde_json::to_string_pretty(&imported.json())? + "\n",
        false => imported.toml(title),
    };
    match &way.output {
        None => Output::write(&Shown::new(text))?,
        Some(file) => {
            fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    if !way.json || way.output.is_some() {
        imported.notes().iter().for_each(|note| output::remark(&note.to_string()));
    }
    Ok(if imported.has_lost() { ExitCode::from(INCOMPLETE) } else { ExitCode::SUCCESS })
}

fn source(file: &Path) -> Result<Source, Box<dyn Error>> {
    let name = file.display().to_string();
    if name == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(LONGEST).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        return Ok(Source { name: "stdin".to_owned(), text });
    }
    let text = read(file).map_err(|error| format!("{name}: {error}"))?;
    Ok(Source { name, text })
}

/// A file's text; bytes that are no text become signs that say so.
fn read(file: &Path) -> Result<String, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > LONGEST {
        return Err(format!("it has {size} bytes, more than {LONGEST}"));
    }
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first part of this host's name.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

/// Files that others include.
struct Disk;

impl Files for Disk {
    fn include(&mut self, pattern: &str, from: &str) -> Result<Vec<Source>, String> {
        let folder = Path::new(from).parent().unwrap_or(Path::new("."));
        let whole = folder.join(pattern);
        let whole = whole.to_str().ok_or("its name is no text")?;
        let paths = glob::glob(whole).map_err(|wrong| wrong.to_string())?;
        let mut files: Vec<PathBuf> =
            paths.collect::<Result<_, _>>().map_err(|wrong| wrong.to_string())?;
        files.sort();
        // A pattern may name nothing, a name may not.
        if files.is_empty() && !pattern.contains(['*', '?', '[']) {
            return Err("it is not there".to_owned());
        }
        let source =
            |file: &PathBuf| Ok(Source { name: file.display().to_string(), text: read(file)? });
        files.iter().map(source).collect()
    }
}

/// Names by this system's resolver and `/etc/services`.
struct System {
    resolve: bool,
    /// What was found of names: a resolver that does not answer takes seconds each time.
    known: HashMap<String, Option<IpAddr>>,
}

impl Names for System {
    fn resolves(&self) -> bool {
        self.resolve
    }

    fn host(&mut self, name: &str) -> Option<IpAddr> {
        let ask = || (name, 0).to_socket_addrs().ok()?.next().map(|address| address.ip());
        *self.known.entry(name.to_owned()).or_insert_with(ask)
    }

    fn port(&mut self, name: &str, protocol: &str) -> Option<u16> {
        let text = fs::read_to_string("/etc/services").ok()?;
        text.lines().find_map(|line| {
            let line = line.split('#').next()?;
            let mut words = line.split_whitespace();
            let official = words.next()?;
            let (port, of) = words.next()?.split_once('/')?;
            let named = official == name || words.any(|alias| alias == name);
            (named && of == protocol).then(|| port.parse().ok())?
        })
    }
}
