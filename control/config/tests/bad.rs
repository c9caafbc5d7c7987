//! Wrong configurations and what is said about them: each file in `bad/` has its messages in a
//! snapshot beside it. After a change: `INSTA_UPDATE=always cargo test -p sluice-config`, and read
//! the difference.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_config::Config;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let entries = fs::read_dir(folder).expect("the folder of wrong configurations");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

#[test]
fn each_wrong_file_is_refused_with_these_words() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("bad");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let files = files();
    assert!(files.len() >= 25, "only {} wrong files", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let refused = match Config::parse("sluice.toml", &text) {
            Err(refused) => refused,
            Ok(_) => panic!("{} is accepted", file.display()),
        };
        settings.bind(|| insta::assert_snapshot!(stem, refused));
    }
}

#[test]
fn each_message_says_where_and_what_would_be_right() {
    for file in files() {
        let text = fs::read_to_string(&file).expect("a readable file");
        let refused = Config::parse("sluice.toml", &text).expect_err("a wrong file");
        let lines = text.split('\n').count();
        assert!(!refused.diagnostics().is_empty(), "{}", file.display());
        for diagnostic in refused.diagnostics() {
            let shown = format!("{}: {diagnostic}", file.display());
            assert!((1..=lines).contains(&diagnostic.line), "{shown}");
            assert!(diagnostic.column >= 1, "{shown}");
            assert!(!diagnostic.message.is_empty() && !diagnostic.hint.is_empty(), "{shown}");
            assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
}
