//! What a node wants of the kernel, and whether its machine may swap.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::Value;

use super::super::layout::Layout;
use super::cgroup::{CgroupVersion, cgroup_version};
use super::error::Error;
use super::{KERNEL_SETTINGS, Settings};

/// Sets what of [`KERNEL_SETTINGS`] is not so, for a kubelet that may not do it itself; the settings that were changed.
///
/// # Errors
/// Names the setting that cannot be read or written.
pub fn set_kernel(layout: &Layout) -> Result<Vec<&'static str>, Error> {
    let mut changed = Vec::new();
    for (name, wanted) in KERNEL_SETTINGS {
        let path = layout.root().join("proc/sys").join(name);
        let failed = |source| Error::Read {
            path: path.clone(),
            source,
        };
        if std::fs::read_to_string(&path).map_err(failed)?.trim() == wanted {
            continue;
        }
        // Written in place: it is no file.
        let opened = OpenOptions::new().write(true).open(&path);
        opened
            .and_then(|mut file| file.write_all(wanted.as_bytes()))
            .map_err(failed)?;
        changed.push(name);
    }
    Ok(changed)
}

/// Whether the kubelet will run although the machine swaps: its pods are kept out of swap where cgroups can do that, and
/// otherwise when the user says so.
#[must_use]
pub fn tolerates_swap(layout: &Layout, settings: &Settings) -> bool {
    match settings.kubelet.get("failSwapOn") {
        Some(said) => *said == Value::Bool(false),
        None => match cgroup_version(layout.root()) {
            CgroupVersion::Two => true,
            CgroupVersion::One => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn only_what_is_otherwise_is_set() {
        let files = KERNEL_SETTINGS.map(|(name, _)| (format!("proc/sys/{name}"), "1\n"));
        let files: Vec<(&str, &str)> = files.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let root = machine(&files);
        let layout = Layout::under(root.path());
        let changed = set_kernel(&layout).unwrap();
        assert_eq!(changed.len(), KERNEL_SETTINGS.len() - 2, "{changed:?}");
        assert_eq!(set_kernel(&layout).unwrap(), Vec::<&str>::new());
        std::fs::remove_file(layout.root().join("proc/sys/kernel/panic")).unwrap();
        assert!(set_kernel(&layout).unwrap_err().to_string().contains("kernel/panic"));
    }

    #[test]
    fn the_user_has_the_last_word_about_swap() {
        let said = |value: Option<bool>| Settings {
            kubelet: value
                .map(|value| ("failSwapOn".to_owned(), value.into()))
                .into_iter()
                .collect(),
            ..Settings::default()
        };
        let two = machine(&[("sys/fs/cgroup/cgroup.controllers", "cpu\n")]);
        let one = machine(&[]);
        let tolerates = |root: &std::path::Path, value| tolerates_swap(&Layout::under(root), &said(value));
        assert!(tolerates(two.path(), None) && !tolerates(one.path(), None));
        assert!(!tolerates(two.path(), Some(true)) && tolerates(one.path(), Some(false)));
    }
}
