//! What is measured: the page for Prometheus, and the last hour.
//!
//! Neither asks the workers anything: the daemon takes a sample a second, and answers from the
//! last.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::routing::get;
use axum::{Json, Router};

use super::{Answer, Asked, Desk, no_parameters, no_such_name, pairs};
use crate::call::{Call, Exposition};
use crate::model::{Rates, RatesQuery};
use crate::problem::Problem;
use crate::query::{WrongValue, parse_limit};

/// The resources.
pub(super) fn router() -> Router<Arc<Desk>> {
    Router::new().route("/metrics", get(metrics)).route("/v1/rates", get(rates))
}

type Page = ([(HeaderName, &'static str); 2], Bytes);

/// The page, in the format that the scraper likes best.
async fn metrics(
    State(desk): Asked,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Page, Problem> {
    no_parameters(query.as_deref())?;
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let exposition = preferred(accept);
    let page = desk.ask(|reply| Call::Metrics(exposition, reply)).await?;
    let headers = [(header::CONTENT_TYPE, exposition.media_type()), (header::VARY, "accept")];
    Ok((headers, page))
}

/// The format with the highest weight (RFC 9110, 12.5.1); text if nothing is said.
fn preferred<'a>(accept: impl Iterator<Item = &'a str>) -> Exposition {
    let mut best = [0.0_f64; 2];
    for range in accept.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let at = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => 1,
            "text/plain" | "text/*" | "*/*" => 0,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        best[at] = best[at].max(weight);
    }
    if best[1] > 0.0 && best[1] >= best[0] { Exposition::OpenMetrics } else { Exposition::Text }
}

async fn rates(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Rates> {
    let query = rates_query(query.as_deref())?;
    let name = query.service.clone().unwrap_or_default();
    let found = desk.ask(|reply| Call::Rates(query, reply)).await?;
    let wrong = |known: Vec<String>| {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        Problem::wrong_value("service", no_such_name(&name, &known))
    };
    found.map(Json).map_err(wrong)
}

fn rates_query(text: Option<&str>) -> Result<RatesQuery, Problem> {
    let mut query = RatesQuery::default();
    for (parameter, value) in pairs(text) {
        let wrong = |wrong| Problem::wrong_value(&parameter, wrong);
        match &*parameter {
            "service" => query.service = Some(value.into_owned()),
            "since" => query.since_unix_ms = Some(unix_ms(&value).map_err(wrong)?),
            "step" => {
                let step = parse_limit(&value, RatesQuery::MAX_STEP_S).map_err(wrong)?;
                query.step_s = Some(step);
            }
            other => {
                return Err(Problem::unknown_parameter(other, &["service", "since", "step"]));
            }
        }
    }
    Ok(query)
}

fn unix_ms(text: &str) -> Result<u64, WrongValue> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e11).contains(&seconds) => Ok((seconds * 1e3).round() as u64),
        _ => Err(WrongValue::new(text, "a time in seconds since 1970-01-01 UTC")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_is_liked_best() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, wanted) in [
            (prometheus, Exposition::OpenMetrics),
            ("", Exposition::Text),
            ("*/*", Exposition::Text),
            ("text/html, text/plain", Exposition::Text),
            ("application/openmetrics-text;q=0.2, text/plain; q=0.9", Exposition::Text),
            ("application/openmetrics-text;q=0", Exposition::Text),
            ("Application/OpenMetrics-Text", Exposition::OpenMetrics),
        ] {
            assert_eq!(preferred([accept].into_iter()), wanted, "{accept}");
        }
    }

    #[test]
    fn a_query_is_read_as_the_client_writes_it() {
        let query = RatesQuery {
            service: Some("web & more".to_owned()),
            since_unix_ms: Some(1_790_000_000_250),
            step_s: Some(60),
        };
        let text =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(query.pairs()).finish();
        assert_eq!(rates_query(Some(&text)), Ok(query));
        for (text, parameter) in
            [("since=now", "since"), ("since=-1", "since"), ("step=0", "step"), ("top=1", "top")]
        {
            let blame = rates_query(Some(text)).expect_err(text).blame.expect(text);
            assert_eq!(blame.parameter, parameter);
        }
    }
}
