//! Results as they were printed with `--json`.

use crate::error::BenchError;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// All that were found, by the names of their files.
pub struct Results(pub Vec<Value>);

/// A figure; one that is missing is no number.
pub fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or(f64::NAN)
}

/// A word; one that is missing is a question mark.
pub fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or("?")
}

impl Results {
    /// Reads every file of a folder that is named *.json.
    pub fn read(folder: &Path) -> Result<Self, BenchError> {
        let wrong = |path: &Path, source: std::io::Error| BenchError::Machine {
            what: path.display().to_string(),
            source,
        };
        let entries = fs::read_dir(folder).map_err(|error| wrong(folder, error))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(folder, error))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let mut all = Vec::new();
        for path in paths {
            let text = fs::read_to_string(&path).map_err(|error| wrong(&path, error))?;
            let result = parse(&text)
                .map_err(|what| BenchError::Result { file: path.display().to_string(), what })?;
            all.push(result);
        }
        Ok(Self(all))
    }

    /// The results of a command.
    pub fn of(&self, command: &str) -> Vec<&Value> {
        self.0.iter().filter(|result| result["command"] == command).collect()
    }
}

fn parse(text: &str) -> Result<Value, String> {
    let result: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match result["command"].is_string() {
        true => Ok(result),
        false => Err("no \"command\": not printed with --json".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_others_refused() {
        let result = parse(r#"{"command": "cps", "tsc_ghz": 2.5}"#).unwrap();
        assert_eq!((number(&result, "tsc_ghz"), text(&result, "command")), (2.5, "cps"));
        assert!(number(&result, "missing").is_nan() && text(&result, "tsc_ghz") == "?");
        assert!(parse("{}").unwrap_err().contains("--json"));
        assert!(parse("{").unwrap_err().contains("line 1"));
    }

    #[test]
    fn a_folder_is_read_in_order() {
        let folder = std::env::temp_dir().join(format!("sluice-results-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in [
            ("b.json", r#"{"command": "cps", "n": 2}"#),
            ("a.json", r#"{"command": "cps", "n": 1}"#),
            ("c.txt", "no result"),
        ] {
            fs::write(folder.join(name), content).unwrap();
        }
        let results = Results::read(&folder).unwrap();
        let numbers: Vec<_> = results.of("cps").iter().map(|result| number(result, "n")).collect();
        assert_eq!(numbers, [1.0, 2.0]);
        fs::write(folder.join("d.json"), "[]").unwrap();
        let error = Results::read(&folder).err().unwrap().to_string();
        assert!(error.contains("d.json"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
        assert!(Results::read(&folder).is_err());
    }
}
