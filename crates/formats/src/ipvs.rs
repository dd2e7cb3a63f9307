//! `ipvsadm -Ln` and `ipvsadm -Sn`.
//!
//! Source: ipvsadm(8); ipvsadm 1.31, `ipvsadm.c` (`print_service_entry`). A line of a virtual server comes before those of
//! its real servers. Names instead of numbers (without `-n`) and statistics (`--stats`, `--rate`) are not read.

use std::{
    io::BufRead,
    net::{IpAddr, SocketAddr},
};

use sexton_core::model::{Family, IpvsForward, IpvsServer, IpvsService, IpvsVirtual, Problem, Proto};

use crate::{
    addr::parse_ip,
    problems::{Problems, each_line},
};

/// Reads the listing as a stream, a line in memory.
///
/// Never fails: what was wrong is a problem with its line, and the rest is used. Real servers of a virtual server that could
/// not be read are left out with it.
pub fn parse(reader: impl BufRead, path: &str) -> (Vec<IpvsVirtual>, Vec<Problem>) {
    let mut out: Vec<IpvsVirtual> = Vec::new();
    let mut problems = Problems::new(path);
    // Whether the line before was of a virtual server that could be read, or of one of its real servers.
    let mut inside = false;
    each_line(reader, &mut problems, |last, text, problems| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = match words.as_slice() {
            [] | ["IP", "Virtual", "Server", ..] | ["->", "RemoteAddress:Port", ..] => return,
            ["Prot", "LocalAddress:Port", "Scheduler", ..] => return,
            ["Prot", ..] => Err("statistics tell no real server's weight; `ipvsadm -Ln` does".to_owned()),
            ["->", rest @ ..] if inside => server_of_list(rest).map(Line::Server),
            ["-a", rest @ ..] if inside => server_of_save(rest, out.last()).map(Line::Server),
            // One problem is enough for a virtual server and all that is its own.
            ["->" | "-a", ..] if !out.is_empty() || last > 1 => return,
            ["-A", rest @ ..] => virtual_of_save(rest).map(Line::Virtual),
            [kind @ ("TCP" | "UDP" | "SCTP" | "FWM"), rest @ ..] => {
                virtual_of_list(kind, rest).map(Line::Virtual)
            }
            _ => {
                let found: String = text.trim().chars().take(60).collect();
                Err(format!(
                    "expected a line of `ipvsadm -Ln` or `-Sn`, found {found:?}"
                ))
            }
        };
        match read {
            Ok(Line::Virtual(service)) => {
                inside = true;
                out.push(service);
            }
            Ok(Line::Server(server)) => {
                if let Some(service) = out.last_mut() {
                    service.servers.push(server);
                }
            }
            Err(what) => {
                inside = inside && words.first().is_some_and(|word| matches!(*word, "->" | "-a"));
                problems.push(last, what);
            }
        }
    });
    (out, problems.finish())
}

/// The virtual servers as `ipvsadm -Sn` prints them.
pub fn print(services: &[IpvsVirtual]) -> String {
    let mut out = String::new();
    for service in services {
        out.push_str(&service.text());
        out.push('\n');
        for server in &service.servers {
            out.push_str(&service.server_text(server));
            out.push('\n');
        }
    }
    out
}

enum Line {
    Virtual(IpvsVirtual),
    Server(IpvsServer),
}

/// `10.0.0.1:80` or `[fd00::1]:80`.
fn address(text: &str) -> Result<(IpAddr, u16), String> {
    let read = || {
        if let Ok(at) = text.parse::<SocketAddr>() {
            return Some((at.ip().to_canonical(), at.port()));
        }
        let (ip, port) = text.rsplit_once(':')?;
        let ip = parse_ip(ip.trim_matches(['[', ']']))?;
        Some((ip, port.parse().ok()?))
    };
    read().ok_or_else(|| format!("not an address with a port: {text:?}"))
}

/// Fills in what follows the scheduler.
fn flags(service: &mut IpvsVirtual, words: &[&str]) -> Result<(), String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} has no value"));
        match *word {
            "persistent" | "-p" => {
                let seconds = value()?;
                let seconds = seconds
                    .parse()
                    .map_err(|_| format!("not a number of seconds: {seconds:?}"))?;
                service.persistent = Some(seconds);
            }
            "mask" | "-M" => service.flags.push(format!("-M {}", value()?)),
            "pe" | "--pe" => service.flags.push(format!("--pe {}", value()?)),
            "-b" => service.flags.push(format!("-b {}", value()?)),
            "ops" | "-o" => service.flags.push("-o".to_owned()),
            other => service.flags.push(other.to_owned()),
        }
    }
    Ok(())
}

fn made(service: IpvsService, scheduler: &str) -> IpvsVirtual {
    IpvsVirtual {
        service,
        scheduler: scheduler.to_owned(),
        persistent: None,
        flags: Vec::new(),
        servers: Vec::new(),
    }
}

/// `TCP  10.96.0.1:443 rr persistent 10800`, `FWM  1 IPv6 wlc`.
fn virtual_of_list(kind: &str, words: &[&str]) -> Result<IpvsVirtual, String> {
    let (service, rest) = match (kind, words) {
        ("FWM", [mark, "IPv6", rest @ ..]) => (by_mark(mark, Family::Ipv6)?, rest),
        ("FWM", [mark, rest @ ..]) => (by_mark(mark, Family::Ipv4)?, rest),
        (kind, [at, rest @ ..]) => (by_address(kind, at)?, rest),
        (_, []) => return Err("a virtual server without an address".to_owned()),
    };
    let [scheduler, rest @ ..] = rest else {
        return Err("a virtual server without a scheduler".to_owned());
    };
    let mut out = made(service, scheduler);
    flags(&mut out, rest)?;
    Ok(out)
}

/// `-t 10.96.0.1:443 -s rr -p 10800`, `-f 1 -6 -s wlc`.
fn virtual_of_save(words: &[&str]) -> Result<IpvsVirtual, String> {
    let (service, rest) = service_of_save(words)?;
    let ["-s", scheduler, rest @ ..] = rest else {
        return Err("a virtual server without a scheduler".to_owned());
    };
    let mut out = made(service, scheduler);
    flags(&mut out, rest)?;
    Ok(out)
}

fn service_of_save<'w, 't>(words: &'w [&'t str]) -> Result<(IpvsService, &'w [&'t str]), String> {
    match words {
        ["-f", mark, "-6", rest @ ..] => Ok((by_mark(mark, Family::Ipv6)?, rest)),
        ["-f", mark, rest @ ..] => Ok((by_mark(mark, Family::Ipv4)?, rest)),
        ["-t", at, rest @ ..] => Ok((by_address("TCP", at)?, rest)),
        ["-u", at, rest @ ..] => Ok((by_address("UDP", at)?, rest)),
        ["--sctp-service", at, rest @ ..] => Ok((by_address("SCTP", at)?, rest)),
        _ => Err("expected -t, -u, --sctp-service or -f with a virtual server".to_owned()),
    }
}

fn by_mark(text: &str, family: Family) -> Result<IpvsService, String> {
    let mark = text.parse().map_err(|_| format!("not a mark: {text:?}"))?;
    Ok(IpvsService::Mark { mark, family })
}

fn by_address(kind: &str, at: &str) -> Result<IpvsService, String> {
    let proto = Proto::parse(kind).ok_or_else(|| format!("not a protocol: {kind:?}"))?;
    let (ip, port) = address(at)?;
    Ok(IpvsService::Address { proto, ip, port })
}

fn weight(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("not a weight: {text:?}"))
}

/// `192.168.1.10:6443            Masq    1      0          0`.
fn server_of_list(words: &[&str]) -> Result<IpvsServer, String> {
    let [at, forward, heavy, rest @ ..] = words else {
        return Err("a real server without its weight".to_owned());
    };
    let (ip, port) = address(at)?;
    let forward = match *forward {
        "Masq" => IpvsForward::Masquerade,
        "Route" | "Local" => IpvsForward::Route,
        "Tunnel" => IpvsForward::Tunnel,
        other => return Err(format!("not a way to forward: {other:?}")),
    };
    let count = |at: usize| rest.get(at).and_then(|text| text.parse().ok());
    Ok(IpvsServer {
        ip,
        port,
        forward,
        weight: weight(heavy)?,
        connections: count(0).zip(count(1)),
    })
}

/// `-t 10.96.0.1:443 -r 192.168.1.10:6443 -m -w 1`.
fn server_of_save(words: &[&str], of: Option<&IpvsVirtual>) -> Result<IpvsServer, String> {
    let (service, rest) = service_of_save(words)?;
    if of.is_none_or(|of| of.service != service) {
        return Err(format!(
            "a real server of {service}, which is not the one before it"
        ));
    }
    let ["-r", at, forward, "-w", heavy, ..] = rest else {
        return Err("expected -r, a way to forward and -w".to_owned());
    };
    let (ip, port) = address(at)?;
    let forward = match *forward {
        "-m" => IpvsForward::Masquerade,
        "-g" => IpvsForward::Route,
        "-i" => IpvsForward::Tunnel,
        other => return Err(format!("not a way to forward: {other:?}")),
    };
    Ok(IpvsServer {
        ip,
        port,
        forward,
        weight: weight(heavy)?,
        connections: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr persistent 10800
  -> 192.168.1.10:6443            Masq    1      2          0
  -> 192.168.1.11:6443            Masq    0      0          7
UDP  [fd00::a]:53 rr ops
  -> [fd00:10::5]:53              Route   1      0          0
SCTP 10.96.0.9:7 wlc
FWM  1 IPv6 wlc persistent 60 mask 64
  -> [fd00:10::6]:0               Tunnel  1      0          0
";
    const SAVE: &str = "-A -t 10.96.0.1:443 -s rr -p 10800
-a -t 10.96.0.1:443 -r 192.168.1.10:6443 -m -w 1
-a -t 10.96.0.1:443 -r 192.168.1.11:6443 -m -w 0
-A -u [fd00::a]:53 -s rr -o
-a -u [fd00::a]:53 -r [fd00:10::5]:53 -g -w 1
-A --sctp-service 10.96.0.9:7 -s wlc
-A -f 1 -6 -s wlc -p 60 -M 64
-a -f 1 -6 -r [fd00:10::6]:0 -i -w 1
";

    #[test]
    fn both_forms_are_the_same() {
        let (mut listed, problems) = parse(LIST.as_bytes(), "p");
        assert_eq!(problems, []);
        let (saved, problems) = parse(SAVE.as_bytes(), "p");
        assert_eq!(problems, []);
        assert_eq!(listed[0].servers[1].connections, Some((0, 7)));
        let servers = listed.iter_mut().flat_map(|service| &mut service.servers);
        servers.for_each(|server| server.connections = None);
        assert_eq!(listed, saved);
        assert_eq!(print(&saved), SAVE);
        assert_eq!(saved.len(), 4);
    }

    #[test]
    fn what_is_wrong_is_named_once_with_its_line() {
        let text = "TCP  x:443 rr\n  -> 192.168.1.10:6443 Masq 1 0 0\nhello\n\
            TCP  10.0.0.1:1 rr\n  -> y Masq 1 0 0\n  -> 10.0.0.2:1 Masq 1 0 0\n\
            -a -t 10.0.0.9:1 -r 10.0.0.3:1 -m -w 1\nProt LocalAddress:Port Conns InPkts\n";
        let (services, problems) = parse(text.as_bytes(), "p");
        assert_eq!(services.len(), 1);
        assert_eq!(services[0].servers.len(), 1);
        let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["p:1", "p:3", "p:5", "p:7", "p:8"]);
    }

    fn any_server() -> impl Strategy<Value = IpvsServer> {
        let forward = prop_oneof![
            Just(IpvsForward::Masquerade),
            Just(IpvsForward::Route),
            Just(IpvsForward::Tunnel)
        ];
        (any::<[u8; 4]>(), any::<u16>(), forward, 0..65_536).prop_map(|(ip, port, forward, weight)| {
            IpvsServer {
                ip: ip.into(),
                port,
                forward,
                weight,
                connections: None,
            }
        })
    }

    fn any_virtual() -> impl Strategy<Value = IpvsVirtual> {
        let proto = prop_oneof![Just(Proto::Tcp), Just(Proto::Udp), Just(Proto::Sctp)];
        let by_address =
            (proto, any::<u128>(), any::<u16>()).prop_map(|(proto, ip, port)| IpvsService::Address {
                proto,
                ip: IpAddr::from(ip.to_be_bytes()).to_canonical(),
                port,
            });
        let family = prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)];
        let by_mark = (any::<u32>(), family).prop_map(|(mark, family)| IpvsService::Mark { mark, family });
        let flags = proptest::collection::vec("(-o|-M 255[.]0[.]0[.]0|--pe sip|-b flag-1)", 0..3);
        (
            prop_oneof![by_address, by_mark],
            "(rr|wlc|mh)",
            proptest::option::of(any::<u32>()),
            flags,
            proptest::collection::vec(any_server(), 0..4),
        )
            .prop_map(|(service, scheduler, persistent, flags, servers)| IpvsVirtual {
                service,
                scheduler,
                persistent,
                flags,
                servers,
            })
    }

    proptest! {
        #[test]
        fn what_was_printed_is_read_back(all in proptest::collection::vec(any_virtual(), 0..5)) {
            let (read, problems) = parse(print(&all).as_bytes(), "p");
            prop_assert_eq!(problems, vec![]);
            prop_assert_eq!(read, all);
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (services, _) = parse(bytes.as_slice(), "p");
            let _ = print(&services);
        }
    }
}
