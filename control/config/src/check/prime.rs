//! Primes, for the size of Maglev's table: a real server's steps through the table visit every
//! entry whatever they are, only if the size has no divisor.

/// Whether `number` is a prime.
pub(super) fn is_prime(number: u32) -> bool {
    let divisors = 2..=number.isqrt();
    number >= 2 && divisors.into_iter().all(|divisor| !number.is_multiple_of(divisor))
}

/// The least prime that is not below `number`; the largest below 2^32 for those above that.
pub(super) fn next_prime(number: u32) -> u32 {
    (number..=u32::MAX).find(|candidate| is_prime(*candidate)).unwrap_or(4_294_967_291)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_primes_that_a_sieve_finds() {
        let mut composite = [false; 2000];
        for factor in 2..2000 {
            (2 * factor..2000).step_by(factor).for_each(|multiple| composite[multiple] = true);
        }
        for (number, composite) in composite.into_iter().enumerate() {
            assert_eq!(is_prime(number as u32), number >= 2 && !composite, "{number}");
        }
        assert!(is_prime(65_537) && is_prime(16_777_213) && is_prime(4_294_967_291));
    }

    #[test]
    fn the_next_prime_is_not_below() {
        assert_eq!(next_prime(0), 2);
        assert_eq!(next_prime(65_536), 65_537);
        assert_eq!(next_prime(65_537), 65_537);
        assert_eq!(next_prime(16_777_212), 16_777_213);
        assert_eq!(next_prime(u32::MAX), 4_294_967_291);
    }
}
