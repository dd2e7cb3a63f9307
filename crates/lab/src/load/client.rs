//! One client each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::summary::{Count, Kind, Line};
use crate::echo::banner;
use crate::truth::{Protocol, Target};

/// A request that is not answered by then has failed. The kernel sends a SYN again after one second, which would hide a lost one.
const PATIENCE: Duration = Duration::from_millis(990);

/// When a datagram, or a line on a stream, counts as lost. Nobody sends datagrams again, so a late answer hides nothing; how late it was is
/// in the longest gap.
const LOST: Duration = Duration::from_secs(5);

/// How many connections of one client may be open at once.
const MOST_OPEN: usize = 256;

fn address(target: &Target) -> SocketAddr {
    SocketAddr::new(target.ip.into(), target.port)
}

/// Whether a banner is that of the right Pod. Its port is the Pod's own, which differs from the one that was asked.
fn is_right(line: &str, target: &Target) -> Result<(), String> {
    let wanted = banner(&target.uid, 0);
    let prefix = wanted.trim_end().trim_end_matches('0');
    if line.starts_with(prefix) {
        Ok(())
    } else {
        Err(format!("answered by {:?}", line.trim_end()))
    }
}

async fn open(target: &Target) -> Result<BufReader<TcpStream>, String> {
    let stream = TcpStream::connect(address(target))
        .await
        .map_err(|error| format!("connect: {error}"))?;
    // A line and its answer at a time.
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::with_capacity(512, stream);
    let mut line = String::new();
    stream
        .read_line(&mut line)
        .await
        .map_err(|error| format!("banner: {error}"))?;
    is_right(&line, target)?;
    Ok(stream)
}

async fn within<T>(patience: Duration, what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(patience, what)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {patience:?}")))
}

/// New connections, `rate` a second, each tried once.
pub(super) async fn connections(target: Arc<Target>, rate: u32, mut stopped: watch::Receiver<bool>) -> Line {
    let mut count = Count::new();
    let (start, pause, mut sent) = (Instant::now(), Duration::from_secs(1) / rate, 0);
    let mut open_now: JoinSet<Result<(), String>> = JoinSet::new();
    let ended = |ended: Result<Result<(), String>, tokio::task::JoinError>| {
        ended.unwrap_or_else(|error| Err(format!("the client ended early: {error}")))
    };
    while !*stopped.borrow() {
        tokio::select! {
            biased;
            Some(done) = open_now.join_next() => count.took(ended(done)),
            _ = stopped.changed() => {}
            () = sleep_until(start + pause * sent), if open_now.len() < MOST_OPEN => {
                // By the clock from the start, so that what a busy machine was late for is made up and the rate holds.
                sent += 1;
                let target = target.clone();
                open_now.spawn(async move { within(PATIENCE, open(&target)).await.map(drop) });
            }
        }
    }
    while let Some(done) = open_now.join_next().await {
        count.took(ended(done));
    }
    count.line(&target, Kind::Connections)
}

/// One connection on which numbered lines go out and must come back in order. If it breaks it is opened again, and that counts as a failure.
pub(super) async fn stream(target: Arc<Target>, pause: Duration, mut stopped: watch::Receiver<bool>) -> Line {
    let mut count = Count::new();
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = None;
    let mut number = 0_u64;
    loop {
        tokio::select! {
            // Asked first: after a second without an answer the tick is always due too.
            biased;
            _ = stopped.changed() => break,
            _ = tick.tick() => {}
        }
        number += 1;
        let outcome = within(LOST, async {
            let stream = match &mut connection {
                Some(stream) => stream,
                None => connection.insert(open(&target).await?),
            };
            let sent = format!("{number}\n");
            stream
                .get_mut()
                .write_all(sent.as_bytes())
                .await
                .map_err(|error| format!("write: {error}"))?;
            let mut line = String::new();
            stream
                .read_line(&mut line)
                .await
                .map_err(|error| format!("read: {error}"))?;
            if line == sent {
                Ok(())
            } else {
                Err(format!("sent {number}, got {line:?}"))
            }
        })
        .await;
        if outcome.is_err() {
            connection = None;
        }
        count.took(outcome);
    }
    count.line(&target, Kind::Stream)
}

/// Numbered datagrams from one port, so that all of them are one connection in the kernel's table.
pub(super) async fn sequence(
    target: Arc<Target>,
    pause: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Line {
    debug_assert_eq!(target.protocol, Protocol::Udp);
    let mut count = Count::new();
    let socket = async {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(address(&target)).await?;
        Ok::<UdpSocket, std::io::Error>(socket)
    };
    let socket = match socket.await {
        Ok(socket) => socket,
        Err(error) => {
            count.took(Err(format!("socket: {error}")));
            return count.line(&target, Kind::Datagrams);
        }
    };
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut buffer = [0; 2048];
    let mut waiting: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut number = 0_u64;
    let mut end = None;
    loop {
        while let Some(entry) = waiting.first_entry()
            && entry.get().elapsed() > LOST
        {
            count.took(Err(format!(
                "datagram {}: no answer within {LOST:?}",
                entry.key()
            )));
            entry.remove();
        }
        // After the stop only the answers that are on their way are waited for.
        if end.is_some_and(|end| waiting.is_empty() || Instant::now() > end) {
            break;
        }
        tokio::select! {
            _ = stopped.changed(), if end.is_none() => end = Some(Instant::now() + LOST),
            _ = tick.tick() => {
                if end.is_none() {
                    number += 1;
                    waiting.insert(number, Instant::now());
                    if let Err(error) = socket.send(number.to_string().as_bytes()).await {
                        waiting.remove(&number);
                        count.took(Err(format!("send: {error}")));
                    }
                }
            }
            received = socket.recv(&mut buffer) => match received {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    let mut words = text.split(' ');
                    let (uid, answered) = (words.next().unwrap_or_default(), words.nth(1).and_then(|word| word.parse().ok()));
                    if uid != target.uid {
                        count.took(Err(format!("answered by {text:?}")));
                        answered.and_then(|number: u64| waiting.remove(&number));
                    } else if let Some(number) = answered
                        && waiting.remove(&number).is_some()
                    {
                        count.took(Ok(()));
                    }
                }
                // ICMP: the datagram it is about is counted when its time is over.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
    for (number, _) in waiting {
        count.took(Err(format!("datagram {number}: no answer")));
    }
    count.line(&target, Kind::Datagrams)
}
