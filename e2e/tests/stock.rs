//! Debian's own `ipvsadm`, unmodified, with the preloaded library: what the tests share.

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::{Bed, Director, LabError, Ran};

use crate::dual_stack::bare;
use crate::fixture::{Fixture, Setup, on_bed};

/// How a program is to reach IPVS: both interfaces of the kernel.
pub const DOORS: [&str; 2] = ["netlink", "sockopt"];

/// Runs a test with both families, without services.
pub fn on_empty(name: &str, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    on_bed(
        name,
        Setup { recipe: bare(), ..Setup::usual() },
        |bed, recipe| {
            bed.add_ipv6()?;
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        test,
    );
}

/// Runs `sluice run-ipvsadm` beside the director, whatever comes of it.
pub fn run(fixture: &Fixture, options: &[&str], args: &[&str]) -> Result<Ran, LabError> {
    let socket = fixture.director.socket().to_string_lossy().into_owned();
    let before = ["--socket", &socket, "run-ipvsadm"];
    let all = [&before[..], options, &["--"], args].concat();
    fixture.bed.director.run(&program("sluice")?.to_string_lossy(), &all)
}

/// A stock command that works; gives what it printed.
pub fn ipvsadm(fixture: &Fixture, line: &str) -> Result<String, LabError> {
    let args: Vec<&str> = line.split_whitespace().collect();
    Ok(run(fixture, &[], &args)?.ok()?.stdout)
}

/// A command line, its exit code, and what it prints (or, when it fails, complains of).
pub type Row<'a> = (&'a str, i32, &'a str);

/// Runs commands one after the other by one interface, and holds them to what is expected.
pub fn rows(fixture: &Fixture, interface: &str, rows: &[Row]) -> Result<(), LabError> {
    for &(line, code, words) in rows {
        let args: Vec<&str> = line.split_whitespace().collect();
        let ran = run(fixture, &["--interface", interface], &args)?;
        let said = if code == 0 { &ran.stdout } else { &ran.stderr };
        let fits = ran.status.code() == Some(code) && said.contains(words);
        expect(fits, || {
            format!("{interface}: ipvsadm {line}: expected {code} and {words:?}: {ran:?}")
        })?;
    }
    Ok(())
}

/// A real server's end point in a stock command.
pub fn real(index: usize) -> String {
    format!("{}:80", Bed::real_address(index))
}
