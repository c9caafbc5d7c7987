//! The files themselves. Each is named here once; a test holds that nothing else is in the folder.

/// A file as it is served.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Where it is served.
    pub path: &'static str,
    /// What is served.
    pub content: &'static str,
}

impl File {
    /// Its media type, by the ending of its name.
    pub fn media_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map_or("", |(_, ending)| ending) {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        }
    }

    /// Its entity tag, in quotes: the same content has the same one in every program.
    pub fn tag(&self) -> String {
        let bytes = self.content.as_bytes();
        format!("\"{:08x}-{:x}\"", crc32c::crc32c(bytes), bytes.len())
    }
}

/// The page at `/`, and files at `/assets/NAME` from `static/NAME`.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[
            File { path: "/", content: include_str!("../static/index.html") },
            $(File {
                path: concat!("/assets/", $name),
                content: include_str!(concat!("../static/", $name)),
            },)+
        ]
    };
}

/// Every file of the dashboard.
pub const FILES: &[File] = files![
    "api.js",
    "app.js",
    "change.js",
    "colours.css",
    "config.js",
    "dom.js",
    "elephants.js",
    "events.js",
    "feed.js",
    "findings.js",
    "format.js",
    "forms.css",
    "frame.css",
    "hour.js",
    "icon.svg",
    "overview.js",
    "parts.css",
    "parts.js",
    "plot.js",
    "router.js",
    "scale.js",
    "service.js",
    "services.js",
    "signin.js",
    "sync.js",
    "table.js",
    "tables.css",
    "theme.js",
    "traffic.js",
    "workers.js",
];
