use std::net::IpAddr;

use sexton_core::model::ContainerId;

use super::*;

struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("networks/lab")).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lease(&self, ip: &str, id: char) -> Lease {
        let path = self.path("networks/lab").join(ip);
        let content = format!("{}\r\neth0", id.to_string().repeat(64));
        fs::write(&path, &content).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let path = path.display().to_string();
        let LeaseFile::Lease(lease) = read_lease(
            &path,
            content.as_bytes(),
            Some(Timestamp::try_from(modified).unwrap()),
        ) else {
            panic!("no lease")
        };
        lease
    }

    fn quarantined(&self) -> Vec<String> {
        let dir = self.path(".sexton-quarantine/networks/lab");
        let Ok(listing) = fs::read_dir(dir) else {
            return Vec::new();
        };
        let mut names: Vec<_> = listing
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn done() -> Applied {
    Applied::Done { skipped: Vec::new() }
}

#[test]
fn a_lease_goes_into_quarantine_and_comes_back_unchanged() {
    let store = Store::new();
    let lease = store.lease("10.77.0.2", 'a');
    assert_eq!(quarantine(&lease), done());
    assert!(!Path::new(&lease.path).exists());
    assert_eq!(store.quarantined(), [format!("10.77.0.2.{}", "a".repeat(64))]);
    assert_eq!(quarantine(&lease), Applied::AlreadyGone);
    assert_eq!(restore(&lease), done());
    assert_eq!(fs::read_to_string(&lease.path).unwrap(), lease.content);
    let modified = fs::metadata(&lease.path).unwrap().modified().unwrap();
    assert_eq!(Timestamp::try_from(modified).ok(), lease.modified_at);
    assert_eq!(restore(&lease), Applied::AlreadyGone);
    assert_eq!(quarantine(&lease), done());
}

#[test]
fn another_holder_and_a_second_writing_are_refused() {
    let store = Store::new();
    let lease = store.lease("10.77.0.2", 'a');
    let other = store.lease("10.77.0.2", 'b');
    assert!(matches!(quarantine(&lease), Applied::Changed(_)));
    assert_eq!(fs::read_to_string(&lease.path).unwrap(), other.content);
    // The same container once more: an ADD that is tried again.
    let mut again = store.lease("10.77.0.3", 'a');
    again.modified_at = again.modified_at.map(|t| t - Duration::from_secs(1));
    assert!(matches!(quarantine(&again), Applied::Changed(_)));
    assert!(store.quarantined().is_empty());
}

#[test]
fn an_address_that_was_given_away_is_not_taken_back() {
    let store = Store::new();
    let lease = store.lease("10.77.0.2", 'a');
    assert_eq!(quarantine(&lease), done());
    let other = store.lease("10.77.0.2", 'b');
    assert!(matches!(restore(&lease), Applied::Changed(_)));
    assert_eq!(fs::read_to_string(&lease.path).unwrap(), other.content);
    assert_eq!(store.quarantined().len(), 1);
}

#[test]
fn the_same_lease_twice_lies_side_by_side() {
    let store = Store::new();
    assert_eq!(quarantine(&store.lease("fd00::7", 'a')), done());
    let second = store.lease("fd00::7", 'a');
    assert_eq!(quarantine(&second), done());
    assert_eq!(store.quarantined().len(), 2);
    assert_eq!(restore(&second), done());
}

#[test]
fn the_plugins_lock_is_waited_for() {
    let store = Store::new();
    let lease = store.lease("10.77.0.2", 'a');
    let lock = File::create(store.path("networks/lab/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| quarantine(&lease));
        std::thread::sleep(Duration::from_millis(100));
        assert!(Path::new(&lease.path).exists(), "not while the plugin holds it");
        drop(lock);
        assert_eq!(worker.join().unwrap(), done());
    });
}

#[test]
fn what_is_no_lease_is_not_moved() {
    let store = Store::new();
    let mut lease = store.lease("10.77.0.2", 'a');
    for path in [
        "networks/lab/lock",
        "networks/lab/last_reserved_ip.0",
        "networks/lab/../lab/10.77.0.2",
    ] {
        lease.path = store.path(path).display().to_string();
        assert!(matches!(quarantine(&lease), Applied::Failed(_)), "{path}");
    }
    lease.path = store.path("networks/lab/10.77.0.2").display().to_string();
    lease.container = ContainerId::new("other");
    assert!(matches!(quarantine(&lease), Applied::Failed(_)));
    lease = store.lease("10.77.0.2", 'a');
    lease.ip = IpAddr::from([10, 77, 0, 3]);
    assert!(matches!(quarantine(&lease), Applied::Failed(_)));
}
