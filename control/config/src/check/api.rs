//! `[api]`: whoever listens on the network needs tokens, and beyond loopback TLS.

use super::unique;
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

pub(super) fn check(config: &Config, report: &mut Report) {
    let (api, path) = (&config.api, Path::table(Place::Api, 0));
    let listen = path.key("listen");
    let sound = |index: &usize| !report.is_broken(listen.item(*index));
    let sound: Vec<usize> = (0..api.listen.len()).filter(sound).collect();
    for (there, missing, present) in [
        ("certificate", "key", api.certificate.is_some() && api.key.is_none()),
        ("key", "certificate", api.key.is_some() && api.certificate.is_none()),
    ] {
        if present && !report.is_broken(path.key(missing)) {
            let found = format!("`{there}` needs `{missing}` beside it");
            report.error(path.key(there), found, format!("add {missing} = \"/path/of/its.pem\""));
        }
    }
    if !api.listen.is_empty() && api.tokens.is_none() && !report.is_broken(path.key("tokens")) {
        let hint = "add tokens = \"/etc/sluice/tokens\", and to that file the line that `sluice \
                    token new NAME --role read` prints";
        report.error(listen, "nobody could use it: there are no tokens", hint);
    }
    let secure = api.certificate.is_some() || report.is_broken(path.key("certificate"));
    for &index in &sound {
        let at = api.listen[index];
        if !secure && !at.ip().to_canonical().is_loopback() {
            let found = format!("{at} is no loopback address, and there is no certificate");
            let hint = "add certificate and key, or listen on 127.0.0.1 or [::1]: tokens must not \
                        cross a network in the clear";
            report.error(listen.item(index), found, hint);
        }
    }
    unique(sound.into_iter().map(|i| (api.listen[i], listen.item(i))), report, |at, line| {
        (format!("{at} is there already (line {line})"), "name each once".to_owned())
    });
}

pub(super) fn warn(config: &Config, report: &mut Report) {
    let (api, path) = (&config.api, Path::table(Place::Api, 0));
    if api.listen.is_empty() && api.tokens.is_some() {
        let hint = "add listen = [\"127.0.0.1:8443\"], or leave the section out";
        report.warn(path.key("tokens"), "nothing listens on the network", hint);
    }
}
