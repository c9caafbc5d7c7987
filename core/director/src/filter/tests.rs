//! Programs that are wrong, and programs of every kind that are not: they end, whatever the frame.
//! That they mean what libpcap means is compared in `bin/sluice/tests/filter.rs`.

use super::*;
use proptest::prelude::*;

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

const RETURN: Instruction = op(code::RET_K, 0, 0, 1);

#[test]
fn each_wrong_program_is_refused_for_what_it_does() {
    let wrong = |instructions: &[Instruction]| Program::new(instructions).unwrap_err();
    assert_eq!(wrong(&[]), Wrong::Length(0));
    assert_eq!(wrong(&[RETURN; MAX_INSTRUCTIONS + 1]), Wrong::Length(MAX_INSTRUCTIONS + 1));
    assert_eq!(wrong(&[op(0x20, 0, 0, 0)]), Wrong::Endless);
    assert_eq!(wrong(&[op(0xffff, 0, 0, 0), RETURN]), Wrong::Unknown(0, 0xffff));
    assert_eq!(wrong(&[op(0xb4, 0, 0, 0), RETURN]), Wrong::Unknown(0, 0xb4));
    assert_eq!(wrong(&[op(0x8c, 0, 0, 0), RETURN]), Wrong::Unknown(0, 0x8c));
    // There is no jump back: an offset that would wrap is one behind the end.
    assert_eq!(wrong(&[op(code::JA, 0, 0, u32::MAX), RETURN]), Wrong::Jump(0));
    assert_eq!(wrong(&[op(code::JA, 0, 0, 1), RETURN]), Wrong::Jump(0));
    assert_eq!(wrong(&[op(0x15, 0, 1, 0), RETURN]), Wrong::Jump(0));
    assert_eq!(wrong(&[op(0x15, 1, 0, 0), RETURN]), Wrong::Jump(0));
    assert_eq!(wrong(&[op(code::ST, 0, 0, 16), RETURN]), Wrong::Memory(0, 16));
    assert_eq!(wrong(&[op(code::LDX_MEM, 0, 0, 99), RETURN]), Wrong::Memory(0, 99));
    assert_eq!(wrong(&[op(0x34, 0, 0, 0), RETURN]), Wrong::Division(0));
    assert_eq!(wrong(&[op(0x94, 0, 0, 0), RETURN]), Wrong::Division(0));
    assert_eq!(wrong(&[op(0x64, 0, 0, 32), RETURN]), Wrong::Shift(0, 32));
    assert_eq!(wrong(&[op(0x28, 0, 0, 0xffff_f000), RETURN]), Wrong::Ancillary(0));
}

#[test]
fn what_is_beyond_the_frame_or_divides_by_zero_refuses_it() {
    let takes = |instructions: &[Instruction], frame: &[u8]| {
        Program::new(instructions).expect("a program").takes(frame)
    };
    let word = [op(0x20, 0, 0, 2), RETURN];
    assert!(takes(&word, &[0; 6]) && !takes(&word, &[0; 5]) && !takes(&word, &[]));
    let far = [op(code::LDX_IMM, 0, 0, u32::MAX), op(0x50, 0, 0, u32::MAX), RETURN];
    assert!(!takes(&far, &[0; 64]));
    // X is zero at the start.
    assert!(!takes(&[op(0x3c, 0, 0, 0), RETURN], &[0; 64]));
    assert!(takes(&[op(code::RET_K, 0, 0, 0xffff)], &[]));
    assert!(!takes(&[op(code::RET_A, 0, 0, 0)], &[1; 64]));
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let known = prop::sample::select(vec![
        0x20u16, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x00, 0x60, 0x01, 0x61, 0x81, 0xb1, 0x02,
        0x03, 0x04, 0x0c, 0x14, 0x24, 0x3c, 0x44, 0x54, 0x6c, 0x7c, 0x84, 0x9c, 0xa4, 0x05, 0x15,
        0x1d, 0x25, 0x35, 0x45, 0x06, 0x16, 0x07, 0x87,
    ]);
    let code = prop_oneof![20 => known, 1 => any::<u16>()];
    let k = prop_oneof![3 => 0u32..40, 1 => any::<u32>()];
    (code, 0u8..4, 0u8..4, k).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
}

proptest! {
    /// Whatever passes the check runs to an end over any frame without a panic.
    #[test]
    fn what_is_accepted_ends(
        mut instructions in prop::collection::vec(instruction(), 1..60),
        frame in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        instructions.extend([RETURN; 4]);
        // One that is wrong would hide the others.
        let count = instructions.len();
        for (at, instruction) in instructions.iter_mut().enumerate() {
            if check(instruction, at, count).is_err() {
                *instruction = RETURN;
            }
        }
        let program = Program::new(&instructions).expect("each instruction is right");
        let _ = program.takes(&frame);
    }
}
