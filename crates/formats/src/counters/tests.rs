//! Tests.

use proptest::prelude::*;
use sexton_core::{finding::Verdict, model::Completeness};

use super::*;

fn read(text: &str) -> Counters {
    parse(crate::text::open(text.as_bytes()), "counters.csv")
}

/// CSV of typeperf with these columns and rows.
fn typeperf(columns: &[&str], rows: &[Vec<String>], first: &str, delimiter: &str) -> String {
    let mut out = format!("\r\n\"{first}\"");
    for column in columns {
        out += &format!("{delimiter}\"{column}\"");
    }
    out += "\r\n";
    for (second, row) in rows.iter().enumerate() {
        out += &format!("\"08/18/2026 07:09:{second:02}.113\"");
        for cell in row {
            out += &format!("{delimiter}\"{cell}\"");
        }
        out += "\r\n";
    }
    out + "\r\nExiting, please wait...                         \r\nThe command completed successfully.\r\n\r\r"
}

const SYNTHETIC: &str =
    r"\\AKSWNP00002F\Network Interface(Microsoft Hyper-V Network Adapter _2)\Packets Received/sec";
const VF: &str =
    r"\\AKSWNP00002F\Network Interface(Mellanox ConnectX-4 Lx Virtual Ethernet Adapter)\Packets Sent/sec";
const SWITCH: &str = r"\\AKSWNP00002F\Hyper-V Virtual Switch(ext)\Packets/sec";

fn incident(rates: [&str; 3], cores: &[&str]) -> Counters {
    let names: Vec<String> = (0..cores.len())
        .map(|n| format!(r"\\AKSWNP00002F\Processor Information(0,{n})\% DPC Time"))
        .collect();
    let mut columns = vec![SYNTHETIC, VF, SWITCH];
    columns.extend(names.iter().map(String::as_str));
    columns.push(r"\\AKSWNP00002F\Processor Information(_Total)\% DPC Time");
    let blank = vec![" ".to_owned(); columns.len()];
    let row: Vec<String> = rates
        .iter()
        .chain(cores)
        .map(|text| (*text).to_owned())
        .chain(["39.5".to_owned()])
        .collect();
    read(&typeperf(
        &columns,
        &[blank, row.clone(), row],
        "(PDH-CSV 4.0)",
        ",",
    ))
}

#[test]
fn the_figures_of_the_incident() {
    let cores = ["91.4", "0.0", "72.0", "0.0", "85.5", "0.0", "67.0", "0.0"];
    let counters = incident(["177859.101", "177990.442", "335911.907"], &cores);
    assert_eq!(counters.problems, []);
    assert!(counters.completeness.is_complete());
    assert_eq!(counters.times.len(), 3);
    let suspicion = suspect(&counters, &Thresholds::default());
    assert_eq!(suspicion.verdict, Some(Verdict::Suspected));
    let [pair] = suspicion.pairs.as_slice() else {
        panic!("{suspicion:#?}")
    };
    assert_eq!(pair.receiver, "Microsoft Hyper-V Network Adapter _2");
    assert_eq!(pair.sender, "Mellanox ConnectX-4 Lx Virtual Ethernet Adapter");
    assert!((pair.received - 177_859.101).abs() < 0.01 && (pair.sent - 177_990.442).abs() < 0.01);
    assert_eq!((pair.samples, pair.of, pair.both_ways), (2, 2, false));
    assert_eq!(suspicion.one_sided, Some(true));
    assert_eq!(suspicion.cores.len(), 8);
    assert!((suspicion.switch.unwrap() - 335_911.907).abs() < 0.01);
    assert_eq!(suspicion.lacks, Vec::<String>::new());
}

#[test]
fn a_healthy_node_is_not_suspicious() {
    let counters = incident(["27.3", "28.1", "60.0"], &["0.1", "0.0", "0.3", "0.0"]);
    let suspicion = suspect(&counters, &Thresholds::default());
    assert_eq!(suspicion.verdict, None);
    assert_eq!(suspicion.one_sided, Some(false));
    // Busy, but what comes in is not what goes out.
    let counters = incident(
        ["90000.0", "20000.0", "110000.0"],
        &["30.0", "31.0", "30.5", "29.0"],
    );
    assert_eq!(suspect(&counters, &Thresholds::default()).verdict, None);
    // Just below and just above.
    for (received, sent, verdict) in [
        ("5000.0", "5000.0", None),
        ("5001.0", "5002.0", Some(Verdict::Suspected)),
        ("100000.0", "90001.0", Some(Verdict::Suspected)),
        ("100000.0", "89999.0", None),
    ] {
        let counters = incident([received, sent, "1"], &["0.0", "50.0"]);
        assert_eq!(
            suspect(&counters, &Thresholds::default()).verdict,
            verdict,
            "{received} {sent}"
        );
    }
}

#[test]
fn a_gateway_is_said_to_go_both_ways() {
    let columns = [
        r"\\N\Network Interface(a)\Packets Received/sec",
        r"\\N\Network Interface(a)\Packets Sent/sec",
        r"\\N\Network Interface(b)\Packets Received/sec",
        r"\\N\Network Interface(b)\Packets Sent/sec",
    ];
    let row = ["50000", "49000", "49500", "50500"].map(str::to_owned).to_vec();
    let counters = read(&typeperf(&columns, &[row.clone(), row], "(PDH-CSV 4.0)", ","));
    let suspicion = suspect(&counters, &Thresholds::default());
    assert_eq!(suspicion.pairs.len(), 2);
    assert!(suspicion.pairs.iter().all(|pair| pair.both_ways));
    assert_eq!(suspicion.one_sided, None);
}

#[test]
fn what_is_missing_is_said() {
    let columns = [r"\\N\Network Interface(a)\Packets Received/sec"];
    let counters = read(&typeperf(
        &columns,
        &[vec!["90000".to_owned()]],
        "(PDH-CSV 4.0)",
        ",",
    ));
    let suspicion = suspect(&counters, &Thresholds::default());
    assert_eq!(suspicion.verdict, Some(Verdict::Unknown));
    assert_eq!(suspicion.lacks.len(), 2);
}

#[test]
fn a_log_of_a_german_machine() {
    let columns = [
        r"\\KNOTEN1\Netzwerkschnittstelle(Microsoft Hyper-V Network Adapter _2)\Empfangene Pakete/s",
        r"\\KNOTEN1\Netzwerkschnittstelle(Mellanox ConnectX-4 Lx Virtual Ethernet Adapter)\Gesendete Pakete/s",
        r"\\KNOTEN1\Prozessorinformationen(0,0)\DPC-Zeit (%)",
        r"\\KNOTEN1\Prozessorinformationen(0,1)\DPC-Zeit (%)",
    ];
    let row = ["45102,200000", "45229,800000", "48,100000", "0,000000"]
        .map(str::to_owned)
        .to_vec();
    for delimiter in [",", ";", "\t"] {
        let text = typeperf(
            &columns,
            &[row.clone(), row.clone()],
            "(PDH-CSV 4.0) (W. Europe Standard Time)(-60)",
            delimiter,
        );
        let counters = read(&text);
        assert_eq!(counters.problems, [], "{delimiter:?}");
        assert_eq!(counters.bias, Some(-60));
        let suspicion = suspect(&counters, &Thresholds::default());
        assert_eq!(suspicion.verdict, Some(Verdict::Suspected));
        assert!((suspicion.pairs[0].received - 45_102.2).abs() < 0.01);
        assert_eq!(suspicion.one_sided, Some(true));
    }
    // A language that is not known keeps its series, and nothing is guessed.
    let counters = read(
        "\"(PDH-CSV 4.0)\",\"\\\\N\\Interfejs sieciowy(a)\\Pakiety/s\"\n\"08/18/2026 07:09:30.113\",\"9\"\n",
    );
    assert_eq!(counters.series[0].counter.kind, Kind::Other);
    assert_eq!(
        suspect(&counters, &Thresholds::default()).verdict,
        Some(Verdict::Unknown)
    );
}

#[test]
fn text_of_get_counter() {
    let text = "\r\nTimestamp                 CounterSamples\r\n---------                 --------------\r\n\
        8/18/2026 7:09:32 AM      \\\\akswnp00002f\\network interface(microsoft hyper-v network adapter _2)\\packets received/sec :\r\n\
        \u{20}                         177859.101373\r\n\r\n\
        \u{20}                         \\\\akswnp00002f\\network interface(mellanox connectx-4 lx virtual ethernet \r\n\
        \u{20}                         adapter)\\packets sent/sec :\r\n\
        \u{20}                         177990.44\r\n\r\n\
        8/18/2026 7:09:34 AM      \\\\akswnp00002f\\network interface(microsoft hyper-v network adapter _2)\\packets received/sec :\r\n\
        \u{20}                         178000,5\r\n\r\n";
    let counters = read(text);
    assert_eq!(counters.problems, []);
    assert_eq!(counters.times[1].unwrap().to_string(), "2026-08-18T07:09:34");
    let values: Vec<_> = counters
        .series
        .iter()
        .map(|series| series.values.clone())
        .collect();
    assert_eq!(
        values,
        [
            vec![Some(177_859.101_373), Some(178_000.5)],
            vec![Some(177_990.44), None]
        ]
    );
    assert_eq!(
        suspect(&counters, &Thresholds::default()).verdict,
        Some(Verdict::Suspected)
    );

    let table = "Path                                            InstanceName CookedValue\n----  ------------ -----------\n\
        \\\\n\\processor information(0,0)\\% dpc time         0,0          91.4\n\
        \\\\n\\processor information(0,1)\\% dpc time         0,1           0\n";
    let counters = read(table);
    let values: Vec<_> = counters
        .series
        .iter()
        .map(|s| (s.counter.kind, s.values.clone()))
        .collect();
    assert_eq!(
        values,
        [
            (Kind::DpcTime, vec![Some(91.4)]),
            (Kind::DpcTime, vec![Some(0.0)])
        ]
    );

    let cut = read("8/18/2026 7:09:32 AM      \\\\n\\processor(0)\\% dpc time :\n");
    assert!(!cut.completeness.is_complete());
    assert!(matches!(
        read("hello\n").completeness,
        Completeness::Unavailable(_)
    ));
    assert!(matches!(read("").completeness, Completeness::Unavailable(_)));
}

#[test]
fn bad_cells_are_named_with_their_line() {
    let counters = read(
        "\"(PDH-CSV 4.0)\",\"\\\\N\\a(b)\\c\",\"\\\\N\\a\\d\"\n\"08/18/2026 07:09:30.113\",\"x\",\"1\"\n\"yesterday\",\"2\",\"3\"\n\"08/18/2026 07:09:31.113\",\"4\"\n",
    );
    let said: Vec<_> = counters
        .problems
        .iter()
        .map(|p| (p.place.as_str(), p.what.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("counters.csv:2", "expected a number, found \"x\""),
            (
                "counters.csv:3",
                "expected a time like 08/18/2026 07:09:30.113, found \"yesterday\""
            ),
            ("counters.csv:4", "2 cells; expected 3: the row is cut off"),
        ]
    );
    assert_eq!(counters.series[0].values, [None, Some(2.0), Some(4.0)]);
    assert_eq!(counters.series[1].values, [Some(1.0), Some(3.0), None]);
    assert!(!counters.completeness.is_complete());
}

#[test]
fn numbers_of_several_cultures() {
    for (text, value) in [
        ("177859.101", Some(177_859.101)),
        (" 45102,200000 ", Some(45_102.2)),
        ("1,234,567", Some(1_234_567.0)),
        ("1.234.567,5", Some(1_234_567.5)),
        ("1,234,567.5", Some(1_234_567.5)),
        ("1 234,5", Some(1_234.5)),
        ("1\u{a0}234,5", Some(1_234.5)),
        ("1'234.5", Some(1_234.5)),
        ("0", Some(0.0)),
        ("-1", Some(-1.0)),
        ("1.5E+2", Some(150.0)),
        ("", None),
        (" ", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("x", None),
    ] {
        assert_eq!(number(text), value, "{text:?}");
    }
}

#[test]
fn paths_and_adapters() {
    let counter = Counter::parse(r"\\HOST\Network Interface(Intel[R] (2) \ x)\Packets Sent/sec").unwrap();
    assert_eq!(counter.instance.as_deref(), Some(r"Intel[R] (2) \ x"));
    assert_eq!(counter.kind, Kind::Sent);
    assert_eq!(Counter::parse(r"\Memory\Available Bytes").unwrap().host, None);
    assert!(
        Counter::parse(r"\\HOST\Processor(_Total)\% DPC Time")
            .unwrap()
            .is_total()
    );
    for none in ["", "x", r"\\HOST", r"\\HOST\", r"\\HOST\a(b\c", r"\(a)\b"] {
        assert_eq!(Counter::parse(none), None, "{none}");
    }
    assert_eq!(
        adapter_key("Microsoft Hyper-V Network Adapter #2"),
        adapter_key("microsoft hyper-v network adapter _2")
    );
    assert_eq!(adapter_key("Intel(R) 82599"), "intel[r] 82599");
}

proptest! {
    #[test]
    fn nothing_panics(text in "(\"\\(PDH-CSV 4.0\\)\")?[ -~\\\\\r\n\t\"äß]{0,400}") {
        suspect(&read(&text), &Thresholds::default());
    }

    #[test]
    fn values_come_back(values in prop::collection::vec(prop::option::of(-1e12..1e12_f64), 1..40), comma: bool) {
        let write = |value: &Option<f64>| {
            let text = value.map_or_else(|| " ".to_owned(), |value| format!("{value:.6}"));
            vec![if comma { text.replace('.', ",") } else { text }]
        };
        let rows: Vec<_> = values.iter().map(write).collect();
        let counters = read(&typeperf(&[SWITCH], &rows[..rows.len().min(60)], "(PDH-CSV 4.0)", ","));
        for (ours, theirs) in counters.series[0].values.iter().zip(&values) {
            prop_assert_eq!(ours.is_some(), theirs.is_some());
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                prop_assert!((ours - theirs).abs() < 1e-3, "{} {}", ours, theirs);
            }
        }
    }
}
