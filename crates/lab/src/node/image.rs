//! The one image of the lab, made by hand so that nothing is pulled: busybox that sleeps.

use sha2::{Digest, Sha256};

/// Name of the image.
pub(crate) const IMAGE: &str = "lab.test/pause:1";

/// Where Debian's `busybox-static` has its program.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// A `docker save` archive of an image with one layer that holds `busybox`.
///
/// # Errors
///
/// What writing to memory can fail with: a path too long for tar, which these are not.
pub(crate) fn archive(busybox: &[u8]) -> std::io::Result<Vec<u8>> {
    let layer = layer(busybox)?;
    let digest = hex(&Sha256::digest(&layer));
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest =
        serde_json::json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    let mut whole = tar::Builder::new(Vec::new());
    file(
        &mut whole,
        "manifest.json",
        0o644,
        manifest.to_string().as_bytes(),
    )?;
    file(&mut whole, "config.json", 0o644, config.to_string().as_bytes())?;
    file(&mut whole, "layer.tar", 0o644, &layer)?;
    whole.into_inner()
}

fn layer(busybox: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for dir in ["bin/", "tmp/", "etc/", "proc/", "sys/", "dev/"] {
        let mut header = header(0o755, 0);
        header.set_entry_type(tar::EntryType::Directory);
        layer.append_data(&mut header, dir, std::io::empty())?;
    }
    file(&mut layer, "bin/busybox", 0o755, busybox)?;
    for applet in ["sh", "sleep", "ip", "cat", "nc"] {
        let mut header = header(0o777, 0);
        header.set_entry_type(tar::EntryType::Symlink);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    layer.into_inner()
}

fn file(archive: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]) -> std::io::Result<()> {
    archive.append_data(&mut header(mode, content.len() as u64), name, content)
}

fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
