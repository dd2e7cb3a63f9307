//! What CNI plugins keep in files: host-local's leases, cached results, configuration.
//!
//! A directory that is not there holds nothing: that is complete. One that may not be read is unavailable.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sexton_core::model::{CacheEntry, CniConfig, Completeness, CorruptFile, Facts, IpamStore, Problem};
use sexton_formats::cni::{LeaseFile, read_cache, read_config, read_lease};

use crate::options::LinuxOptions;
use crate::source::Watch;

/// No file of these kinds is as long; a longer one is something else.
const LONGEST: u64 = 4 << 20;

/// What the files told.
#[derive(Debug, Default)]
pub(crate) struct FilesReading {
    pub(crate) config: Facts<Vec<CniConfig>>,
    pub(crate) ipam: Facts<IpamStore>,
    pub(crate) cache: Facts<Vec<CacheEntry>>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads configuration first: it names the data directories.
pub(crate) fn read(options: &LinuxOptions) -> FilesReading {
    let mut problems = Vec::new();
    let config = configs(&options.cni_config_dirs, &mut problems);
    let mut data_dirs = vec![options.cni_data_dir.clone()];
    for plugin in config.value.iter().flat_map(|config| &config.plugins) {
        if let Some(dir) = &plugin.data_dir {
            let dir = PathBuf::from(dir);
            if !data_dirs.contains(&dir) {
                data_dirs.push(dir);
            }
        }
    }
    FilesReading {
        ipam: leases(&data_dirs),
        cache: cache(&options.cni_cache_dir, &mut problems),
        config,
        problems,
    }
}

fn configs(dirs: &[PathBuf], problems: &mut Vec<Problem>) -> Facts<Vec<CniConfig>> {
    let watch = Watch::start("cni/config");
    let mut out = Vec::new();
    let mut worst = Completeness::Complete;
    for dir in dirs {
        let files = match entries(dir) {
            Ok(files) => files,
            Err(why) => {
                worst = worst.max(Completeness::Unavailable(why));
                continue;
            }
        };
        for file in files {
            let path = file.path();
            let known = path.extension().is_some_and(|extension| {
                ["conf", "conflist", "json"]
                    .iter()
                    .any(|known| extension == *known)
            });
            if !known {
                continue;
            }
            match content(&path) {
                Ok(Some(bytes)) => {
                    let (config, wrong) = read_config(&path.display().to_string(), &bytes);
                    out.extend(config);
                    problems.extend(wrong);
                }
                Ok(None) => {}
                Err(why) => worst = worst.max(Completeness::Partial(why)),
            }
        }
    }
    let items = out.len();
    watch.facts(out, worst, items)
}

fn leases(dirs: &[PathBuf]) -> Facts<IpamStore> {
    let watch = Watch::start("ipam/host-local");
    let mut store = IpamStore::default();
    let mut worst = Completeness::Complete;
    let networks = dirs.iter().flat_map(|dir| match entries(dir) {
        Ok(networks) => networks,
        Err(why) => {
            worst = worst.clone().max(Completeness::Unavailable(why));
            Vec::new()
        }
    });
    let networks: Vec<PathBuf> = networks
        .map(|network| network.path())
        .filter(|path| path.is_dir())
        .collect();
    for network in networks {
        let files = match entries(&network) {
            Ok(files) => files,
            Err(why) => {
                worst = worst.max(Completeness::Partial(why));
                continue;
            }
        };
        for file in files {
            let path = file.path();
            let name = path.display().to_string();
            match content(&path) {
                Ok(Some(bytes)) => match read_lease(&name, &bytes, modified_at(&file)) {
                    LeaseFile::Lease(lease) => store.leases.push(lease),
                    LeaseFile::Corrupt(file) => store.corrupt.push(file),
                    LeaseFile::Other => {}
                },
                Ok(None) => {}
                Err(why) => store.corrupt.push(CorruptFile { path: name, why }),
            }
        }
    }
    let items = store.leases.len() + store.corrupt.len();
    watch.facts(store, worst, items)
}

fn cache(dir: &Path, problems: &mut Vec<Problem>) -> Facts<Vec<CacheEntry>> {
    let watch = Watch::start("cni/cache");
    let files = match entries(dir) {
        Ok(files) => files,
        Err(why) => return watch.unavailable(why),
    };
    let mut out = Vec::new();
    let mut worst = Completeness::Complete;
    for file in files {
        let path = file.path();
        match content(&path) {
            Ok(Some(bytes)) => {
                let (entry, wrong) = read_cache(&path.display().to_string(), &bytes, modified_at(&file));
                out.extend(entry);
                problems.extend(wrong);
            }
            Ok(None) => {}
            Err(why) => worst = worst.max(Completeness::Partial(why)),
        }
    }
    let items = out.len();
    watch.facts(out, worst, items)
}

/// What a directory holds, by name in order; nothing where it is not there.
fn entries(dir: &Path) -> Result<Vec<DirEntry>, String> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut out = listing.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    out.sort_by_key(DirEntry::file_name);
    Ok(out)
}

/// A plain file's content; none for anything else and for what went meanwhile.
fn content(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !about.is_file() {
        return Ok(None);
    }
    if about.len() > LONGEST {
        return Err(format!(
            "{}: {} bytes are too many for such a file",
            path.display(),
            about.len()
        ));
    }
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn modified_at(file: &DirEntry) -> Option<Timestamp> {
    let modified = file.metadata().ok()?.modified().ok()?;
    Timestamp::try_from(modified).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> (tempfile::TempDir, LinuxOptions) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let options = LinuxOptions {
            cni_config_dirs: vec![at("net.d"), at("no-such")],
            cni_data_dir: at("networks"),
            cni_cache_dir: at("results"),
            ..LinuxOptions::default()
        };
        for path in ["net.d", "networks/lab", "own/other", "results"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        (dir, options)
    }

    #[test]
    fn leases_of_every_configured_store_are_read() {
        let (dir, options) = node();
        let at = |path: &str| dir.path().join(path);
        let own = at("own").display().to_string();
        let config = format!(
            r#"{{"cniVersion":"1.0.0","name":"other","plugins":[{{"type":"bridge","ipam":{{"type":"host-local","dataDir":"{own}"}}}}]}}"#
        );
        fs::write(at("net.d/10-other.conflist"), config).unwrap();
        fs::write(at("net.d/note.txt"), "not a configuration").unwrap();
        let id = "a".repeat(64);
        fs::write(at("networks/lab/10.77.0.2"), format!("{id}\r\neth0")).unwrap();
        fs::write(at("networks/lab/10.77.0.3"), "").unwrap();
        fs::write(at("networks/lab/lock"), "").unwrap();
        fs::write(at("networks/lab/last_reserved_ip.0"), "10.77.0.3").unwrap();
        fs::write(at("own/other/fd00::7"), format!("{id}\r\neth0")).unwrap();
        fs::write(at("results/lab-x-eth0"), "{").unwrap();

        let read = read(&options);
        assert!(read.config.is_complete() && read.config.value.len() == 1);
        assert!(read.ipam.is_complete());
        let ips: Vec<_> = read
            .ipam
            .value
            .leases
            .iter()
            .map(|lease| lease.ip.to_string())
            .collect();
        assert_eq!(ips, ["10.77.0.2", "fd00::7"]);
        assert!(
            read.ipam
                .value
                .leases
                .iter()
                .all(|lease| lease.modified_at.is_some())
        );
        assert_eq!(read.ipam.value.corrupt.len(), 1);
        assert_eq!(read.problems.len(), 1, "{:?}", read.problems);
    }

    #[test]
    fn a_directory_that_is_not_there_is_empty_and_one_that_is_none_is_unavailable() {
        let (dir, mut options) = node();
        options.cni_cache_dir = dir.path().join("no-such");
        assert!(read(&options).cache.is_complete());
        fs::write(dir.path().join("file"), "").unwrap();
        options.cni_cache_dir = dir.path().join("file");
        assert!(matches!(
            read(&options).cache.completeness,
            Completeness::Unavailable(_)
        ));
    }
}
