//! A capture's blocks on their way to a file: only whole ones, so that one which is broken off is
//! a good file, and what they say of its end.

/// Types of blocks, and options of statistics, of pcapng.
const PACKET: u32 = 6;
const STATISTICS: u32 = 5;
const LOST: u16 = 7;
const TOLD: u16 = 8;
/// Bytes of a block's type and length, and of the shortest block.
const HEAD: usize = 8;
const SHORTEST: usize = 12;

/// What came of a capture.
#[derive(Debug, Default)]
pub struct Blocks {
    part: Vec<u8>,
    frames: u64,
    told: Option<u64>,
    lost: u64,
}

impl Blocks {
    /// Takes bytes as they come and gives the blocks that are whole with them.
    pub fn whole(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.part.extend_from_slice(bytes);
        let mut end = 0;
        while let Some(block) = whole_block(&self.part[end..]) {
            match word(block, 0) {
                Some(PACKET) => self.frames += 1,
                Some(STATISTICS) => {
                    self.told = statistic(block, TOLD).or(self.told);
                    self.lost = statistic(block, LOST).unwrap_or(self.lost);
                }
                _ => {}
            }
            end += block.len();
        }
        self.part.drain(..end).collect()
    }

    /// What was captured, in words.
    pub fn summary(&self) -> String {
        let Self { frames, told, lost, .. } = self;
        let packets = told.map_or_else(String::new, |told| format!(" of {told} packets"));
        let lost = match lost {
            0 => String::new(),
            lost => format!("; {lost} packets more were lost because the reader was slow"),
        };
        format!("{frames} frames{packets} written{lost}")
    }
}

fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The first block, if it is whole.
fn whole_block(bytes: &[u8]) -> Option<&[u8]> {
    let length = word(bytes, 4)? as usize;
    // What is no block comes as it is, rather than never.
    if length < SHORTEST || !length.is_multiple_of(4) {
        return Some(bytes);
    }
    bytes.get(..length)
}

/// A number of 64 bits among the options of a block of statistics.
fn statistic(block: &[u8], wanted: u16) -> Option<u64> {
    // Interface and two halves of a time stamp come before.
    let mut at = HEAD + 12;
    loop {
        let head = word(block, at)?;
        let [a, b, c, d] = head.to_ne_bytes();
        let (code, length) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        if code == 0 {
            return None;
        }
        if code == wanted {
            return block.get(at + 4..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        }
        at += 4 + usize::from(length).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (SHORTEST + body.len()) as u32;
        [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), body, &length.to_ne_bytes()].concat()
    }

    #[test]
    fn only_whole_blocks_are_given_whatever_the_pieces() {
        let option = |code: u16, value: u64| {
            [&code.to_ne_bytes()[..], &8u16.to_ne_bytes(), &value.to_ne_bytes()].concat()
        };
        let comment = [&1u16.to_ne_bytes()[..], &3u16.to_ne_bytes(), b"abc\0"].concat();
        let options = [comment, option(LOST, 7), option(TOLD, 2), vec![0; 4]].concat();
        let statistics = block(STATISTICS, &[&[0; 12][..], &options].concat());
        let all = [block(0x0a0d_0d0a, &[1; 16]), block(PACKET, &[2; 32]), statistics].concat();
        for piece in 1..all.len() {
            let mut blocks = Blocks::default();
            let mut out = Vec::new();
            for bytes in all.chunks(piece) {
                out.extend(blocks.whole(bytes));
            }
            assert_eq!(out, all);
            let summary = "1 frames of 2 packets written; 7 packets more were lost because the \
                           reader was slow";
            assert_eq!(blocks.summary(), summary);
        }
        let mut blocks = Blocks::default();
        assert_eq!(blocks.whole(&all[..30]), all[..28], "the second block is not whole");
        assert_eq!(blocks.summary(), "0 frames written");
    }
}
