//! The order of lists.
//!
//! Addresses are compared word by word by the sign of a 32-bit difference, which is no order:
//! 10.0.0.1 comes after 200.0.0.1, that after 127.0.0.1, and that after 10.0.0.1. What a list then
//! looks like depends on how it is sorted, so that is as the C library does it: by merging halves.

use std::cmp::Ordering;
use std::net::IpAddr;

use sluice_ipvs::{Destination, Family, Service, ServiceKey};

/// An address as four words, IPv4 in the first, as both lie in the kernel's union.
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [address.to_bits(), 0, 0, 0],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// The sign of a difference that wraps around.
fn difference(a: u32, b: u32) -> Ordering {
    (a.wrapping_sub(b) as i32).cmp(&0)
}

fn addresses(a: IpAddr, b: IpAddr) -> Ordering {
    let pairs = words(a).into_iter().zip(words(b));
    pairs.map(|(a, b)| difference(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn services(a: &ServiceKey, b: &ServiceKey) -> Ordering {
    let mark = |key: &ServiceKey| match *key {
        ServiceKey::Mark { mark, .. } => mark,
        ServiceKey::Address { .. } | ServiceKey::Match(_) => 0,
    };
    let family = |key: &ServiceKey| matches!(key.family(), Family::Ipv6);
    // Those by match come last, in the order in which they are tried.
    match (a, b) {
        (ServiceKey::Match(_), ServiceKey::Match(_)) => return Ordering::Equal,
        (ServiceKey::Match(_), _) => return Ordering::Greater,
        (_, ServiceKey::Match(_)) => return Ordering::Less,
        _ => {}
    }
    let order = difference(mark(a), mark(b)).then_with(|| family(a).cmp(&family(b)));
    match (*a, *b) {
        (
            ServiceKey::Address { protocol: p, address: x, port: m },
            ServiceKey::Address { protocol: q, address: y, port: n },
        ) => order
            .then_with(|| p.number().cmp(&q.number()))
            .then_with(|| addresses(x, y))
            .then_with(|| m.cmp(&n)),
        _ => order,
    }
}

fn destinations(a: &Destination, b: &Destination) -> Ordering {
    addresses(a.address, b.address).then_with(|| a.port.cmp(&b.port))
}

/// Sorts services and each one's destinations.
pub(crate) fn sort(list: &mut Vec<Service>) {
    *list = merged(std::mem::take(list), &|a, b| services(&a.spec.key, &b.spec.key));
    for service in list {
        service.destinations = merged(std::mem::take(&mut service.destinations), &destinations);
    }
}

/// Merge sort from the top: the smaller half first, and of equals the one from the first half.
fn merged<T>(mut list: Vec<T>, order: &impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if list.len() < 2 {
        return list;
    }
    let second = list.split_off(list.len() / 2);
    let mut first = merged(list, order).into_iter().peekable();
    let mut second = merged(second, order).into_iter().peekable();
    let mut all = Vec::with_capacity(first.len() + second.len());
    while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
        all.extend(if order(a, b).is_le() { first.next() } else { second.next() });
    }
    all.extend(first);
    all.extend(second);
    all
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::{addresses, merged};

    #[test]
    fn addresses_go_by_the_sign_of_a_difference_that_wraps() {
        let order = |a: &str, b: &str| addresses(a.parse().unwrap(), b.parse().unwrap());
        assert_eq!(order("200.0.0.1", "10.0.0.1"), Ordering::Less);
        assert_eq!(order("127.0.0.1", "198.51.100.2"), Ordering::Less);
        assert_eq!(order("10.0.0.1", "127.0.0.1"), Ordering::Less);
        assert_eq!(order("fe80::1", "::1"), Ordering::Less);
        // IPv4 is the first word of what IPv6 has four of.
        assert_eq!(order("32.1.13.184", "2001:db8::"), Ordering::Equal);
    }

    #[test]
    fn equals_keep_their_places() {
        let list = vec![(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (0, 'e')];
        let sorted = merged(list, &|a, b| a.0.cmp(&b.0));
        assert_eq!(sorted, [(0, 'e'), (1, 'b'), (1, 'd'), (2, 'a'), (2, 'c')]);
    }
}
