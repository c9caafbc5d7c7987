//! What a browser is told about each file, and what the files may not contain.
#![forbid(unsafe_code)]

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use sluice_web::{FILES, SECURITY_POLICY, router};
use tower::ServiceExt;

async fn ask(method: Method, path: &str, known: Option<&str>) -> (StatusCode, HeaderMap, String) {
    let app: Router = router();
    let request = Request::builder().method(method).uri(path);
    let request = match known {
        Some(tag) => request.header(header::IF_NONE_MATCH, tag),
        None => request,
    };
    let answer = app.oneshot(request.body(Body::empty()).expect("a request")).await;
    let answer = answer.expect("an answer");
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).expect("text"))
}

#[tokio::test]
async fn each_file_comes_with_its_type_and_the_policy() {
    for file in FILES {
        let (status, headers, body) = ask(Method::GET, file.path, None).await;
        assert_eq!((status, &*body), (StatusCode::OK, file.content), "{}", file.path);
        assert_eq!(headers[header::CONTENT_TYPE], file.media_type());
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], SECURITY_POLICY);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
    }
    let kind = |path: &str| FILES.iter().find(|file| file.path == path).map(|it| it.media_type());
    assert_eq!(kind("/"), Some("text/html; charset=utf-8"));
    assert_eq!(kind("/assets/app.js"), Some("text/javascript; charset=utf-8"));
    assert_eq!(kind("/assets/frame.css"), Some("text/css; charset=utf-8"));
    assert_eq!(kind("/assets/icon.svg"), Some("image/svg+xml"));
}

#[tokio::test]
async fn what_a_browser_has_is_not_sent_again() {
    let (_, headers, _) = ask(Method::GET, "/", None).await;
    let tag = headers[header::ETAG].to_str().expect("text").to_owned();
    let weak = format!("\"old\", W/{tag}");
    for known in [&*tag, &*weak, "*"] {
        let (status, headers, body) = ask(Method::GET, "/", Some(known)).await;
        assert_eq!((status, &*body), (StatusCode::NOT_MODIFIED, ""), "{known}");
        assert_eq!(headers[header::ETAG], *tag);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], SECURITY_POLICY);
    }
    let (status, _, _) = ask(Method::GET, "/", Some("\"another\"")).await;
    assert_eq!(status, StatusCode::OK);
    let mut tags: Vec<_> = FILES.iter().map(|file| file.tag()).collect();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), FILES.len());
}

#[tokio::test]
async fn files_are_only_read() {
    let (status, _, body) = ask(Method::HEAD, "/", None).await;
    assert_eq!((status, &*body), (StatusCode::OK, ""));
    let (status, ..) = ask(Method::POST, "/", None).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/assets", "/assets/", "/assets/../Cargo.toml", "/index.html", "/v1/status"] {
        let (status, ..) = ask(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn every_file_of_the_folder_is_served_and_they_are_small() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/static");
    let mut there: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .map(|name| if name == "index.html" { "/".to_owned() } else { format!("/assets/{name}") })
        .collect();
    there.sort();
    let mut served: Vec<_> = FILES.iter().map(|file| file.path.to_owned()).collect();
    served.sort();
    assert_eq!(there, served);
    let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
    assert!(bytes < 150_000, "{bytes} bytes in all");
}

/// The policy would stop each of these in the browser; here it is seen before.
#[test]
fn no_file_makes_markup_of_text_or_asks_elsewhere() {
    const NEVER: [&str; 10] = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "setAttribute(\"style\"",
        "@import",
        "url(",
        "javascript:",
    ];
    for file in FILES {
        for never in NEVER {
            assert!(!file.content.contains(never), "{}: {never}", file.path);
        }
        let elsewhere = file.content.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("//www.") && !elsewhere.contains("http"), "{}", file.path);
    }
    let page = FILES.iter().find(|file| file.path == "/").expect("the page").content;
    for never in ["<style", " style=", " onclick", " onload"] {
        assert!(!page.contains(never), "{never}");
    }
    assert!(page.matches("<script").count() == page.matches("<script src=").count() + 1);
}
