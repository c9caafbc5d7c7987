//! Many changes at once, as a restore asks for them: what each would do by itself, checked,
//! compiled and written once for all of them.

use crate::daemon::Daemon;
use sluice_ipvs::{Answer, Errno, Reply, Request};
use sluice_ipvs_source::Refused;
use sluice_state::{Author, Edit, State, stage};

/// Makes the changes, and answers each.
pub(super) fn change(daemon: &mut Daemon, requests: &[Request], by: &Author) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(requests.len());
    for run in requests.chunk_by(|one, other| edits_state(one) && edits_state(other)) {
        match together(daemon, run, by) {
            Some(all) => answers.extend(all),
            None => answers.extend(run.iter().map(|request| alone(daemon, request, by))),
        }
    }
    answers
}

/// Whether a request does nothing but change the desired state.
fn edits_state(request: &Request) -> bool {
    request.changes() && !matches!(request, Request::Zero(_) | Request::Many(_))
}

/// All of a run as one change, unless that is refused as a whole: then nothing has happened, and
/// which of them is to blame shows when each is made by itself.
fn together(daemon: &mut Daemon, run: &[Request], by: &Author) -> Option<Vec<Answer>> {
    if run.len() == 1 {
        return None;
    }
    let mut draft = daemon.configured.desired.state().clone();
    let mut all = Vec::new();
    let mut answers = Vec::with_capacity(run.len());
    for request in run {
        answers.push(match drafted(&mut draft, request, by) {
            Ok(edits) => {
                all.extend(edits);
                Answer::Ok(Reply::Done)
            }
            Err(refused) => refused.into(),
        });
    }
    if !all.is_empty() {
        super::commit(daemon, all, by).ok()?;
        let done = run.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Answer::Ok(_)));
        done.for_each(|(request, _)| super::tell(daemon, request, by));
    }
    Some(answers)
}

/// What a request does to the state after those before it.
fn drafted(draft: &mut State, request: &Request, by: &Author) -> Result<Vec<Edit>, Refused> {
    let edits = sluice_ipvs_source::edits(draft, request)?;
    stage(draft, by, &edits)?;
    Ok(edits)
}

fn alone(daemon: &mut Daemon, request: &Request, by: &Author) -> Answer {
    if !request.changes() || matches!(request, Request::Many(_)) {
        let detail = "only changes can be asked for together, each by itself";
        return Answer::Refused { errno: Errno::Inval, detail: detail.to_owned() };
    }
    match super::change_by(daemon, request, by) {
        Ok(reply) => Answer::Ok(reply),
        Err(refused) => refused.into(),
    }
}
