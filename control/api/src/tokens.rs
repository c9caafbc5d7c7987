//! Tokens: who may use the API over the network, and what for.
//!
//! A file has a line for each: name, role, and the SHA-256 of the token, so that the file does not
//! give away what it lets in. A token is 256 random bits; nothing slower than a plain hash is
//! needed for what nobody can guess. Comparing looks at every line, whatever it finds, and at all
//! of each.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use crate::error::ApiError;
use crate::query::WrongValue;

/// The largest file of tokens that is read, in bytes.
const FILE_BYTES: u64 = 1 << 20;
/// The longest name, in bytes: it becomes the author of changes.
const NAME_BYTES: usize = 64;
/// What a token begins with, so that one is recognised where it should not be.
const PREFIX: &str = "sluice_";
/// Before a hash in the file.
const HASH_PREFIX: &str = "sha256:";

/// What somebody may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look at everything.
    Read,
    /// Weigh and drain real servers, end sessions, have the file read again.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role, the one that may do least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Admin];

    /// The word used in files, options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| WrongValue::one_of(text, &Self::ALL.map(Self::name)))
    }
}

/// Somebody who has a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name in the file.
    pub name: String,
    /// What the holder may do.
    pub role: Role,
}

/// The tokens of a file.
#[derive(Default)]
pub struct Tokens(Vec<(Holder, [u8; 32])>);

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.iter().map(|(holder, _)| holder)).finish()
    }
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ApiError::File`] when it cannot be read, others than owner and group may read it, others
    /// than the owner may write it, or a line is wrong.
    pub fn load(path: &Path) -> Result<Self, ApiError> {
        let text = read_guarded(path, FILE_BYTES)?;
        Self::parse(&text).map_err(|reason| ApiError::file(path, reason))
    }

    /// Reads a file's text. What is wrong with it is told without any of its hashes.
    ///
    /// # Errors
    /// The first wrong line, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Self::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {}: {what}", at + 1);
            let entry = parse_line(line).map_err(|what| wrong(&what))?;
            if tokens.0.iter().any(|(known, _)| known.name == entry.0.name) {
                return Err(wrong(&format!("{:?} is there already", entry.0.name)));
            }
            tokens.0.push(entry);
        }
        if tokens.0.is_empty() {
            let advice = "add the line that `sluice token new NAME --role ROLE` prints";
            return Err(format!("there is no token in it; {advice}"));
        }
        Ok(tokens)
    }

    /// Whose token this is.
    pub fn holder(&self, token: &str) -> Option<&Holder> {
        let hash = digest(&SHA256, token.as_bytes());
        let mut found = None;
        for (holder, known) in &self.0 {
            if bool::from(known.as_slice().ct_eq(hash.as_ref())) {
                found = Some(holder);
            }
        }
        found
    }
}

fn parse_line(line: &str) -> Result<(Holder, [u8; 32]), String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(role), Some(hash), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a line has three words: name, role, sha256:HASH".to_owned());
    };
    check_name(name).map_err(|wrong| format!("{:?} is no name: {wrong}", wrong.found))?;
    let role = role.parse().map_err(|wrong: WrongValue| {
        format!("{:?} is no role: it must be {}", wrong.found, wrong.expected)
    })?;
    let hash = hash.strip_prefix(HASH_PREFIX).and_then(unhex).ok_or_else(|| {
        let digits = "64 hexadecimal digits, as `sluice token new` prints them";
        format!("the third word is not the hash of a token: {HASH_PREFIX} and {digits}")
    })?;
    Ok((Holder { name: name.to_owned(), role }, hash))
}

/// Whether a name may be in a file of tokens.
///
/// # Errors
/// What would be right.
pub fn check_name(name: &str) -> Result<(), WrongValue> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_BYTES && name.bytes().all(allowed) {
        return Ok(());
    }
    let expected = format!("1 to {NAME_BYTES} letters, digits, `.`, `_`, `@`, `-`, a letter first");
    Err(WrongValue::new(name, expected))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A token that was just made.
pub struct NewToken {
    /// What its holder shows. It is nowhere else.
    pub token: String,
    /// What the file gets.
    pub line: String,
}

impl NewToken {
    /// Makes one.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate(holder: &Holder) -> io::Result<Self> {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the system gave no random numbers"))?;
        let token = format!("{PREFIX}{}", hex(&bytes));
        let hash = hex(digest(&SHA256, token.as_bytes()).as_ref());
        let line = format!("{} {} {HASH_PREFIX}{hash}", holder.name, holder.role.name());
        Ok(Self { token, line })
    }
}

/// Reads a file that has a secret, or says who may come in.
pub(crate) fn read_guarded(path: &Path, most: u64) -> Result<String, ApiError> {
    let failed = |reason: String| ApiError::file(path, reason);
    let mut file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    guard(&metadata).map_err(failed)?;
    if metadata.len() > most {
        return Err(failed(format!("it has more than {most} bytes; is it the right file?")));
    }
    let mut text = String::new();
    let read = file.by_ref().take(most).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    Ok(text)
}

fn guard(metadata: &Metadata) -> Result<(), String> {
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if mode & 0o027 != 0 {
        let advice = "only its owner may write it, only owner and group may read it: chmod 640";
        return Err(format!("its mode is {mode:04o}; {advice}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    fn new(name: &str, role: Role) -> NewToken {
        NewToken::generate(&Holder { name: name.to_owned(), role }).expect("a token")
    }

    #[test]
    fn a_new_token_opens_what_its_line_says() {
        let (ops, web) = (new("ops", Role::Operate), new("web@shop-1", Role::Read));
        let text = format!("# who\n\n{}\n  {}  \n", ops.line, web.line);
        let tokens = Tokens::parse(&text).expect("tokens");
        let holder = tokens.holder(&ops.token).expect("known");
        assert_eq!((&*holder.name, holder.role), ("ops", Role::Operate));
        assert_eq!(tokens.holder(&web.token).map(|holder| holder.role), Some(Role::Read));
        let mut almost = ops.token.clone();
        almost.pop();
        for other in [&*almost, "", "ops", &new("ops", Role::Operate).token] {
            assert_eq!(tokens.holder(other), None);
        }
        assert!(!text.contains(&ops.token), "the file has the token itself");
        assert!(!format!("{tokens:?}").contains("sha256"), "a hash is shown");
    }

    /// As `printf %s sluice_test | sha256sum` has it.
    #[test]
    fn a_hash_is_that_of_other_programs() {
        let (first, second) =
            ("a656868d31a128af9af81369821dc070", "5ef08df5314573d01652dfea321cce9f");
        let tokens = Tokens::parse(&format!("a read sha256:{first}{second}")).expect("tokens");
        assert!(tokens.holder("sluice_test").is_some());
    }

    #[test]
    fn each_wrong_line_is_told_with_what_would_be_right() {
        let line = new("ops", Role::Admin).line;
        let hash = line.rsplit(' ').next().expect("a hash");
        for (text, told) in [
            ("", "no token"),
            ("# nothing", "no token"),
            ("ops admin", "line 1: a line has three words"),
            (&format!("\nops root {hash}"), "line 2: \"root\" is no role: it must be one of read"),
            (&format!("-x admin {hash}"), "\"-x\" is no name"),
            ("ops admin sha256:12", "64 hexadecimal digits"),
            (&format!("{line}\n{line}"), "line 2: \"ops\" is there already"),
        ] {
            let wrong = Tokens::parse(text).expect_err(text);
            assert!(wrong.contains(told), "{wrong}");
            assert!(!wrong.contains(hash), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_or_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        fs::write(&path, new("ops", Role::Admin).line).expect("written");
        for (mode, right) in [(0o644, false), (0o660, false), (0o602, false), (0o640, true)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            let read = Tokens::load(&path);
            assert_eq!(read.is_ok(), right, "{mode:o}: {read:?}");
            if let Err(wrong) = read {
                assert!(wrong.to_string().contains("chmod 640"), "{wrong}");
            }
        }
        let wrong = Tokens::load(&folder.path().join("absent")).expect_err("absent").to_string();
        assert!(wrong.contains("absent"), "{wrong}");
    }
}
