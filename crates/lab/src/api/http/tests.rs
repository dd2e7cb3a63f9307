use super::*;
use axum::body::to_bytes;
use futures::StreamExt;

fn shared() -> Shared {
    let store = Store::default();
    for (node, name) in [
        ("worker-a", "web-0"),
        ("worker-a", "web-1"),
        ("worker-b", "web-2"),
        ("worker-a", "web-3"),
    ] {
        let pod = json!({"metadata": {"namespace": "shop", "name": name, "labels": {"app": "web"}}, "spec": {"nodeName": node}});
        store.put(Resource::Pods, pod);
    }
    Shared {
        store: Arc::new(store),
        faults: Arc::new(ApiFaults::default()),
    }
}

async fn ask(shared: &Shared, uri: &str) -> Response {
    let uri: Uri = uri.parse().unwrap();
    let query = Query::try_from_uri(&uri).unwrap();
    answer(State(shared.clone()), Method::GET, uri, query).await
}

async fn get(shared: &Shared, uri: &str) -> (u16, Value) {
    let response = ask(shared, uri).await;
    let code = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let shared = shared();
    let (code, all) = get(&shared, "/api/v1/pods").await;
    assert_eq!(
        (code, names(&all)),
        (200, vec!["web-0", "web-1", "web-2", "web-3"])
    );
    assert_eq!(all["kind"], "PodList");

    let mine = "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-a&limit=2";
    let (_, first) = get(&shared, mine).await;
    assert_eq!(names(&first), ["web-0", "web-1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&shared, &format!("{mine}&continue={token}")).await;
    assert_eq!(names(&second), ["web-3"]);
    assert_eq!(second["metadata"]["continue"], Value::Null);

    let (_, none) = get(&shared, "/api/v1/namespaces/kube-system/pods").await;
    assert!(names(&none).is_empty());
    let (code, _) = get(&shared, "/api/v1/pods?fieldSelector=spec.colour%3Dred").await;
    assert_eq!(code, 400);
    let (code, _) = get(&shared, "/api/v1/configmaps").await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn one_object_is_found_by_its_name() {
    let shared = shared();
    let (code, pod) = get(&shared, "/api/v1/namespaces/shop/pods/web-1").await;
    assert_eq!(
        (code, &pod["metadata"]["name"], &pod["kind"]),
        (200, &json!("web-1"), &json!("Pod"))
    );
    let (code, absent) = get(&shared, "/api/v1/namespaces/shop/pods/web-9").await;
    assert_eq!((code, &absent["reason"]), (404, &json!("NotFound")));
}

#[tokio::test]
async fn a_pod_made_again_is_another_object() {
    let shared = shared();
    let uid = |store: &Store| store.get(Resource::Pods, "shop", "web-0").unwrap()["metadata"]["uid"].clone();
    let before = uid(&shared.store);
    assert!(shared.store.delete(Resource::Pods, "shop", "web-0"));
    shared.store.put(
        Resource::Pods,
        json!({"metadata": {"namespace": "shop", "name": "web-0"}}),
    );
    assert_ne!(uid(&shared.store), before);
    // The old UID deletes nothing any more.
    assert!(!shared.store.delete_uid(Resource::Pods, before.as_str().unwrap()));
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_the_list() {
    let shared = shared();
    let (_, list) = get(&shared, "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-a").await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let uri = format!(
        "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dworker-a&timeoutSeconds=1&resourceVersion={version}"
    );
    let mut lines = ask(&shared, &uri).await.into_body().into_data_stream();
    shared.store.delete(Resource::Pods, "shop", "web-2");
    shared.store.delete(Resource::Pods, "shop", "web-1");
    shared.store.put(
        Resource::Pods,
        json!({"metadata": {"namespace": "shop", "name": "web-1"}, "spec": {"nodeName": "worker-a"}}),
    );
    let mut seen = Vec::new();
    while let Some(line) = lines.next().await {
        let event: Value = serde_json::from_slice(&line.unwrap()).unwrap();
        seen.push(format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap()
        ));
    }
    assert_eq!(seen, ["DELETED web-1", "ADDED web-1"]);
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let shared = shared();
    let uri = "/api/v1/pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=0";
    let body = to_bytes(ask(&shared, uri).await.into_body(), usize::MAX)
        .await
        .unwrap();
    let types: Vec<Value> = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(types, ["ADDED", "ADDED", "ADDED", "ADDED", "BOOKMARK"]);
}

#[tokio::test]
async fn a_watch_from_too_long_ago_is_told_so() {
    let shared = shared();
    let body = to_bytes(
        ask(&shared, "/api/v1/pods?watch=true&resourceVersion=1")
            .await
            .into_body(),
        usize::MAX,
    );
    let event: Value = serde_json::from_slice(&body.await.unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
}

#[tokio::test]
async fn the_switches_fail_one_resource_and_no_other() {
    let shared = shared();
    shared.faults.set(Resource::Pods, ApiFault::Forbidden);
    let (code, refused) = get(&shared, "/api/v1/pods").await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")));
    assert_eq!(get(&shared, "/api/v1/services").await.0, 200);

    shared.faults.set(Resource::Pods, ApiFault::ServerError);
    assert_eq!(get(&shared, "/api/v1/pods").await.0, 500);

    shared.faults.set(Resource::Pods, ApiFault::Cut);
    let answer = ask(&shared, "/api/v1/pods").await;
    assert_eq!(answer.status(), 200);
    assert!(
        to_bytes(answer.into_body(), usize::MAX).await.is_err(),
        "the answer must break off"
    );

    shared.faults.set(Resource::Pods, ApiFault::Expired);
    assert_eq!(get(&shared, "/api/v1/pods?continue=00").await.0, 410);
    assert_eq!(get(&shared, "/api/v1/pods").await.0, 200);

    shared.faults.set(Resource::Pods, ApiFault::Slow(30));
    let start = std::time::Instant::now();
    assert_eq!(get(&shared, "/api/v1/pods").await.0, 200);
    assert!(start.elapsed() >= Duration::from_millis(30));

    shared.faults.clear();
    assert_eq!(get(&shared, "/api/v1/pods").await.0, 200);
}
