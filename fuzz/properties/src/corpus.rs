//! The committed corpora: one archive a target, `fuzz/corpus/TARGET.tar`, read in memory by the
//! tests and unpacked for the fuzzer, which wants a folder of files.
//!
//! An archive depends only on its inputs: sorted by name, no times, no owners. So a corpus that
//! did not change packs to the same bytes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An input with its name.
pub type Input = (String, Vec<u8>);

/// The folder of the archives, and of the folders that they are unpacked to.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

/// A target's archive.
fn archive(target: &str) -> PathBuf {
    folder().join(format!("{target}.tar"))
}

/// The committed inputs of a target, sorted by name.
///
/// # Errors
/// When the archive cannot be read.
pub fn inputs(target: &str) -> io::Result<Vec<Input>> {
    let mut archive = tar::Archive::new(File::open(archive(target))?);
    let mut inputs = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        inputs.push((name, bytes));
    }
    inputs.sort();
    Ok(inputs)
}

/// Writes a target's inputs to a folder as the fuzzer wants them. Returns how many there are.
///
/// # Errors
/// When the archive cannot be read or a file cannot be written.
pub fn unpack(target: &str, to: &Path) -> io::Result<usize> {
    fs::create_dir_all(to)?;
    let inputs = inputs(target)?;
    for (name, bytes) in &inputs {
        fs::write(to.join(name), bytes)?;
    }
    Ok(inputs.len())
}

/// Makes a target's archive from the files of a folder. Returns how many there are.
///
/// # Errors
/// When the folder cannot be read, has a folder in it, or the archive cannot be written.
pub fn pack(target: &str, from: &Path) -> io::Result<usize> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        inputs.push((name, fs::read(&path)?));
    }
    inputs.sort();
    fs::write(archive(target), packed(&inputs)?)?;
    Ok(inputs.len())
}

/// The archive of these inputs.
///
/// # Errors
/// When a name is too long for an archive.
pub fn packed(inputs: &[Input]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in inputs {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &bytes[..])?;
    }
    builder.into_inner()
}
