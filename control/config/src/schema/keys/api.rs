//! `[api]`

use super::*;

const A_FILE: &str = "the absolute path of a file";

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Api,
    name: "api",
    heading: "[api]",
    about: "The API over the network, beside the control socket. Without it nothing listens on the \
            network. Certificate, key and tokens are read again at each reload, and all of this \
            changes without breaking what is under way. See docs/api.md.",
    keys: &[&LISTEN, &CERTIFICATE, &KEY, &TOKENS, &NAMES],
    sections: &[],
};

pub(crate) static LISTEN: Key = Key {
    name: "listen",
    kind: Texts("an address and a port such as \"127.0.0.1:8443\" or \"[::1]:8443\""),
    without: Without::Unset("nothing listens on the network"),
    example: "[\"127.0.0.1:8443\"]",
    about: "Where to listen. HTTPS when there is a certificate; without one only loopback \
            addresses may be named, and HTTP is spoken.",
};
pub(crate) static CERTIFICATE: Key = Key {
    name: "certificate",
    kind: Text(A_FILE),
    without: Without::Unset("plain HTTP, on loopback addresses only"),
    example: "\"/etc/sluice/api.crt\"",
    about: "PEM file with the certificate, followed by those that lead to its authority.",
};
pub(crate) static KEY: Key = Key {
    name: "key",
    kind: Text(A_FILE),
    without: Without::Unset("none; needed with `certificate`"),
    example: "\"/etc/sluice/api.key\"",
    about: "PEM file with the certificate's private key (PKCS#8, PKCS#1 or SEC1), which only its \
            owner and group may read.",
};
pub(crate) static TOKENS: Key = Key {
    name: "tokens",
    kind: Text(A_FILE),
    without: Without::Unset("none; needed with `listen`"),
    example: "\"/etc/sluice/tokens\"",
    about: "File that says who may use the API over the network, one a line: name, role (`read`, \
            `operate`, `admin`) and SHA-256 of the token, as `sluice token new NAME --role ROLE` \
            prints it. Only its owner and group may read it.",
};
pub(crate) static NAMES: Key = Key {
    name: "names",
    kind: Texts("the name of a machine such as \"lb1.example.com\""),
    without: Without::Unset("localhost, addresses, and the names of the certificate"),
    example: "[\"lb1.example.com\"]",
    about: "What browsers may call the director by besides, for instance where a reverse proxy \
            stands before it. A request whose `Host` is another name is refused: see docs/api.md.",
};
