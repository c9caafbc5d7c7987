//! Keys, and datagrams sealed with them.

use crate::settings::{Settings, SettingsError};
use crate::status::Reject;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};

const MAGIC: [u8; 2] = *b"\xa5S";
pub(crate) const VERSION: u8 = 2;

/// Bytes of the header.
pub(crate) const HEADER: usize = 31;
/// Bytes of the tag at the end.
pub(crate) const TAG: usize = 16;
/// Set in counters of data, where the rest is the sequence number.
const DATA: u64 = 1 << 63;

/// Names a start of a director.
pub(crate) type StartId = [u8; 16];
/// Shows that a Hello is not a recording.
pub(crate) type Challenge = [u8; 16];
/// Opens the datagrams of one start sealed with one key.
pub(crate) type Opener = LessSafeKey;

/// What a counter is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Of data: its sequence number.
    Data(u64),
    /// Of Hello and acknowledgement.
    Control(u64),
}

impl Counter {
    const fn number(self) -> u64 {
        match self {
            Self::Data(sequence) => sequence | DATA,
            Self::Control(counter) => counter,
        }
    }
}

/// What a datagram says in clear.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// The key by its place.
    pub(crate) key: usize,
    pub(crate) start: StartId,
    pub(crate) counter: Counter,
}

/// The keys, this start's secrets and its counter.
pub(crate) struct Keyring {
    secrets: Vec<[u8; 32]>,
    ids: Vec<u32>,
    sealers: Vec<LessSafeKey>,
    start: StartId,
    /// Makes challenges and ids of pulls.
    maker: hmac::Key,
    counter: u64,
}

fn first<const N: usize>(tag: &hmac::Tag) -> [u8; N] {
    tag.as_ref().first_chunk().copied().unwrap_or([0; N])
}

fn key_of(secret: &[u8; 32], start: &StartId) -> Option<LessSafeKey> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, start);
    let prk = salt.extract(secret);
    let okm = prk.expand(&[b"sluice-sync 1"], &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(okm)))
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    if let Some(tail) = bytes.last_chunk_mut() {
        *tail = counter.to_be_bytes();
    }
    Nonce::assume_unique_for_key(bytes)
}

impl Keyring {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let random = hmac::Key::new(hmac::HMAC_SHA256, &settings.random);
        let start = first(&hmac::sign(&random, b"start"));
        let maker = hmac::sign(&random, b"secret");
        let mut keyring = Self {
            secrets: Vec::new(),
            ids: Vec::new(),
            sealers: Vec::new(),
            start,
            maker: hmac::Key::new(hmac::HMAC_SHA256, maker.as_ref()),
            counter: 0,
        };
        for secret in &settings.keys {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let id = u32::from_be_bytes(first(&hmac::sign(&key, b"id")));
            if keyring.ids.contains(&id) {
                return Err(SettingsError::SameKey);
            }
            keyring.ids.push(id);
            keyring.sealers.push(key_of(secret, &start).ok_or(SettingsError::Keys)?);
            keyring.secrets.push(*secret);
        }
        Ok(keyring)
    }

    /// This start.
    pub(crate) const fn start(&self) -> StartId {
        self.start
    }

    /// Ids of the keys, the newest first.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The id of a key by its place; 0 when there is none.
    pub(crate) fn id(&self, key: usize) -> u32 {
        self.ids.get(key).copied().unwrap_or(0)
    }

    /// The keys among these ids, a bit each by its place.
    pub(crate) fn mask(&self, ids: &[u32]) -> u8 {
        let known = self.ids.iter().enumerate().filter(|(_, id)| ids.contains(id));
        known.fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// A challenge to a peer.
    pub(crate) fn challenge(&self, peer: usize, generation: u64) -> Challenge {
        let mut context = hmac::Context::with_key(&self.maker);
        context.update(b"challenge");
        context.update(&(peer as u64).to_be_bytes());
        context.update(&generation.to_be_bytes());
        first(&context.sign())
    }

    /// The id of the nth pull of this start: other directors' are others. Never 0.
    pub(crate) fn pull_id(&self, count: u64) -> u64 {
        let mut context = hmac::Context::with_key(&self.maker);
        context.update(b"pull");
        context.update(&count.to_be_bytes());
        u64::from_be_bytes(first(&context.sign())).max(1)
    }

    /// Reads the header of a datagram, which is not authenticated yet.
    pub(crate) fn header(&self, datagram: &[u8]) -> Result<Header, Reject> {
        if datagram.len() <= HEADER + TAG {
            return Err(Reject::Malformed);
        }
        let mut reader = crate::codec::Reader::new(datagram);
        if reader.array() != Some(MAGIC) || reader.u8() != Some(VERSION) {
            return Err(Reject::Version);
        }
        let id = reader.u32().ok_or(Reject::Malformed)?;
        let key = self.ids.iter().position(|it| *it == id).ok_or(Reject::Key)?;
        let start = reader.array().ok_or(Reject::Malformed)?;
        let counter = reader.u64().ok_or(Reject::Malformed)?;
        let counter = match counter & DATA {
            0 => Counter::Control(counter),
            _ => Counter::Data(counter & !DATA),
        };
        Ok(Header { key, start, counter })
    }

    /// What opens datagrams of a start that are sealed with a key.
    pub(crate) fn opener(&self, key: usize, start: &StartId) -> Option<Opener> {
        self.secrets.get(key).and_then(|secret| key_of(secret, start))
    }

    /// The next counter of Hello and acknowledgement.
    pub(crate) const fn count(&mut self) -> Counter {
        self.counter += 1;
        Counter::Control(self.counter)
    }

    /// Seals what is after the first [`HEADER`] bytes, which the header is written into. A counter
    /// must be used once only.
    pub(crate) fn seal(&self, key: usize, counter: Counter, datagram: &mut Vec<u8>) {
        let number = counter.number();
        let Some((header, payload)) = datagram.split_at_mut_checked(HEADER) else { return };
        let id = self.id(key).to_be_bytes();
        let fields: [&[u8]; 5] = [&MAGIC, &[VERSION], &id, &self.start, &number.to_be_bytes()];
        let written = header.iter_mut().zip(fields.into_iter().flatten());
        written.for_each(|(to, from)| *to = *from);
        let sealed = self.sealers.get(key).map(|sealer| {
            sealer.seal_in_place_separate_tag(nonce(number), Aad::from(&*header), payload)
        });
        // Sealing fails only for payloads far longer than a datagram; nothing may leave in clear.
        match sealed {
            Some(Ok(tag)) => datagram.extend_from_slice(tag.as_ref()),
            _ => datagram.clear(),
        }
    }
}

/// Opens a datagram into `payload`.
pub(crate) fn open(
    opener: &Opener,
    counter: Counter,
    datagram: &[u8],
    payload: &mut Vec<u8>,
) -> Result<(), Reject> {
    let (header, sealed) = datagram.split_at_checked(HEADER).ok_or(Reject::Malformed)?;
    payload.clear();
    payload.extend_from_slice(sealed);
    let opened = opener.open_in_place(nonce(counter.number()), Aad::from(header), payload);
    let length = opened.map_err(|_| Reject::Tag)?.len();
    payload.truncate(length);
    Ok(())
}
