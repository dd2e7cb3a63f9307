//! Recordings of a size.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::objects::{SERVICES, endpoint_ip, service_ip};
use super::pod_ip;
use crate::error::LabError;

/// Writes what `conntrack -L` would print, until it is this many bytes long. Every tenth entry is of UDP to a Service, which is what rules
/// look at; every second one is of TCP.
///
/// # Errors
///
/// [`LabError::File`] when it cannot be written.
pub fn write_conntrack(path: &Path, bytes: u64) -> Result<u64, LabError> {
    let error = || LabError::file("write", path);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(error())?);
    let (mut written, mut number) = (0, 0_usize);
    while written < bytes {
        let (a, b, port) = (number / 250 % 250, number % 250 + 1, 1024 + number % 60_000);
        let client = format!("10.200.{a}.{b}");
        let line = if number % 10 == 0 {
            let service = number / 10 % SERVICES;
            format!(
                "udp      17 {} src={client} dst={} sport={port} dport=53 src={} dst={client} sport=53 dport={port} [ASSURED] mark=0 use=1\n",
                number % 180,
                service_ip(service),
                endpoint_ip(service, number)
            )
        } else if number % 2 == 0 {
            format!(
                "udp      17 {} src={client} dst=172.20.0.2 sport={port} dport=123 [UNREPLIED] src=172.20.0.2 dst={client} sport=123 dport={port} mark=0 use=1\n",
                number % 30
            )
        } else {
            format!(
                "tcp      6 {} ESTABLISHED src={client} dst=10.96.2.{b} sport={port} dport=443 src={} dst={client} sport=8443 dport={port} [ASSURED] mark=0 use=1\n",
                number % 432_000,
                pod_ip(number)
            )
        };
        file.write_all(line.as_bytes()).map_err(error())?;
        written += line.len() as u64;
        number += 1;
    }
    file.flush().map_err(error())?;
    Ok(number as u64)
}
