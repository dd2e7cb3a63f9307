package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// The sockets in DIR. Unix sockets, so that two servers started side by side never race for a port.
const (
	storeSocket = "etcd.sock"
	peerSocket  = "etcd-peer.sock"
)

// startStore starts a one-member etcd in dir and waits until it serves.
func startStore(dir string) (*embed.Etcd, error) {
	for _, name := range []string{storeSocket, peerSocket} {
		// A killed server leaves its sockets, and a leftover cannot be bound again.
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	cfg := embed.NewConfig()
	cfg.Name = "test"
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenClientUrls = socketURL(dir, storeSocket)
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = socketURL(dir, peerSocket)
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // data of a test need not outlive the machine
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{filepath.Join(dir, "etcd.log")}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-time.After(30 * time.Second):
		err = errors.New("not ready after 30 s; its log is etcd.log")
	}
	e.Close()
	return nil, err
}

func socketURL(dir, name string) []url.URL {
	return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
}
