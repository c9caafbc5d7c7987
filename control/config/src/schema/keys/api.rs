//! `[api]`

use super::*;

const A_FILE: &str = "the absolute path of a file";

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Api,
    name: "api",
    heading: "[api]",
    about: "The API over the network, in addition to the control socket. Without it nothing \
            listens on the network. Each reload rereads certificate, key and tokens, and all of \
            this changes without breaking open connections. See docs/api.md.",
    keys: &[&LISTEN, &CERTIFICATE, &KEY, &TOKENS, &NAMES],
    sections: &[],
};

pub(crate) static LISTEN: Key = Key {
    name: "listen",
    kind: Texts("an address and a port such as \"127.0.0.1:8443\" or \"[::1]:8443\""),
    without: Without::Unset("nothing listens on the network"),
    example: "[\"127.0.0.1:8443\"]",
    about: "Addresses to listen on. With a certificate the director speaks HTTPS; without one it \
            speaks HTTP, on loopback addresses only.",
};
pub(crate) static CERTIFICATE: Key = Key {
    name: "certificate",
    kind: Text(A_FILE),
    without: Without::Unset("plain HTTP, on loopback addresses only"),
    example: "\"/etc/sluice/api.crt\"",
    about: "PEM file with the certificate, followed by its chain.",
};
pub(crate) static KEY: Key = Key {
    name: "key",
    kind: Text(A_FILE),
    without: Without::Unset("none; needed with `certificate`"),
    example: "\"/etc/sluice/api.key\"",
    about: "PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1), readable by its \
            owner and group only.",
};
pub(crate) static TOKENS: Key = Key {
    name: "tokens",
    kind: Text(A_FILE),
    without: Without::Unset("none; needed with `listen`"),
    example: "\"/etc/sluice/tokens\"",
    about: "File of API tokens for access over the network, one per line: name, role (`read`, \
            `operate`, `admin`) and SHA-256 of the token, as `sluice token new NAME --role ROLE` \
            prints it. Readable by its owner and group only.",
};
pub(crate) static NAMES: Key = Key {
    name: "names",
    kind: Texts("the name of a machine such as \"lb1.example.com\""),
    without: Without::Unset("localhost, addresses, and the names of the certificate"),
    example: "[\"lb1.example.com\"]",
    about: "Additional host names by which clients may address the director, for instance behind a \
            reverse proxy. A request with another `Host` is refused: see docs/api.md.",
};
