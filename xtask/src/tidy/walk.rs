//! Which files are the repository's own: everything below the root but build output, git's own
//! folder and what tests and fuzzers write.

use std::fs;
use std::path::Path;

/// Folders that hold nothing a person wrote.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "corpus", "artifacts"];

/// Names and endings of files that people write and the rules are about.
const ENDINGS: [&str; 12] =
    ["rs", "c", "h", "py", "sh", "js", "css", "html", "toml", "md", "yml", "service"];

/// One text file of the repository.
pub struct SourceFile {
    /// Path relative to the root, with `/`.
    pub path: String,
    /// Its whole content.
    pub content: String,
}

impl SourceFile {
    /// The part of the name after the last dot; empty when there is none.
    pub fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, ending)| ending)
    }

    /// The file's name without folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether it is program text: the size rules do not hold for documents and settings.
    pub fn is_code(&self) -> bool {
        matches!(self.extension(), "rs" | "c" | "h" | "py" | "sh" | "js" | "css")
    }
}

/// Reads every text file below `root`, sorted by path.
pub fn files(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut found = Vec::new();
    descend(root, "", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn descend(root: &Path, below: &str, found: &mut Vec<SourceFile>) -> Result<(), String> {
    let folder = root.join(below);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(|e| format!("{path}: {e}"))?;
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                descend(root, &path, found)?;
            }
        } else if kind.is_file() && wanted(&name) {
            let content = fs::read_to_string(root.join(&path));
            found.push(SourceFile { content: content.map_err(|e| format!("{path}: {e}"))?, path });
        }
    }
    Ok(())
}

fn wanted(name: &str) -> bool {
    name == "Makefile" || name.rsplit_once('.').is_some_and(|(_, end)| ENDINGS.contains(&end))
}
