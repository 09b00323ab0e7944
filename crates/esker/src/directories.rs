//! Where this program keeps files of its own: the XDG base directories on Unix, the local application data on Windows.

use std::env;
use std::path::PathBuf;

/// What a person would miss: the history of inputs.
pub fn state() -> Option<PathBuf> {
    own("XDG_STATE_HOME", ".local/state")
}

/// What can be made again: figures of disks.
pub fn cache() -> Option<PathBuf> {
    own("XDG_CACHE_HOME", ".cache")
}

fn own(variable: &str, in_home: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        // A relative path in these variables is invalid, and to be ignored.
        set(variable).filter(|d| d.is_absolute()).or_else(|| Some(set("HOME")?.join(in_home)))
    };
    Some(directory?.join("esker"))
}
