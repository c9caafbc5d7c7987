//! A filter over a frame's bytes: classic BPF (McCanne and Jacobson, USENIX 1993), as libpcap
//! compiles tcpdump's language to.
//!
//! A program comes from outside, so it is checked as a whole before it runs ([`Program::new`]):
//! known instructions, jumps that only lead forward and stay inside, scratch memory inside its
//! sixteen words, no constant division by zero, and an end that returns. It then takes at most as
//! many steps as it has instructions, and whatever it reads beyond the frame makes it refuse the
//! frame, as with libpcap. The meaning is that of libpcap's `bpf_filter`, which the tests compare
//! it with.

use std::fmt;

#[cfg(test)]
mod tests;

/// The most instructions of a program: as many as Linux takes (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Words of scratch memory (`BPF_MEMWORDS`).
const WORDS: usize = 16;
/// From here on an offset asks Linux for something that is not in the packet (`SKF_NET_OFF`).
const ANCILLARY: u32 = 0xfff0_0000;

/// One instruction, as `struct bpf_insn` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// What to do: class, size, mode, operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Box<[Instruction]>);

/// What is wrong with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has no instructions, or more than [`MAX_INSTRUCTIONS`].
    Length(usize),
    /// There is no such instruction.
    Unknown(usize, u16),
    /// A jump leads behind the end.
    Jump(usize),
    /// Scratch memory beyond its sixteen words.
    Memory(usize, u32),
    /// A division by a constant zero.
    Division(usize),
    /// A shift by a constant of 32 or more.
    Shift(usize, u32),
    /// It asks for what is not in the packet (Linux's extensions).
    Ancillary(usize),
    /// The last instruction does not return.
    Endless,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(count) => {
                write!(f, "{count} instructions; there must be 1 to {MAX_INSTRUCTIONS}")
            }
            Self::Unknown(at, code) => {
                write!(f, "instruction {at} has the code {code:#06x}, which classic BPF has not")
            }
            Self::Jump(at) => write!(f, "instruction {at} jumps behind the end of the program"),
            Self::Memory(at, word) => write!(
                f,
                "instruction {at} uses word {word} of the scratch memory, which has {WORDS}"
            ),
            Self::Division(at) => write!(f, "instruction {at} divides by zero"),
            Self::Shift(at, by) => {
                write!(f, "instruction {at} shifts by {by}; a word has 32 bits")
            }
            Self::Ancillary(at) => write!(
                f,
                "instruction {at} asks for what is not in the packet (an extension of Linux)"
            ),
            Self::Endless => write!(f, "the last instruction does not return"),
        }
    }
}

mod code {
    //! Codes of instructions, put together as `pcap/bpf.h` does.
    pub const LD_W_ABS: u16 = 0x20;
    pub const LD_H_ABS: u16 = 0x28;
    pub const LD_B_ABS: u16 = 0x30;
    pub const LD_W_IND: u16 = 0x40;
    pub const LD_H_IND: u16 = 0x48;
    pub const LD_B_IND: u16 = 0x50;
    pub const LD_LEN: u16 = 0x80;
    pub const LD_IMM: u16 = 0x00;
    pub const LD_MEM: u16 = 0x60;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const LDX_LEN: u16 = 0x81;
    pub const LDX_MSH: u16 = 0xb1;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const ALU: u16 = 0x04;
    pub const NEG: u16 = 0x84;
    pub const JA: u16 = 0x05;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
    /// Of arithmetic and comparisons: the operand is the index register.
    pub const X: u16 = 0x08;
    pub const CLASS: u16 = 0x07;
    pub const OPERATION: u16 = 0xf0;
    pub const JMP: u16 = 0x05;
    pub const DIV: u16 = 0x30;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const MOD: u16 = 0x90;
}

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// Says which instruction is wrong, counted from 0, and what would be right.
    pub fn new(instructions: &[Instruction]) -> Result<Self, Wrong> {
        let count = instructions.len();
        if count == 0 || count > MAX_INSTRUCTIONS {
            return Err(Wrong::Length(count));
        }
        for (at, instruction) in instructions.iter().enumerate() {
            check(instruction, at, count)?;
        }
        let last = instructions[count - 1].code;
        if !matches!(last, code::RET_K | code::RET_A) {
            return Err(Wrong::Endless);
        }
        Ok(Self(instructions.into()))
    }

    /// Whether the program takes a frame.
    pub fn takes(&self, frame: &[u8]) -> bool {
        self.run(frame).is_some_and(|kept| kept != 0)
    }

    /// What the program returns: bytes of the frame to be kept. `None` when it reads beyond the
    /// frame or divides by zero, which refuses it.
    fn run(&self, frame: &[u8]) -> Option<u32> {
        let mut machine = Machine::default();
        let mut at = 0;
        loop {
            let instruction = *self.0.get(at)?;
            at += 1;
            let Instruction { code, jt, jf, k } = instruction;
            match code {
                code::RET_K => return Some(k),
                code::RET_A => return Some(machine.a),
                code::JA => at += k as usize,
                _ if code & code::CLASS == code::JMP => {
                    let skipped = if machine.holds(code, k) { jt } else { jf };
                    at += usize::from(skipped);
                }
                _ => machine.step(code, k, frame)?,
            }
        }
    }
}

fn check(instruction: &Instruction, at: usize, count: usize) -> Result<(), Wrong> {
    let Instruction { code, jt, jf, k } = *instruction;
    // Whoever skips so many must land on an instruction.
    let lands = |skipped: usize| skipped < count - at - 1;
    let constant = code & code::X == 0;
    match code {
        code::LD_W_ABS | code::LD_H_ABS | code::LD_B_ABS | code::LDX_MSH if k >= ANCILLARY => {
            Err(Wrong::Ancillary(at))
        }
        code::LD_W_ABS
        | code::LD_H_ABS
        | code::LD_B_ABS
        | code::LD_W_IND
        | code::LD_H_IND
        | code::LD_B_IND
        | code::LD_LEN
        | code::LD_IMM
        | code::LDX_IMM
        | code::LDX_LEN
        | code::LDX_MSH
        | code::RET_K
        | code::RET_A
        | code::TAX
        | code::TXA
        | code::NEG => Ok(()),
        code::LD_MEM | code::LDX_MEM | code::ST | code::STX => {
            if (k as usize) < WORDS {
                Ok(())
            } else {
                Err(Wrong::Memory(at, k))
            }
        }
        code::JA if lands(k as usize) => Ok(()),
        code::JA => Err(Wrong::Jump(at)),
        _ if code & !(code::OPERATION | code::X) == code::JMP
            && (0x10..=0x40).contains(&(code & code::OPERATION)) =>
        {
            let inside = lands(usize::from(jt)) && lands(usize::from(jf));
            if inside { Ok(()) } else { Err(Wrong::Jump(at)) }
        }
        _ if code & !(code::OPERATION | code::X) == code::ALU => match code & code::OPERATION {
            0x80 | 0xb0.. => Err(Wrong::Unknown(at, code)),
            code::DIV | code::MOD if constant && k == 0 => Err(Wrong::Division(at)),
            code::LSH | code::RSH if constant && k > 31 => Err(Wrong::Shift(at, k)),
            _ => Ok(()),
        },
        _ => Err(Wrong::Unknown(at, code)),
    }
}

/// Accumulator, index register and scratch memory.
#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; WORDS],
}

impl Machine {
    fn operand(&self, code: u16, k: u32) -> u32 {
        if code & code::X == 0 { k } else { self.x }
    }

    fn holds(&self, code: u16, k: u32) -> bool {
        let with = self.operand(code, k);
        match code & code::OPERATION {
            0x10 => self.a == with,
            0x20 => self.a > with,
            0x30 => self.a >= with,
            _ => self.a & with != 0,
        }
    }

    /// Does what changes registers or memory.
    fn step(&mut self, code: u16, k: u32, frame: &[u8]) -> Option<()> {
        let word = k as usize % WORDS;
        match code {
            code::LD_W_ABS => self.a = u32::from_be_bytes(read(frame, k, 0)?),
            code::LD_H_ABS => self.a = u16::from_be_bytes(read(frame, k, 0)?).into(),
            code::LD_B_ABS => self.a = u8::from_be_bytes(read(frame, k, 0)?).into(),
            code::LD_W_IND => self.a = u32::from_be_bytes(read(frame, k, self.x)?),
            code::LD_H_IND => self.a = u16::from_be_bytes(read(frame, k, self.x)?).into(),
            code::LD_B_IND => self.a = u8::from_be_bytes(read(frame, k, self.x)?).into(),
            code::LD_LEN => self.a = frame.len() as u32,
            code::LDX_LEN => self.x = frame.len() as u32,
            code::LDX_MSH => self.x = u32::from(u8::from_be_bytes(read(frame, k, 0)?) & 15) << 2,
            code::LD_IMM => self.a = k,
            code::LDX_IMM => self.x = k,
            code::LD_MEM => self.a = self.memory[word],
            code::LDX_MEM => self.x = self.memory[word],
            code::ST => self.memory[word] = self.a,
            code::STX => self.memory[word] = self.x,
            code::TAX => self.x = self.a,
            code::TXA => self.a = self.x,
            code::NEG => self.a = self.a.wrapping_neg(),
            _ => self.a = calculated(code & code::OPERATION, self.a, self.operand(code, k))?,
        }
        Some(())
    }
}

/// So many bytes of a frame from an offset on that is the sum of two.
fn read<const N: usize>(frame: &[u8], k: u32, x: u32) -> Option<[u8; N]> {
    let at = usize::try_from(u64::from(k) + u64::from(x)).ok()?;
    frame.get(at..)?.first_chunk().copied()
}

fn calculated(operation: u16, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        code::DIV => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        code::LSH => a.checked_shl(b).unwrap_or(0),
        code::RSH => a.checked_shr(b).unwrap_or(0),
        code::MOD => a.checked_rem(b)?,
        _ => a ^ b,
    })
}
