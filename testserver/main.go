// Command kube-testserver is a real kube-apiserver and its etcd in one process,
// so that tests can talk to the real API on a machine without a container engine.
//
//	kube-testserver --dir DIR [--port N] [--bind IP] [--san IP-OR-NAME]... [-- KUBE-APISERVER-FLAGS]
//
// DIR is the whole state. A fresh DIR is a fresh cluster; starting again on the
// same DIR is a restart with data, port and certificates kept. In it:
//
//	ready                   the server's URL, written once /readyz answers ok
//	admin.kubeconfig        system:masters by client certificate
//	admin-token.kubeconfig  system:masters by bearer token
//	port                    the port that a restart uses again
//	pki/                    CA, certificates, keys, tokens.csv
//	etcd/, etcd*.sock       the storage; it listens on nothing else
//
// SIGTERM or SIGINT stops both. It does not die with its parent. What follows
// "--" goes to kube-apiserver after our own flags, and so wins over them.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as cmd/kube-apiserver does
	_ "k8s.io/component-base/metrics/prometheus/version"  // as cmd/kube-apiserver does
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// options is what the command line says.
type options struct {
	dir   string
	port  int
	bind  string
	names []string
	extra []string
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	code := 1
	if err == nil {
		code, err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-testserver:", err)
	}
	os.Exit(code)
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("kube-testserver", flag.ContinueOnError)
	fs.StringVar(&o.dir, "dir", "", "state directory, at most about 90 bytes long (a unix socket lies in it)")
	fs.IntVar(&o.port, "port", 0, "TCP port; 0 is the one of the last start, or a free one")
	fs.StringVar(&o.bind, "bind", "127.0.0.1", "address to listen on")
	fs.Func("san", "one more address or name for the serving certificate (repeatable; read when DIR is new)", func(s string) error {
		o.names = append(o.names, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.extra = fs.Args()
	if o.dir == "" {
		return o, errors.New("--dir is needed")
	}
	var err error
	o.dir, err = filepath.Abs(o.dir)
	return o, err
}

// run serves until a signal; it returns kube-apiserver's exit code.
func run(o options) (int, error) {
	ready := filepath.Join(o.dir, "ready")
	if err := os.MkdirAll(filepath.Join(o.dir, "pki"), 0o700); err != nil {
		return 1, err
	}
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 1, err
	}
	port, err := choosePort(filepath.Join(o.dir, "port"), o.port)
	if err != nil {
		return 1, fmt.Errorf("choosing a port: %w", err)
	}
	host := o.bind
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "https://" + net.JoinHostPort(host, strconv.Itoa(port))
	names := append(o.names, host, "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
	creds, err := loadOrMakeCredentials(o.dir, url, names)
	if err != nil {
		return 1, fmt.Errorf("making certificates: %w", err)
	}

	store, err := startStore(o.dir)
	if err != nil {
		return 1, fmt.Errorf("starting etcd: %w", err)
	}
	defer store.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		if err := announce(ctx, ready, url, creds); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "kube-testserver: announcing:", err)
		}
	}()

	cmd := app.NewAPIServerCommand() // takes over SIGTERM and SIGINT
	cmd.SetArgs(append(serverFlags(o.dir, o.bind, port), o.extra...))
	code := cli.Run(cmd)
	stop()
	_ = os.Remove(ready)
	return code, nil
}

func serverFlags(dir, bind string, port int) []string {
	pki := func(name string) string { return filepath.Join(dir, "pki", name) }
	return []string{
		"--etcd-servers=unix://" + filepath.Join(dir, storeSocket),
		"--bind-address=" + bind,
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(dir, "pki"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--token-auth-file=" + pki("tokens.csv"),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("sa.pub"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// The "kubernetes" Service stays without endpoints, since a loopback address may not be one.
		"--endpoint-reconciler-type=none",
		"--advertise-address=127.0.0.1",
		// It refuses every Pod until a controller, which is not here, has made the namespace's ServiceAccount.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
	}
}

// choosePort takes the port asked for, else the one that file remembers, else a free one, and remembers it.
func choosePort(file string, want int) (int, error) {
	if want == 0 {
		if b, err := os.ReadFile(file); err == nil {
			if want, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if want == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		want = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, err
		}
	}
	return want, writeFile(file, strconv.Itoa(want)+"\n")
}

// announce asks /readyz until it says ok, then writes the file that callers wait for, whole or not at all.
func announce(ctx context.Context, file, url string, c credentials) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.caPEM) {
		return errors.New("no certificate in pki/ca.crt")
	}
	client := http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	start := time.Now()
	for !isReady(ctx, &client, url, c.token) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := writeFile(file+".tmp", url+"\n"); err != nil {
		return err
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return err
	}
	fmt.Printf("ready %s after %.1f s\n", url, time.Since(start).Seconds())
	return nil
}

func isReady(ctx context.Context, client *http.Client, url, token string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// writeFile writes for the owner's eyes only: most of what is in DIR is a key or a token.
func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
