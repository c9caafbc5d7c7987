//! The control socket's file: whose it is, and where it may be.

use sluice_api::{ApiError, Call, Options, Server, group_id};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn answer(call: Call) {
    panic!("nobody asks: {call:?}");
}

/// Only root may give a file to any group.
#[test]
fn the_socket_is_its_groups() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let own = std::fs::metadata(folder.path()).expect("a folder");
    let group = if own.uid() == 0 { 4_321 } else { own.gid() };
    let options = Options { group: Some(group), ..Options::default() };
    let _server = Server::start_with(&path, Box::new(answer), options).expect("a server");
    let socket = std::fs::metadata(&path).expect("a socket");
    assert_eq!((socket.gid(), socket.permissions().mode() & 0o777), (group, 0o660));
    assert_eq!((group_id("root"), group_id("17"), group_id("no such")), (Some(0), Some(17), None));
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x".repeat(120));
    let error = Server::start(&path, Box::new(answer)).expect_err("too long");
    assert!(matches!(error, ApiError::Listen { .. }), "{error}");
}
