//! nftables (`linux/netfilter/nf_tables.h`): tables, sets and maps with their elements, chains and rules.

use std::collections::HashMap;

use futures::StreamExt as _;
use nlink::Connection;
use nlink::netlink::Nftables;
use nlink::netlink::nftables::{
    ChainInfo, Family, NFT_MSG_GETSET, NFT_MSG_GETSETELEM, Verdict, nft_msg_type,
};
use sexton_core::model::{NftChain, NftElement, NftFamily, NftRule, NftSet, NftState, NftValue};

use super::attrs::{AttrIter, be32, be64, push_text, text};
use super::nft_rule::{AnonymousSets, rule};
use super::nft_value::{decode, decode_range, type_name};
use super::{DUMP_TRIES, NetlinkError, SILENCE, block_on, dump, is_torn};

const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_OBJ_TYPE: u16 = 15;

const NFT_SET_ANONYMOUS: u32 = 0x1;
const NFT_SET_INTERVAL: u32 = 0x4;
const NFT_SET_MAP: u32 = 0x8;
const NFT_SET_OBJECT: u32 = 0x40;
pub(super) const NFT_SET_CONCAT: u32 = 0x80;
pub(super) const NFT_DATA_VERDICT: u32 = 0xffff_ff00;

pub(super) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(super) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(super) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(super) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(super) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(super) const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
pub(super) const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
pub(super) const NFTA_SET_ELEM_USERDATA: u16 = 6;
const NFTA_SET_ELEM_OBJREF: u16 = 9;
pub(super) const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub(super) const NFT_SET_ELEM_INTERVAL_END: u32 = 0x1;
pub(super) const NFT_SET_ELEM_CATCHALL: u32 = 0x2;
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;
pub(super) const NFTA_VERDICT_CODE: u16 = 1;
pub(super) const NFTA_VERDICT_CHAIN: u16 = 2;
/// The comment in an element's user data: type, length, text with a closing zero (libnftnl, `udata.h`).
pub(super) const NFTNL_UDATA_SET_ELEM_COMMENT: u8 = 0;

/// A table: its family and name.
pub(crate) type TableName = (NftFamily, String);

/// One reading of the ruleset.
pub(crate) struct NftReading {
    /// What was read.
    pub(crate) state: NftState,
    /// False if the ruleset was changed during every one of several readings: the parts may not fit together.
    pub(crate) steady: bool,
    /// Messages that could not be read.
    pub(crate) unreadable: u64,
}

/// The names of all tables, iptables-nft's included.
pub(crate) fn tables() -> Result<Vec<TableName>, NetlinkError> {
    block_on("nftables' tables", async { list_tables(&open()?).await })
}

/// Reads the tables that `wanted` answers yes to, again when the ruleset's generation moved meanwhile.
pub(crate) fn read(wanted: &dyn Fn(NftFamily, &str) -> bool) -> Result<NftReading, NetlinkError> {
    block_on("nftables", async {
        let mut last = None;
        for _ in 0..DUMP_TRIES {
            match once(wanted).await {
                Ok(reading) if reading.steady => return Ok(reading),
                Ok(reading) => last = Some(reading),
                Err(error) if is_torn(&error) => {}
                Err(error) => return Err(error),
            }
        }
        last.ok_or(NetlinkError::Unsteady { what: "nftables" })
    })
}

/// A socket for nftables.
pub(super) fn open() -> Result<Connection<Nftables>, NetlinkError> {
    let conn = Connection::<Nftables>::new().map_err(|source| NetlinkError::Open {
        protocol: "netfilter",
        source,
    })?;
    Ok(conn.timeout(SILENCE))
}

async fn list_tables(conn: &Connection<Nftables>) -> Result<Vec<TableName>, NetlinkError> {
    let tables = conn.list_tables().await.map_err(|source| NetlinkError::Read {
        what: "nftables' tables",
        source,
    })?;
    Ok(tables
        .into_iter()
        .filter_map(|table| Some((family(table.family)?, table.name)))
        .collect())
}

pub(super) async fn generation(conn: &Connection<Nftables>) -> Result<u32, NetlinkError> {
    conn.generation().await.map_err(|source| NetlinkError::Read {
        what: "nftables' generation",
        source,
    })
}

async fn once(wanted: &dyn Fn(NftFamily, &str) -> bool) -> Result<NftReading, NetlinkError> {
    let conn = open()?;
    let before = generation(&conn).await?;
    let mut unreadable = 0;
    let mut tables = list_tables(&conn).await?;
    tables.retain(|(family, name)| wanted(*family, name));
    let mut state = NftState {
        generation: Some(before),
        tables,
        ..NftState::default()
    };
    // A ruleset that is all iptables' needs no further questions.
    if !state.tables.is_empty() {
        let mut anonymous = AnonymousSets::new();
        for set in sets(&conn, wanted).await? {
            let elements = elements(&conn, &set, &mut unreadable).await?;
            let elements: Vec<NftElement> = elements.into_iter().map(|(element, _)| element).collect();
            if set.flags & NFT_SET_ANONYMOUS != 0 {
                anonymous
                    .entry((set.family, set.table))
                    .or_default()
                    .insert(set.name, elements);
            } else {
                state.sets.push(set.into_model(elements));
            }
        }
        let chains = conn.list_chains().await.map_err(|source| NetlinkError::Read {
            what: "nftables' chains",
            source,
        })?;
        state.chains = chains
            .into_iter()
            .filter_map(chain)
            .filter(|chain| wanted(chain.family, &chain.table))
            .collect();
        for (family, table) in &state.tables {
            let none = HashMap::new();
            let anonymous = anonymous.get(&(*family, table.clone())).unwrap_or(&none);
            rules(&conn, (*family, table), anonymous, &mut state.rules).await?;
        }
    }
    let after = generation(&conn).await?;
    state.generation = Some(after);
    Ok(NftReading {
        state,
        steady: before == after,
        unreadable,
    })
}

/// The rules of a table, in the order of each chain.
pub(super) async fn rules(
    conn: &Connection<Nftables>,
    (family, table): (NftFamily, &str),
    anonymous: &HashMap<String, Vec<NftElement>>,
    out: &mut Vec<NftRule>,
) -> Result<(), NetlinkError> {
    let failed = |source| NetlinkError::Read {
        what: "nftables' rules",
        source,
    };
    let mut stream = conn
        .stream_rules(table, wire_family(family))
        .await
        .map_err(failed)?;
    while let Some(info) = stream.next().await {
        out.push(rule(&info.map_err(failed)?, family, anonymous));
    }
    Ok(())
}

/// The model's name of a family.
pub(super) fn family(family: Family) -> Option<NftFamily> {
    Some(match family {
        Family::Ip => NftFamily::Ip,
        Family::Ip6 => NftFamily::Ip6,
        Family::Inet => NftFamily::Inet,
        Family::Arp => NftFamily::Arp,
        Family::Bridge => NftFamily::Bridge,
        Family::Netdev => NftFamily::Netdev,
        _ => return None,
    })
}

/// The library's name of a family.
pub(super) fn wire_family(family: NftFamily) -> Family {
    match family {
        NftFamily::Ip => Family::Ip,
        NftFamily::Ip6 => Family::Ip6,
        NftFamily::Inet => Family::Inet,
        NftFamily::Arp => Family::Arp,
        NftFamily::Bridge => Family::Bridge,
        NftFamily::Netdev => Family::Netdev,
    }
}

fn chain(info: ChainInfo) -> Option<NftChain> {
    let family = family(info.family)?;
    Some(NftChain {
        family,
        hook: info.hook.map(|number| hook(family, number)),
        device: info.device.or_else(|| info.devices.into_iter().next()),
        table: info.table,
        name: info.name,
        handle: Some(info.handle),
    })
}

/// `NF_INET_*`, `NF_ARP_*` and `NF_NETDEV_*` as nft names them.
fn hook(family: NftFamily, number: u32) -> String {
    let names: &[&str] = match family {
        NftFamily::Arp => &["input", "output", "forward"],
        NftFamily::Netdev => &["ingress", "egress"],
        _ => &[
            "prerouting",
            "input",
            "forward",
            "output",
            "postrouting",
            "ingress",
        ],
    };
    usize::try_from(number)
        .ok()
        .and_then(|number| names.get(number))
        .map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

/// A set as the kernel describes it.
pub(super) struct RawSet {
    pub(super) family: NftFamily,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) flags: u32,
    pub(super) key_type: u32,
    pub(super) data_type: Option<u32>,
    object: bool,
    timeout_ms: Option<u64>,
}

impl RawSet {
    fn into_model(self, elements: Vec<NftElement>) -> NftSet {
        let data_type = if self.object {
            Some("object".to_owned())
        } else {
            self.data_type.map(|id| {
                if id == NFT_DATA_VERDICT {
                    "verdict".to_owned()
                } else {
                    type_name(id)
                }
            })
        };
        NftSet {
            family: self.family,
            table: self.table,
            name: self.name,
            is_map: self.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0,
            key_type: type_name(self.key_type),
            data_type,
            elements,
        }
    }
}

pub(super) async fn sets(
    conn: &Connection<Nftables>,
    wanted: &dyn Fn(NftFamily, &str) -> bool,
) -> Result<Vec<RawSet>, NetlinkError> {
    let mut out = Vec::new();
    dump(
        conn,
        "nftables' sets",
        nft_msg_type(NFT_MSG_GETSET),
        &[0; 4],
        |body| {
            out.extend(parse_set(body).filter(|set| wanted(set.family, &set.table)));
        },
    )
    .await?;
    Ok(out)
}

fn parse_set(body: &[u8]) -> Option<RawSet> {
    let mut set = RawSet {
        family: family(Family::from_u8(*body.first()?)?)?,
        table: String::new(),
        name: String::new(),
        flags: 0,
        key_type: 0,
        data_type: None,
        object: false,
        timeout_ms: None,
    };
    for (kind, data) in AttrIter::new(body.get(4..)?) {
        match kind {
            NFTA_SET_TABLE => set.table = text(data),
            NFTA_SET_NAME => set.name = text(data),
            NFTA_SET_FLAGS => set.flags = be32(data)?,
            NFTA_SET_KEY_TYPE => set.key_type = be32(data)?,
            NFTA_SET_DATA_TYPE => set.data_type = be32(data),
            NFTA_SET_TIMEOUT => set.timeout_ms = be64(data),
            NFTA_SET_OBJ_TYPE => set.object = true,
            _ => {}
        }
    }
    Some(set)
}

/// An element as the kernel keeps it.
pub(super) struct RawElement {
    key: Vec<u8>,
    key_end: Option<Vec<u8>>,
    data: Vec<NftValue>,
    comment: Option<String>,
    timeout_ms: Option<u64>,
    expires_ms: Option<u64>,
    flags: u32,
}

/// What the kernel's messages name an element by. A range of an interval set has two of them.
pub(super) struct WireKey {
    pub(super) key: Vec<u8>,
    pub(super) key_end: Option<Vec<u8>>,
    pub(super) flags: u32,
}

/// Whether ranges of the set are kept as two elements.
pub(super) fn is_paired(set: &RawSet) -> bool {
    set.flags & (NFT_SET_INTERVAL | NFT_SET_CONCAT) == NFT_SET_INTERVAL
}

/// The elements of a set, each with its names in the kernel.
pub(super) async fn elements(
    conn: &Connection<Nftables>,
    set: &RawSet,
    unreadable: &mut u64,
) -> Result<Vec<(NftElement, Vec<WireKey>)>, NetlinkError> {
    let mut request = vec![wire_family(set.family) as u8, 0, 0, 0];
    push_text(&mut request, NFTA_SET_ELEM_LIST_TABLE, &set.table);
    push_text(&mut request, NFTA_SET_ELEM_LIST_SET, &set.name);
    let paired = is_paired(set);
    let mut out = Vec::new();
    let mut to_pair = Vec::new();
    dump(
        conn,
        "nftables' elements",
        nft_msg_type(NFT_MSG_GETSETELEM),
        &request,
        |body| {
            for (kind, data) in AttrIter::new(body.get(4..).unwrap_or_default()) {
                if kind != NFTA_SET_ELEM_LIST_ELEMENTS {
                    continue;
                }
                for (_, data) in AttrIter::new(data) {
                    match parse_element(data, set) {
                        Some(element) if paired && element.flags & NFT_SET_ELEM_CATCHALL == 0 => {
                            to_pair.push(element);
                        }
                        Some(element) => out.push(plain(element, set)),
                        None => *unreadable += 1,
                    }
                }
            }
        },
    )
    .await?;
    pair(to_pair, set, &mut out);
    Ok(out)
}

fn parse_element(data: &[u8], set: &RawSet) -> Option<RawElement> {
    let mut element = RawElement {
        key: Vec::new(),
        key_end: None,
        data: Vec::new(),
        comment: None,
        timeout_ms: None,
        expires_ms: None,
        flags: 0,
    };
    let mut has_key = false;
    let value = |data| {
        AttrIter::new(data)
            .find(|(kind, _)| *kind == NFTA_DATA_VALUE)
            .map(|(_, value)| value)
    };
    for (kind, data) in AttrIter::new(data) {
        match kind {
            NFTA_SET_ELEM_KEY => {
                element.key = value(data)?.to_vec();
                has_key = true;
            }
            NFTA_SET_ELEM_KEY_END => element.key_end = value(data).map(<[u8]>::to_vec),
            NFTA_SET_ELEM_DATA => element.data = parse_data(data, set)?,
            NFTA_SET_ELEM_OBJREF => element.data = vec![NftValue::Other(text(data))],
            NFTA_SET_ELEM_FLAGS => element.flags = be32(data)?,
            NFTA_SET_ELEM_TIMEOUT => element.timeout_ms = be64(data),
            NFTA_SET_ELEM_EXPIRATION => element.expires_ms = be64(data),
            NFTA_SET_ELEM_USERDATA => element.comment = comment(data),
            _ => {}
        }
    }
    // The kernel tells an element's own timeout only where it differs from its set's.
    if element.expires_ms.is_some() && element.timeout_ms.is_none() {
        element.timeout_ms = set.timeout_ms;
    }
    (has_key || element.flags & NFT_SET_ELEM_CATCHALL != 0).then_some(element)
}

fn parse_data(data: &[u8], set: &RawSet) -> Option<Vec<NftValue>> {
    let (kind, data) = AttrIter::new(data).next()?;
    match kind {
        NFTA_DATA_VALUE => Some(decode(set.data_type?, data)),
        NFTA_DATA_VERDICT => {
            let (mut code, mut chain) = (None, None);
            for (kind, data) in AttrIter::new(data) {
                match kind {
                    NFTA_VERDICT_CODE => code = be32(data).map(u32::cast_signed),
                    NFTA_VERDICT_CHAIN => chain = Some(text(data)),
                    _ => {}
                }
            }
            let word = match code? {
                0 => "drop",
                1 => "accept",
                -1 => "continue",
                -3 => "jump",
                -4 => "goto",
                -5 => "return",
                _ => "unknown",
            };
            let text = chain.map_or_else(|| word.to_owned(), |chain| format!("{word} {chain}"));
            Some(vec![NftValue::Verdict(text)])
        }
        _ => None,
    }
}

fn comment(data: &[u8]) -> Option<String> {
    let mut rest = data;
    while let [kind, len, tail @ ..] = rest {
        let value = tail.get(..usize::from(*len))?;
        if *kind == NFTNL_UDATA_SET_ELEM_COMMENT {
            return Some(text(value));
        }
        rest = tail.get(usize::from(*len)..)?;
    }
    None
}

/// An element that stands for itself, or for a range in each part of its key.
fn plain(element: RawElement, set: &RawSet) -> (NftElement, Vec<WireKey>) {
    let key = if element.flags & NFT_SET_ELEM_CATCHALL != 0 {
        vec![NftValue::Other("*".to_owned())]
    } else if let Some(end) = &element.key_end {
        decode_range(set.key_type, &element.key, end)
    } else {
        decode(set.key_type, &element.key)
    };
    finish(element, key, None)
}

fn finish(element: RawElement, key: Vec<NftValue>, end: Option<Vec<u8>>) -> (NftElement, Vec<WireKey>) {
    let model = NftElement {
        key,
        data: element.data,
        comment: element.comment,
        timeout_ms: element.timeout_ms,
        expires_ms: element.expires_ms,
    };
    let mut names = vec![WireKey {
        key: element.key,
        key_end: element.key_end,
        flags: element.flags,
    }];
    names.extend(end.map(|key| WireKey {
        key,
        key_end: None,
        flags: NFT_SET_ELEM_INTERVAL_END,
    }));
    (model, names)
}

/// Puts the elements of an interval set together again: the kernel keeps a range's first value, and as an element of
/// its own the value after its last one. A range without that end goes on to the highest value.
fn pair(mut elements: Vec<RawElement>, set: &RawSet, out: &mut Vec<(NftElement, Vec<WireKey>)>) {
    // An end sorts before a beginning at the same value, which begins the next range.
    elements.sort_by(|a, b| {
        let begins = |element: &RawElement| element.flags & NFT_SET_ELEM_INTERVAL_END == 0;
        a.key.cmp(&b.key).then(begins(a).cmp(&begins(b)))
    });
    let mut open: Option<RawElement> = None;
    let mut close = |start: Option<RawElement>, after: Option<&[u8]>, ends: bool| {
        let Some(start) = start else { return };
        let last = after.map_or_else(|| vec![0xff; start.key.len()], before);
        let key = decode_range(set.key_type, &start.key, &last);
        let end = after.filter(|_| ends).map(<[u8]>::to_vec);
        out.push(finish(start, key, end));
    };
    for element in elements {
        let ends = element.flags & NFT_SET_ELEM_INTERVAL_END != 0;
        close(open.take(), Some(&element.key), ends);
        if !ends {
            open = Some(element);
        }
    }
    close(open, None, false);
}

/// The value before this one, as a number in network order.
fn before(key: &[u8]) -> Vec<u8> {
    let mut out = key.to_vec();
    for byte in out.iter_mut().rev() {
        let (less, borrowed) = byte.overflowing_sub(1);
        *byte = less;
        if !borrowed {
            break;
        }
    }
    out
}

/// A verdict as nft prints it.
pub(super) fn verdict_chain(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::JumpTo(chain) | Verdict::GotoTo(chain) => Some(chain.as_str().to_owned()),
        _ => None,
    }
}
