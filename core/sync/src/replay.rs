//! Which counters of a sender have been seen, in the manner of RFC 6479.

/// Counters that are told apart behind the highest one.
pub(crate) const REPLAY_WINDOW: u64 = 4096;

/// One word more than the window has, so that a whole word can be cleared at a time.
const WORDS: u64 = REPLAY_WINDOW / 64 + 1;

/// A window over counters. It moves only by [`Replay::mark`], which is for what was authenticated.
#[derive(Debug)]
pub(crate) struct Replay {
    highest: u64,
    words: Vec<u64>,
}

impl Replay {
    pub(crate) fn new() -> Self {
        Self { highest: 0, words: vec![0; WORDS as usize] }
    }

    /// Forgoes every counter up to this one.
    pub(crate) fn close(&mut self, counter: u64) {
        self.mark(counter);
        self.words.fill(u64::MAX);
        // The words ahead are cleared when the window gets there, but for the rest of this one.
        if let Some(word) = self.words.get_mut(word_of(counter)) {
            *word = u64::MAX >> (63 - counter % 64);
        }
    }

    /// Whether this counter has not been seen and is recent enough to be sure of that.
    pub(crate) fn is_new(&self, counter: u64) -> bool {
        if counter > self.highest {
            return true;
        }
        if counter == 0 || self.highest - counter >= REPLAY_WINDOW {
            return false;
        }
        let word = self.words.get(word_of(counter)).copied().unwrap_or(u64::MAX);
        word & (1 << (counter % 64)) == 0
    }

    /// Notes that this counter has been seen.
    pub(crate) fn mark(&mut self, counter: u64) {
        if counter > self.highest {
            let (from, to) = (self.highest / 64, counter / 64);
            let fresh = (to - from).min(WORDS);
            for word in to + 1 - fresh..=to {
                if let Some(word) = self.words.get_mut((word % WORDS) as usize) {
                    *word = 0;
                }
            }
            self.highest = counter;
        }
        if let Some(word) = self.words.get_mut(word_of(counter)) {
            *word |= 1 << (counter % 64);
        }
    }
}

const fn word_of(counter: u64) -> usize {
    (counter / 64 % WORDS) as usize
}
