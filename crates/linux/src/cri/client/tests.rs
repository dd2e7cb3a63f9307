use super::*;

#[tokio::test]
async fn a_relative_socket_is_refused() {
    let refused = CriClient::connect("run/containerd.sock").await.unwrap_err();
    assert!(matches!(refused, CriError::BadSocket { .. }), "{refused:?}");
    assert!(!refused.is_retryable());
}

#[tokio::test]
async fn nobody_at_the_socket_is_unavailable_and_not_empty() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("containerd.sock");
    let absent = CriClient::connect(&socket).await.unwrap_err();
    assert!(matches!(absent, CriError::Connect { .. }), "{absent:?}");
    assert!(absent.is_retryable());
    assert!(absent.to_string().contains("containerd.sock"), "{absent}");

    // A socket file that a killed runtime left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dead = CriClient::connect(format!("unix://{}", socket.display()))
        .await
        .unwrap_err();
    assert!(matches!(dead, CriError::Connect { .. }), "{dead:?}");
}

#[tokio::test]
async fn a_silent_runtime_meets_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("containerd.sock");
    // Accepts by its backlog and never says a word.
    let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let outcome = match CriClient::connect(&socket).await {
        Ok(client) => client
            .with_deadline(Duration::from_millis(200))
            .version()
            .await
            .map(|_| ()),
        Err(refused) => Err(refused),
    };
    let silent = outcome.unwrap_err();
    assert!(
        matches!(silent, CriError::Deadline { .. } | CriError::Connect { .. }),
        "{silent:?}"
    );
    assert!(silent.is_retryable());
}
