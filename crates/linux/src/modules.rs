//! Whether a question to the kernel would make it load a module (law 12: reading changes nothing).

use std::path::Path;

/// True if the kernel has no such part yet and could load it. Nothing that the part keeps can exist then.
///
/// `symbol` is a function of the module: where nothing else tells, its name among the kernel's symbols says that it is
/// built in.
pub(crate) fn would_load(proc: &Path, module: &str, symbol: &str) -> bool {
    // A kernel without loadable modules has no such file: what it has, it has.
    let Ok(loaded) = std::fs::read_to_string(proc.join("modules")) else {
        return false;
    };
    if loaded.lines().any(|line| line.split(' ').next() == Some(module)) {
        return false;
    }
    // Built-in modules with parameters have a directory there too.
    if Path::new("/sys/module").join(module).exists() {
        return false;
    }
    if let Some(listed) = listed_as_built_in(proc, module) {
        return !listed;
    }
    // A container rarely has the node's /lib/modules.
    std::fs::read_to_string(proc.join("kallsyms")).is_ok_and(|symbols| {
        !symbols
            .lines()
            .any(|line| line.split_whitespace().nth(2) == Some(symbol))
    })
}

/// What the running kernel's own list of built-in modules says, where there is one.
fn listed_as_built_in(proc: &Path, module: &str) -> Option<bool> {
    let release = std::fs::read_to_string(proc.join("sys/kernel/osrelease")).ok()?;
    let list = Path::new("/lib/modules")
        .join(release.trim())
        .join("modules.builtin");
    let text = std::fs::read_to_string(list).ok()?;
    let file = format!("/{module}.ko");
    let dashed = file.replace('_', "-");
    Some(
        text.lines()
            .any(|line| line.ends_with(&file) || line.ends_with(&dashed)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proc(modules: Option<&str>, symbols: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        if let Some(modules) = modules {
            std::fs::write(dir.path().join("modules"), modules).unwrap();
        }
        std::fs::write(dir.path().join("kallsyms"), symbols).unwrap();
        dir
    }

    #[test]
    fn only_an_absent_loadable_module_would_be_loaded() {
        let none = proc(None, "");
        assert!(!would_load(none.path(), "nf_nothing", "nf_nothing_get"));
        let loaded = proc(Some("nf_nothing 16384 0 - Live 0x0000000000000000\n"), "");
        assert!(!would_load(loaded.path(), "nf_nothing", "nf_nothing_get"));
        let built_in = proc(
            Some("ext4 1 0 - Live 0x0\n"),
            "0000000000000000 t nf_nothing_get\n",
        );
        assert!(!would_load(built_in.path(), "nf_nothing", "nf_nothing_get"));
        let absent = proc(
            Some("nf_nothing_else 1 0 - Live 0x0\n"),
            "0000000000000000 t nf_nothing_else_get\n",
        );
        assert!(would_load(absent.path(), "nf_nothing", "nf_nothing_get"));
    }
}
