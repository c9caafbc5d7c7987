//! Whatever a file says, something comes of it that the configuration's own checks take.
#![forbid(unsafe_code)]

mod around;

use std::net::IpAddr;

use proptest::prelude::*;
use sluice_config::Config;
use sluice_import::{Files, Imported, Names, Source, ipvsadm_save, keepalived};

/// Every file is this one.
struct Same(String);

impl Files for Same {
    fn include(&mut self, _: &str, _: &str) -> Result<Vec<Source>, String> {
        Ok(vec![Source { name: "other".to_owned(), text: self.0.clone() }])
    }
}

struct Nobody;

impl Names for Nobody {
    fn resolves(&self) -> bool {
        true
    }

    fn host(&mut self, _: &str) -> Option<IpAddr> {
        None
    }

    fn port(&mut self, _: &str, _: &str) -> Option<u16> {
        None
    }
}

fn sound(imported: &Imported) -> Result<(), TestCaseError> {
    let text = around::base(imported) + &imported.toml("a title");
    if let Err(wrong) = Config::parse("any", &text) {
        return Err(TestCaseError::fail(format!("{wrong}\n{text}")));
    }
    Ok(())
}

/// Words that files have, and what stands behind them.
fn word() -> impl Strategy<Value = String> {
    let fixed = "virtual_server virtual_server_group real_server sorry_server group fwmark \
         global_defs local_address_group deny_address_group laddr_group_name daddr_group_name \
         FARM { } { } { } \n \n \n \n \n protocol TCP UDP SCTP lb_algo rr wlc mh sh dh \
         virtual_server match SNAT src-range 192.0.2.1-192.0.2.9 oif out \
         lb_kind NAT DR TUN FNAT delay_loop 3 alpha quorum 2 weight 70000 -1 99999999999 \
         inhibit_on_failure ops persistence_timeout persistence_granularity 255.255.255.0 64 \
         uthreshold lthreshold TCP_CHECK HTTP_GET SSL_GET UDP_CHECK DNS_CHECK SMTP_CHECK \
         PING_CHECK MISC_CHECK FILE_CHECK BFD_CHECK url path / status_code 200-299 regex ( \
         virtualhost www.example.com connect_ip connect_port connect_timeout retry \
         delay_before_retry payload require_reply 00ff misc_path \"/bin/true\" bindto host \
         type name \" ' \\ # ! @main @^main $A $A= $B=$A ${A} ~SEQ(A,1,3) ~SEQ(A,0,0,0) \
         ~LST({A,B},{1,2}) include x 198.51.100.1 198.51.100.1-9 198.51.100.0/29 2001:db8::1 \
         2001:db8::1-f 192.0.2.1 192.0.2.2 80 0 65536 proxy_protocol v2 sh-port \
         virtual_server 198.51.100.2 80 { real_server 192.0.2.3 80 {"
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect::<Vec<_>>();
    prop_oneof![20 => proptest::sample::select(fixed), 1 => ".{0,6}"]
}

fn option() -> impl Strategy<Value = String> {
    let fixed =
        "-A -A -a -a -P -U -O -C -t 198.51.100.1:80 -u 198.51.100.1:53 [2001:db8::1]:80 -r \
         192.0.2.1:80 192.0.2.2 -s rr mh -p 300 -M 255.255.255.0 0 129 -o -b mh-port -g -i -m \
         -J -w 1 99999 -x 5 -y 9 --tun-type gue -z 192.0.2.9 198.51.100.1 -k ipset:a -f 7 -6 \
         --pe sip --proxy-protocol v1 --conn-timeout 5 -H proto=tcp \
         -H proto=udp,src-range=192.0.2.1-192.0.2.9,oif=out -at -w5 \n \n \n \n"
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>();
    prop_oneof![20 => proptest::sample::select(fixed), 1 => ".{0,6}"]
}

/// Whether it is a list of ipvsadm, and the text, of every whole file.
fn whole() -> Vec<(bool, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let mut all = Vec::new();
    for (is_saved, name) in [(false, "keepalived"), (true, "saved")] {
        let entries = std::fs::read_dir(format!("{folder}/{name}")).expect("a folder").flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        let texts = paths.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        all.extend(texts.map(|text| (is_saved, text)));
    }
    all
}

/// Where a piece begins, how long it is, where it goes and how often.
fn cut() -> impl Strategy<Value = (prop::sample::Index, usize, prop::sample::Index, usize)> {
    (any::<prop::sample::Index>(), 0usize..60, any::<prop::sample::Index>(), 0usize..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn of_keepalived(
        words in prop::collection::vec(word(), 0..120),
        other in prop::collection::vec(word(), 0..9),
    ) {
        let source = Source { name: "any".to_owned(), text: words.join(" ") };
        sound(&keepalived(&source, "main", &mut Same(other.join(" "))))?;
    }

    /// Whole files with pieces taken out, said twice, or put elsewhere.
    #[test]
    fn of_spoilt_files(
        which in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(cut(), 1..6),
    ) {
        let all = whole();
        let (is_saved, mut text) = all[which.index(all.len())].clone();
        for (from, len, to, copies) in cuts {
            let at = |place: prop::sample::Index, text: &str| {
                let mut at = place.index(text.len() + 1);
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let from = at(from, &text);
            let mut end = (from + len).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let piece: String = text.drain(from..end).collect();
            let to = at(to, &text);
            text.insert_str(to, &piece.repeat(copies));
        }
        let source = Source { name: "any".to_owned(), text: text.clone() };
        match is_saved {
            true => sound(&ipvsadm_save(&source, &mut Nobody))?,
            false => sound(&keepalived(&source, "main", &mut Same(String::new())))?,
        }
    }

    #[test]
    fn of_ipvsadm(words in prop::collection::vec(option(), 0..60)) {
        let source = Source { name: "any".to_owned(), text: words.join(" ") };
        sound(&ipvsadm_save(&source, &mut Nobody))?;
    }

    #[test]
    fn of_anything(text in "\\PC{0,200}") {
        let source = Source { name: "any".to_owned(), text: text.clone() };
        sound(&keepalived(&source, "main", &mut Same(text)))?;
        sound(&ipvsadm_save(&source, &mut Nobody))?;
    }
}

/// A file that doubles itself at each step ends soon.
#[test]
fn what_grows_without_end_is_cut() {
    let mut text = String::from("$A0=x x x x\n");
    for step in 1..60 {
        let before = step - 1;
        text.push_str(&format!("$A{step}=${{A{before}}} ${{A{before}}}\n"));
    }
    text.push_str("${A59}\n$L= \\\n$L \\\n$L\n$L\ninclude self\n");
    text.push_str("~SEQ(A,1,65536) ~SEQ(B,1,65536) ~SEQ(C,1,65536) x\n");
    let source = Source { name: "any".to_owned(), text: text.clone() };
    let start = std::time::Instant::now();
    let imported = keepalived(&source, "main", &mut Same(text));
    assert!(imported.has_lost());
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Ten thousand services take seconds, not minutes.
#[test]
fn many_services_are_converted_in_time() {
    let mut text = String::new();
    for number in 0..10_000u32 {
        let (a, b) = (number / 250, number % 250 + 1);
        text.push_str(&format!(
            "virtual_server 198.18.{a}.{b} 80 {{\nprotocol TCP\nlb_algo rr\nlb_kind NAT\n\
             notify_up x\nreal_server 192.0.2.1 80 {{\nHTTP_GET {{\nurl {{\n\
             path /{number}\n}}\n}}\n}}\n}}\n"
        ));
    }
    let source = Source { name: "any".to_owned(), text };
    let start = std::time::Instant::now();
    let imported = keepalived(&source, "main", &mut Same(String::new()));
    let services = imported.document()["service"].as_array().map_or(0, Vec::len);
    assert_eq!(services, 10_000);
    assert!(imported.toml("a title").matches("notify_up").count() <= 10_000);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
