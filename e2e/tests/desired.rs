//! Changes at run time by the API's interface: traffic goes on, changes outlive the director,
//! nobody changes what is another's.

use std::fs;
use std::net::SocketAddr;

use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Bed, Director, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// A real server of the web service.
fn real(index: usize) -> String {
    SocketAddr::new(Bed::real_address(index).parse().expect("an address"), 80).to_string()
}

/// Which of the web service's real servers got sessions, by the counters.
fn opened(fixture: &Fixture) -> Result<Vec<u64>, LabError> {
    let said = fixture.director.ask("services")?;
    let web = said["services"].as_array().into_iter().flatten().find(|it| it["name"] == "web");
    let reals = web.and_then(|web| web["reals"].as_array().cloned()).unwrap_or_default();
    let counts = reals.iter().map(|real| real["sessions_total"].as_u64());
    let counts: Option<Vec<u64>> = counts.collect();
    counts.filter(|counts| !counts.is_empty()).ok_or_else(|| LabError::Unreadable {
        what: "`sluice services --json`".to_owned(),
        text: said.to_string(),
    })
}

fn epoch(fixture: &Fixture) -> Result<u64, LabError> {
    Ok(fixture.director.ask("status")?["config_epoch"].as_u64().unwrap_or_default())
}

#[test]
fn a_drained_real_server_gets_no_new_sessions() {
    on(here!(a_drained_real_server_gets_no_new_sessions), Setup::usual(), |fixture| {
        fixture.answers(6)?;
        // The only real server of this service: what is open must go on, what is new is refused.
        let mut held = fixture.hold(&fixture.server(LINES_PORT), 5)?;
        let lines = SocketAddr::new(Bed::real_address(0).parse().expect("an address"), LINES_PORT);
        fixture.director.sluice(&["real", "drain", "lines", &lines.to_string()])?;
        fixture.director.sluice(&["real", "drain", "web", &real(0)])?;
        let before = opened(fixture)?;
        fixture.answers(12)?;
        let after = opened(fixture)?;
        expect(after[0] == before[0], || format!("it got new sessions: {before:?} {after:?}"))?;
        expect(after[1] > before[1], || format!("the others got none: {before:?} {after:?}"))?;
        let ended = held.wait(SOON)?;
        expect(ended.success(), || format!("the open session broke: {}", held.log_tail(5)))?;
        fixture.director.sluice(&["real", "enable", "web", &real(0)])?;
        fixture.answers(6)?;
        let again = opened(fixture)?;
        expect(again[0] > after[0], || format!("it is not back: {after:?} {again:?}"))
    });
}

#[test]
fn changes_outlive_a_killed_director() {
    on(here!(changes_outlive_a_killed_director), Setup::usual(), |fixture| {
        let vip = fixture.bed.vip().to_owned();
        let url = format!("http://{vip}:81");
        let (first, second) = (real(0), real(1));
        let add = [
            "service",
            "add",
            "extra",
            "--protocol",
            "tcp",
            "--vip",
            &vip,
            "--port",
            "81",
            "--pool",
            "lan",
            "--real",
            &first,
            "--real",
            &second,
        ];
        fixture.director.sluice(&add)?;
        fixture.director.sluice(&["real", "set", "web", &real(2), "--weight", "0"])?;
        curl(&fixture.bed.client, &url)?;
        let known = epoch(fixture)?;
        fixture.director.kill()?;
        // What a crash in the middle of a write leaves: the beginning of a record.
        let journal = fixture.director.config().with_file_name("state").join("journal");
        let mut bytes = fs::read(&journal).map_err(LabError::file("reading the journal"))?;
        bytes.extend(&bytes.clone()[16..40]);
        fs::write(&journal, &bytes).map_err(LabError::file("writing the journal"))?;
        fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
        fixture.director.wait_for_words("torn or damaged", SOON)?;
        expect(epoch(fixture)? == known, || "another epoch is in force".to_owned())?;
        fixture.wait_for_answer(SOON)?;
        curl(&fixture.bed.client, &url)?;
        let before = opened(fixture)?;
        fixture.answers(9)?;
        let after = opened(fixture)?;
        expect(after[2] == before[2], || format!("the weight is lost: {before:?} {after:?}"))?;
        let told = fixture.director.sluice(&["config", "history"])?;
        for words in ["service \"extra\": added", "override (none) -> weight 0", "api", "file"] {
            expect(told.contains(words), || format!("no word of {words} in:\n{told}"))?;
        }
        fixture.director.sluice(&["config", "rollback", &(known - 2).to_string()])?;
        let ran = fixture.bed.client.run("curl", &["-sS", "--max-time", "1", &url])?;
        expect(!ran.status.success(), || "it still answers after the rollback".to_owned())?;
        fixture.answers(3).map(drop)
    });
}

#[test]
fn what_is_the_files_is_the_files() {
    on(here!(what_is_the_files_is_the_files), Setup::usual(), |fixture| {
        let vip = fixture.bed.vip().to_owned();
        let told = |args: &[&str]| match fixture.director.sluice(args) {
            Ok(said) => Err(LabError::Wrong(format!("accepted: {said}"))),
            Err(error) => Ok(error.to_string()),
        };
        let said = told(&["service", "delete", "web"])?;
        expect(said.contains("belongs to file"), || said)?;
        let said = told(&[
            "service",
            "add",
            "rival",
            "--protocol",
            "tcp",
            "--vip",
            &vip,
            "--port",
            "80",
            "--pool",
            "lan",
        ])?;
        expect(said.contains("\"web\"") && said.contains("belongs to file"), || said)?;
        fixture.answers(3)?;
        // The file may not take what is the API's either; what runs goes on.
        fixture.director.sluice(&[
            "service",
            "add",
            "extra",
            "--protocol",
            "tcp",
            "--vip",
            &vip,
            "--port",
            "81",
            "--pool",
            "lan",
        ])?;
        let text = fixture.recipe.text(&fixture.bed);
        fixture.director.reload(&text.replacen("port = 80\n", "port = 81\n", 1))?;
        fixture.director.wait_for_words("belongs to api", SOON)?;
        fixture.answers(3).map(drop)
    });
}

/// A download and a busy session across hundreds of changes.
#[test]
fn changes_harm_no_session() {
    on(here!(changes_harm_no_session), Setup::usual(), |fixture| {
        let mut held = fixture.hold(&fixture.server(LINES_PORT), 8)?;
        let before = epoch(fixture)?;
        // Weights are put in force as they are; what else changes is compiled.
        let script = format!(
            "ask() {{ curl -s --fail-with-body --unix-socket {} -X $1 --json \"$2\" \
             http://d/v1/config/services/$3 || exit 1; }}
             for i in $(seq 100); do
                 ask PATCH '{{\"weight\": '$i'}}' web/reals/{}
                 [ $((i % 5)) != 0 ] || ask PUT '{{\"protocol\": \"tcp\", \"vip\": \"{}\", \
                 \"mode\": \"nat\", \"port\": '$((9000 + i))'}}' other
             done",
            fixture.director.socket().display(),
            real(1),
            fixture.bed.vip(),
        );
        let space = fixture.bed.director.clone();
        let changes = std::thread::spawn(move || space.run("sh", &["-c", &script]));
        while !changes.is_finished() {
            fixture.answers(3)?;
        }
        let ran = changes.join().map_err(|_| LabError::Wrong("it panicked".into()))??;
        expect(ran.status.success(), || format!("refused: {}{}", ran.stdout, ran.stderr))?;
        let made = epoch(fixture)? - before;
        // A weight of 1 is what is configured.
        expect(made == 119, || format!("{made} epochs"))?;
        let ended = held.wait(SOON)?;
        expect(ended.success(), || format!("the open session broke: {}", held.log_tail(5)))?;
        wait_until("the workers to have the last plan", SOON, || {
            let status = fixture.director.ask("status")?;
            Ok(status["plan_epoch"].as_u64().filter(|plan| *plan > 1))
        })?;
        let services = fixture.director.ask("services")?;
        let reals = services["services"][0]["reals"].as_array().cloned().unwrap_or_default();
        let weighed = reals.iter().any(|real| real["weight"] == 100);
        expect(weighed, || format!("not the last weight: {services}"))?;
        fixture.answers(6).map(drop)
    });
}
