use super::*;

const PODS: &str = r#"{
  "items": [
    {
      "id": "408809c4415b239b41d095d91b367066e8981bdeab9ff4028bfc489d7cafc054",
      "metadata": {"name": "proxy-6c7d8b9f5-x2k4q", "uid": "C380CEF5-e943-4b7b-9488-3fe6254660be", "namespace": "web", "attempt": 2},
      "state": "SANDBOX_READY",
      "createdAt": "1786845706775596995",
      "labels": {"app": "proxy"},
      "annotations": {"kubernetes.io/config.source": "api"},
      "runtimeHandler": ""
    },
    {
      "id": "2a208504135fb27c9c85d75fecaddb2f2023dc1246aa74dd2ada048dbe76bf71",
      "metadata": {"name": "etcd-n1", "uid": "0123456789abcdef0123456789abcdef", "namespace": "kube-system", "attempt": 0},
      "state": "SANDBOX_NOTREADY",
      "createdAt": "1787137524333864115",
      "labels": {},
      "annotations": {"kubernetes.io/config.source": "file"},
      "runtimeHandler": ""
    }
  ]
}
"#;

#[test]
fn pods_are_sandboxes() {
    let (sandboxes, problems) = read_pods("crictl-pods.json", PODS.as_bytes());
    assert_eq!(problems, []);
    let [proxy, etcd] = &sandboxes[..] else {
        panic!("{sandboxes:?}");
    };
    assert_eq!(proxy.id.short(), "408809c4415b");
    assert_eq!(proxy.pod.to_string(), "web/proxy-6c7d8b9f5-x2k4q");
    assert_eq!(proxy.uid.as_str(), "c380cef5-e943-4b7b-9488-3fe6254660be");
    assert_eq!(proxy.attempt, 2);
    assert_eq!(proxy.state, SandboxState::Ready);
    assert_eq!(
        proxy.created_at.unwrap().as_nanosecond(),
        1_786_845_706_775_596_995
    );
    assert_eq!((&proxy.ips, proxy.from_manifest), (&None, false));
    assert_eq!((etcd.state, etcd.from_manifest), (SandboxState::NotReady, true));
}

#[test]
fn a_cut_keeps_what_came_before() {
    for cut in 0..PODS.len() {
        let (sandboxes, problems) = read_pods("p", &PODS.as_bytes()[..cut]);
        let whole = cut + 1 == PODS.len();
        assert_eq!(problems.is_empty(), whole, "{cut}: {problems:?}");
        let first_ends = PODS.find("\n    },").unwrap() + 6;
        let second_ends = PODS.find("\n    }\n").unwrap() + 6;
        let expected = usize::from(cut >= first_ends) + usize::from(cut >= second_ends);
        assert_eq!(sandboxes.len(), expected, "{cut}");
    }
}

#[test]
fn one_bad_object_is_one_problem_with_its_line() {
    let text = PODS.replace("\"attempt\": 2", "\"attempt\": \"two\"");
    let (sandboxes, problems) = read_pods("dir/crictl-pods.json", text.as_bytes());
    assert_eq!(sandboxes.len(), 1);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].place, "dir/crictl-pods.json:5");
    let (sandboxes, problems) = read_pods("p", br#"{"items":[{"state":"SANDBOX_READY"}]}"#);
    assert_eq!((sandboxes.len(), problems.len()), (0, 1));
}

#[test]
fn something_else_is_not_an_empty_list() {
    for text in [
        "{}",
        "",
        "[]",
        "{\"containers\":[]}",
        "FATA[0000] connect: no such file",
        "{\"items\":7}",
    ] {
        let (sandboxes, problems) = read_pods("p", text.as_bytes());
        assert_eq!((sandboxes.len(), problems.len()), (0, 1), "{text:?}");
        assert_eq!(problems[0].place, "p:1", "{text:?}");
    }
    assert_eq!(read_pods("p", b"{\"items\": []}"), (vec![], vec![]));
}

#[test]
fn a_missing_uid_is_told_by_the_label_or_is_a_problem() {
    let labels = r#""labels":{"io.kubernetes.pod.uid":"U1","io.kubernetes.pod.name":"a","io.kubernetes.pod.namespace":"b"}"#;
    let text = format!(r#"{{"items":[{{"id":"aa","createdAt":"1","metadata":{{}},{labels}}}]}}"#);
    let (sandboxes, problems) = read_pods("p", text.as_bytes());
    assert_eq!(problems, []);
    assert_eq!(sandboxes[0].uid.as_str(), "u1");
    assert_eq!(sandboxes[0].pod.to_string(), "b/a");
    // the zero value of the state is left out by some writers
    assert_eq!(sandboxes[0].state, SandboxState::Ready);
    let (sandboxes, problems) = read_pods("p", br#"{"items":[{"id":"aa","createdAt":"1","labels":null}]}"#);
    assert_eq!((sandboxes.len(), problems.len()), (1, 1));
}

#[test]
fn containers_name_their_sandbox() {
    let text = r#"{"containers":[
      {"id":"C1","podSandboxId":"S1","metadata":{"name":"web","attempt":1},"image":{"image":"x"},"state":"CONTAINER_RUNNING","createdAt":"1"},
      {"id":"c2","podSandboxId":"s1","metadata":{"name":"init","attempt":0},"state":"CONTAINER_EXITED","createdAt":"1"}]}"#;
    let (containers, problems) = read_containers("p", text.as_bytes());
    assert_eq!(problems, []);
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0].id.as_str(), "c1");
    assert_eq!(containers[0].sandbox.as_ref().unwrap().as_str(), "s1");
    assert_eq!(
        (containers[0].name.as_str(), containers[0].running),
        ("web", true)
    );
    assert!(!containers[1].running);
}

const INSPECTED: &str = r#"{
  "status": {
    "id": "408809c4415b239b41d095d91b367066e8981bdeab9ff4028bfc489d7cafc054",
    "metadata": {"attempt": 0, "name": "web-0", "namespace": "default", "uid": "7f1c7a52-0f0e-4f0c-9f4e-1f1b2a3c4d5e"},
    "state": "SANDBOX_READY",
    "createdAt": "2026-11-30T17:00:00.123456789Z",
    "network": {"additionalIps": [{"ip": "fd00::2"}], "ip": "10.77.0.2"},
    "linux": {"namespaces": {"options": {"ipc": "POD", "network": "POD", "pid": "CONTAINER", "targetId": ""}}},
    "labels": {}, "annotations": {}, "runtimeHandler": ""
  },
  "info": {
    "pid": 4242,
    "netNamespaceClosed": false,
    "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/cni-1"}]}}
  }
}"#;

#[test]
fn inspectp_tells_addresses_namespace_and_process() {
    let host = INSPECTED
        .replace("\"network\": \"POD\"", "\"network\": \"NODE\"")
        .replace("408809", "508809");
    for text in [format!("{INSPECTED}\n{host}\n"), format!("[{INSPECTED},{host}]")] {
        let (sandboxes, problems) = read_inspectp("p", text.as_bytes());
        assert_eq!(problems, []);
        let [pod, node] = &sandboxes[..] else {
            panic!("{sandboxes:?}");
        };
        let ips: Vec<IpAddr> = vec!["10.77.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        assert_eq!(pod.ips.as_ref(), Some(&ips));
        assert_eq!(pod.netns.as_deref(), Some("/run/netns/cni-1"));
        assert_eq!(pod.pid, Some(4242));
        assert!(pod.created_at.is_some() && !pod.host_network);
        assert_eq!((node.ips.as_deref(), node.host_network), (Some(&[][..]), true));
        let cut = read_inspectp("p", &text.as_bytes()[..text.len() - 9]);
        assert_eq!((cut.0.len(), cut.1.len()), (1, 1));
    }
}

#[test]
fn merging_keeps_each_sandbox_once() {
    let mut list = read_pods("p", PODS.as_bytes()).0;
    merge(&mut list, read_inspectp("p", INSPECTED.as_bytes()).0);
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].pid, Some(4242));
}
