//! What an end of the protocol is made of: secrets from files, random bytes, a name.

use crate::errors::{Error, system};
use sluice_config::SessionSync;
use sluice_sync::Settings;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The settings of `[sync]`.
pub fn settings(config: &SessionSync) -> Result<Settings, Error> {
    let keys = config
        .key_files
        .iter()
        .map(|file| read(file).map_err(|reason| Error::SyncKey { file: file.clone(), reason }));
    let mut random = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(system("read /dev/urandom"))?;
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(Settings {
        name: name.trim().chars().filter(char::is_ascii).take(64).collect(),
        keys: keys.collect::<Result<_, _>>()?,
        peers: config.peers.len(),
        datagram: usize::from(config.datagram),
        group: config.group.is_some(),
        fingerprint: 0,
        random,
    })
}

/// The key in a file.
fn read(file: &Path) -> Result<[u8; 32], String> {
    let found = fs::metadata(file).map_err(|error| error.to_string())?;
    if found.mode() & 0o007 != 0 {
        return Err(format!("others may read it: `chmod o= {}`", file.display()));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    parse(text.trim()).ok_or_else(|| {
        "it is not 64 hexadecimal digits: write to it what `openssl rand -hex 32` prints".to_owned()
    })
}

fn parse(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    // A file that was filled, not made.
    (key != [0; 32]).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_64_digits_that_others_may_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sync.key");
        assert!(read(&file).unwrap_err().contains("No such file"));
        let good = "0123456789abcdefABCDEF0123456789".repeat(2);
        for (text, right) in [
            (good.clone(), true),
            (format!("{good}\n"), true),
            (good[1..].to_owned(), false),
            (format!("{good}00"), false),
            (good.replace('0', "x"), false),
            ("0".repeat(64), false),
            (String::new(), false),
            ("\u{e9}".repeat(32), false),
        ] {
            fs::write(&file, &text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
            assert_eq!(read(&file).is_ok(), right, "{text:?}");
        }
        fs::write(&file, good).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert!(read(&file).unwrap_err().contains("chmod o="));
    }
}
