//! `sluice run-ipvsadm`, `sluice run-keepalived`: becomes the stock program with the library before
//! it that makes the director its IPVS.
//!
//! What cannot be found is said here and not left to the loader, which only warns: a program
//! without the library would ask the kernel for its own IPVS.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Socket;
use crate::cli::run::{KernelInterface, Run};

/// Names of the library, as installed and as built.
const LIBRARIES: [&str; 2] = ["libsluice-ipvs.so", "libsluice_preload.so"];
/// Where administrators' programs are, whatever PATH says.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Becomes the program `name`; comes back only when it cannot.
///
/// # Errors
/// When the program or the library is not there, or cannot be run.
pub fn become_program(
    name: &str,
    asked: &Run,
    socket: &Socket,
) -> Result<ExitCode, Box<dyn Error>> {
    if socket.is_remote() {
        return Err("stock programs ask the director of this machine: leave --url out".into());
    }
    let myself = env::current_exe()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let program = program(name, asked.program.as_deref(), &path, &myself)?;
    let library = library(asked.library.as_deref(), &myself)?;
    let mut command = Command::new(&program);
    command.args(&asked.arguments);
    command.env("LD_PRELOAD", preloaded(&library, env::var_os("LD_PRELOAD"))?);
    command.env("SLUICE_SOCKET", std::path::absolute(socket.path(None))?);
    match asked.interface {
        KernelInterface::Netlink => command.env_remove("SLUICE_IPVS_INTERFACE"),
        KernelInterface::Sockopt => command.env("SLUICE_IPVS_INTERFACE", "sockopt"),
    };
    let error = command.exec();
    Err(format!("{}: {error}", program.display()).into())
}

/// The stock program; never this one, which may be linked under its name.
fn program(
    name: &str,
    named: Option<&Path>,
    path: &OsString,
    myself: &Path,
) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return match named.is_file() {
            true => Ok(named.to_owned()),
            false => Err(format!("{}: there is no such program", named.display())),
        };
    }
    let own = myself.canonicalize().ok();
    let folders = env::split_paths(path).chain(FOLDERS.map(PathBuf::from));
    let mut found = folders.map(|folder| folder.join(name)).filter(|path| path.is_file());
    found.find(|path| path.canonicalize().ok() != own).ok_or_else(|| {
        format!(
            "{name}: neither in PATH nor in {}: install the package `{name}`, or name the program \
             by --program",
            FOLDERS.join(", ")
        )
    })
}

/// The library.
fn library(named: Option<&Path>, myself: &Path) -> Result<PathBuf, String> {
    if let Some(named) = named {
        let whole = std::path::absolute(named).ok().filter(|path| path.is_file());
        return whole.ok_or_else(|| format!("{}: there is no such library", named.display()));
    }
    let beside = myself.parent().unwrap_or(Path::new("/"));
    let installed = beside.parent().unwrap_or(beside).join("lib/sluice");
    let folders = [beside, &installed, Path::new("/usr/lib/sluice")];
    let places = || folders.iter().flat_map(|folder| LIBRARIES.map(|name| folder.join(name)));
    places().find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{}: neither in {}: install it, or name it by --library",
            LIBRARIES[0],
            folders.map(|folder| folder.display().to_string()).join(" nor in ")
        )
    })
}

/// What the loader is told: the library, then what was there.
fn preloaded(library: &Path, before: Option<OsString>) -> Result<OsString, String> {
    if library.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        let advice = "the loader splits its list there: put the library elsewhere";
        return Err(format!("{}: a blank or a colon in its path; {advice}", library.display()));
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{library, preloaded, program};

    #[test]
    fn the_stock_program_is_found_and_never_this_one() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        let myself = ours.join("sluice");
        fs::write(&myself, "").unwrap();
        symlink(&myself, ours.join("stock-program")).unwrap();
        let path = OsString::from(format!("{}:{}", ours.display(), theirs.display()));
        let error = program("stock-program", None, &path, &myself).unwrap_err();
        assert!(error.contains("--program") && error.contains("/usr/sbin"), "{error}");
        fs::write(theirs.join("stock-program"), "").unwrap();
        let found = program("stock-program", None, &path, &myself).unwrap();
        assert_eq!(found, theirs.join("stock-program"));
        let missing = Path::new("/nonexistent");
        assert!(program("stock-program", Some(missing), &path, &myself).is_err());
    }

    #[test]
    fn the_library_is_found_beside_the_command_and_where_it_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let myself = folder.path().join("bin/sluice");
        let installed = folder.path().join("lib/sluice/libsluice-ipvs.so");
        let built = folder.path().join("bin/libsluice_preload.so");
        fs::create_dir_all(installed.parent().unwrap()).unwrap();
        fs::create_dir_all(built.parent().unwrap()).unwrap();
        fs::write(&installed, "").unwrap();
        assert_eq!(library(None, &myself).unwrap(), installed);
        fs::write(&built, "").unwrap();
        assert_eq!(library(None, &myself).unwrap(), built);
        assert!(library(Some(Path::new("/nonexistent.so")), &myself).is_err());
    }

    #[test]
    fn what_is_preloaded_already_stays() {
        let library = Path::new("/usr/lib/sluice/libsluice-ipvs.so");
        let with = preloaded(library, Some("/lib/other.so".into())).unwrap();
        assert_eq!(with, "/usr/lib/sluice/libsluice-ipvs.so:/lib/other.so");
        assert_eq!(preloaded(library, Some("".into())).unwrap(), library);
        assert!(preloaded(Path::new("/a b/x.so"), None).is_err());
    }
}
