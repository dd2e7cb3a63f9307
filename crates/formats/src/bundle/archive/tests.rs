use std::io::{Cursor, Write as _};

use flate2::{Compression, write::GzEncoder};
use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;

/// A tar of files, with anything that `more` appends.
fn tar_with(files: &[(&str, &[u8])], more: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mtime(1_700_000_000);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    more(&mut builder);
    builder.into_inner().unwrap()
}

/// An entry whose path the tar writer would refuse.
fn raw_entry(builder: &mut tar::Builder<Vec<u8>>, path: &[u8], kind: EntryType, content: &[u8]) {
    let mut header = tar::Header::new_old();
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, content) in files {
        writer.start_file(*path, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

type Visited = Vec<(FileEntry, Result<Vec<u8>, String>)>;

fn visit(bytes: &[u8], limits: Limits) -> (Visited, Result<Vec<Unread>, VisitError>) {
    let mut visited = Vec::new();
    let mut archive = Archive::new(Cursor::new(bytes), limits);
    let result = archive.visit(&mut |entry, reader| {
        let mut content = Vec::new();
        let read = reader.read_to_end(&mut content);
        visited.push((
            entry.clone(),
            read.map(|_| content).map_err(|err| err.to_string()),
        ));
        ControlFlow::Continue(())
    });
    (visited, result)
}

fn entry(path: &str, size: u64, mtime: Option<i64>) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        size: Some(size),
        mtime: mtime.map(|seconds| Timestamp::from_second(seconds).unwrap()),
    }
}

#[test]
fn every_kind_of_archive_gives_its_files_twice() {
    let files: [(&str, &[u8]); 2] = [("./a/pods.json", b"{}"), ("b.txt", b"text")];
    let tar = tar_with(&files, |builder| {
        raw_entry(builder, b"dir/", EntryType::Directory, b"")
    });
    for (bytes, mtime) in [
        (tar.clone(), Some(1_700_000_000)),
        (gzip(&tar), Some(1_700_000_000)),
        (zip_of(&files), None),
    ] {
        let mut archive = Archive::new(Cursor::new(&bytes), Limits::default());
        for _ in 0..2 {
            let mut visited = Vec::new();
            let refused = archive
                .visit(&mut |entry, reader| {
                    let mut content = Vec::new();
                    reader.read_to_end(&mut content).unwrap();
                    visited.push((entry.clone(), content));
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(refused, []);
            assert_eq!(
                visited,
                [
                    (entry("a/pods.json", 2, mtime), b"{}".to_vec()),
                    (entry("b.txt", 4, mtime), b"text".to_vec())
                ]
            );
        }
    }
}

#[test]
fn links_and_paths_that_leave_are_refused() {
    let tar = tar_with(&[("good.txt", b"x")], |builder| {
        raw_entry(builder, b"../../etc/passwd", EntryType::Regular, b"x");
        raw_entry(builder, b"/etc/passwd", EntryType::Regular, b"x");
        raw_entry(builder, b"pods.json", EntryType::Symlink, b"");
        raw_entry(builder, b"nodes.json", EntryType::Link, b"");
        raw_entry(builder, b"fifo", EntryType::Fifo, b"");
    });
    let (visited, refused) = visit(&tar, Limits::default());
    assert_eq!(visited.len(), 1);
    let unread = |path: &str, why: &str| Unread {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    assert_eq!(
        refused.unwrap(),
        [
            unread("../../etc/passwd", "the path leaves the bundle"),
            unread("/etc/passwd", "the path is absolute"),
            unread("pods.json", "a link"),
            unread("nodes.json", "a link"),
            unread("fifo", "a special file"),
        ]
    );
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer
        .start_file("good.txt", SimpleFileOptions::default())
        .unwrap();
    writer
        .start_file("../../etc/passwd", SimpleFileOptions::default())
        .unwrap();
    writer
        .start_file("C:\\windows\\x", SimpleFileOptions::default())
        .unwrap();
    writer
        .add_symlink("pods.json", "/etc/passwd", SimpleFileOptions::default())
        .unwrap();
    let zip = writer.finish().unwrap().into_inner();
    let (visited, refused) = visit(&zip, Limits::default());
    assert_eq!(visited.len(), 1);
    assert_eq!(
        refused
            .unwrap()
            .iter()
            .map(|u| u.why.as_str())
            .collect::<Vec<_>>(),
        ["the path leaves the bundle", "the path is absolute", "a link"]
    );
}

#[test]
fn bombs_end_at_the_limits() {
    let zeros = vec![0_u8; 4 << 20];
    let limits = Limits {
        ratio_after: 1 << 20,
        ..Limits::default()
    };
    let (visited, _) = visit(
        &zip_of(&[("a.txt", b"x"), ("bomb.txt", &zeros), ("b.txt", b"x")]),
        limits,
    );
    assert_eq!(
        visited[1].1,
        Err("more than 200 bytes decompressed for each compressed one: a zip bomb".to_owned())
    );
    assert_eq!(
        (&visited[0].1, &visited[2].1),
        (&Ok(b"x".to_vec()), &Ok(b"x".to_vec()))
    );
    let bomb = gzip(&tar_with(
        &[("a.txt", b"x"), ("bomb.txt", &zeros), ("b.txt", b"x")],
        |_| (),
    ));
    let (visited, result) = visit(&bomb, limits);
    assert_eq!(visited.len(), 2);
    let err = result.unwrap_err();
    assert_eq!(err.to_string(), "cannot read the bundle after \"bomb.txt\"");
    assert_eq!(
        std::error::Error::source(&err).unwrap().to_string(),
        "more than 200 bytes decompressed for each compressed one: a zip bomb"
    );
    // One that is only skipped ends too.
    let mut archive = Archive::new(Cursor::new(&bomb), limits);
    assert!(archive.visit(&mut |_, _| ControlFlow::Continue(())).is_err());
    let (_, result) = visit(
        &tar_with(&[("big.txt", &zeros)], |_| ()),
        Limits {
            total: 1 << 20,
            ..Limits::default()
        },
    );
    assert!(result.is_err());
}

#[test]
fn a_cut_archive_gives_what_came_before() {
    let content = vec![b'x'; 3000];
    let tar = tar_with(&[("a.txt", &content), ("b.txt", &content)], |_| ());
    for cut in 1..tar.len() - 1024 {
        let (visited, result) = visit(&tar[..cut], Limits::default());
        assert!(result.is_err(), "cut at {cut}");
        for (entry, content) in visited {
            assert!(
                content.as_ref().map_or(true, |content| content.len() == 3000),
                "cut at {cut}: {entry:?}"
            );
        }
    }
    let gz = gzip(&tar);
    let (_, result) = visit(&gz[..gz.len() / 2], Limits::default());
    assert!(result.is_err());
    let zip = zip_of(&[("a.txt", &content)]);
    assert!(visit(&zip[..zip.len() - 30], Limits::default()).1.is_err());
}

#[test]
fn what_is_no_archive_is_said_so() {
    for bytes in [&b""[..], b"x", b"hello, this is a text", &gzip(b"only a text")] {
        let (_, result) = visit(bytes, Limits::default());
        assert!(matches!(result, Err(VisitError::NotAnArchive)), "{result:?}");
    }
    assert!(matches!(
        visit(&[b'x'; 2000], Limits::default()).1,
        Err(VisitError::NotAnArchive)
    ));
}
