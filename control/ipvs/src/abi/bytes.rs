//! Reading and writing structures, field by field, with the holes that the compiler leaves.

/// Reads a structure; `None` where it ends too early.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A number of the machine's order.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    /// A number of the machine's order.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A number of the machine's order.
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }

    /// A number in network order.
    pub fn be16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
}

/// Writes a structure.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A hole of zeros.
    pub fn hole(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// A number of the machine's order.
    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    /// A number of the machine's order.
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    /// A number of the machine's order.
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    /// A name of at most 15 bytes in 16, zeros behind it.
    pub fn name(&mut self, name: &str) -> &mut Self {
        let mut field = [0; super::NAME_BYTES];
        let (room, _) = field.split_at_mut(super::NAME_BYTES - 1);
        for (to, from) in room.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        self.bytes(&field)
    }
}
