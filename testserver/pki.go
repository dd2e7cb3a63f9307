package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// credentials are what the readiness check needs of what lies in DIR.
type credentials struct {
	caPEM []byte
	token string
}

// loadOrMakeCredentials reads DIR's credentials, or makes all of them: a CA, the
// server's and the admin's certificates, the service-account key, the token file
// and both kubeconfigs.
//
// tokens.csv is written last, so that where it is, the rest is too.
func loadOrMakeCredentials(dir, url string, names []string) (credentials, error) {
	pki := filepath.Join(dir, "pki")
	tokens := filepath.Join(pki, "tokens.csv")
	switch b, err := os.ReadFile(tokens); {
	case err == nil:
		token, _, _ := strings.Cut(string(b), ",")
		ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
		return credentials{caPEM: ca, token: token}, err
	case !errors.Is(err, os.ErrNotExist):
		return credentials{}, err
	}

	ca, err := newAuthority(pki)
	if err != nil {
		return credentials{}, err
	}
	server := x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, n)
		}
	}
	if _, err := ca.issue("apiserver", &server); err != nil {
		return credentials{}, err
	}
	admin, err := ca.issue("admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return credentials{}, err
	}
	if err := makeServiceAccountKey(pki); err != nil {
		return credentials{}, err
	}

	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return credentials{}, err
	}
	token := hex.EncodeToString(raw)
	byCertificate := fmt.Sprintf("client-certificate-data: %s\n    client-key-data: %s", b64(admin.certPEM), b64(admin.keyPEM))
	for _, f := range []struct{ path, text string }{
		{filepath.Join(dir, "admin.kubeconfig"), kubeconfig(url, ca.certPEM, byCertificate)},
		{filepath.Join(dir, "admin-token.kubeconfig"), kubeconfig(url, ca.certPEM, "token: "+token)},
		{tokens, token + ",admin-token,admin-token,system:masters\n"},
	} {
		if err := writeFile(f.path, f.text); err != nil {
			return credentials{}, err
		}
	}
	return credentials{caPEM: ca.certPEM, token: token}, nil
}

// pair is a certificate and its key as PEM.
type pair struct{ certPEM, keyPEM []byte }

// authority is the cluster's own CA.
type authority struct {
	pair
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(folder string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a := &authority{folder: folder, key: key, serial: 1, cert: &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-testserver"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	a.pair, err = a.sign("ca", a.cert, key)
	return a, err
}

// issue makes a key and a certificate of the CA's lifetime for it.
func (a *authority) issue(name string, leaf *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	a.serial++
	leaf.SerialNumber = big.NewInt(a.serial)
	leaf.NotBefore, leaf.NotAfter = a.cert.NotBefore, a.cert.NotAfter
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	return a.sign(name, leaf, key)
}

func (a *authority) sign(name string, leaf *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := privatePEM(key)
	if err != nil {
		return pair{}, err
	}
	p := pair{
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  keyPEM,
	}
	if err := writeFile(filepath.Join(a.folder, name+".crt"), string(p.certPEM)); err != nil {
		return pair{}, err
	}
	return p, writeFile(filepath.Join(a.folder, name+".key"), string(p.keyPEM))
}

func makeServiceAccountKey(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := privatePEM(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(folder, "sa.key"), string(private)); err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	return writeFile(filepath.Join(folder, "sa.pub"), string(text))
}

// privatePEM is PKCS#8, which every TLS library reads.
func privatePEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func kubeconfig(url string, ca []byte, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: user
  user:
    %s
contexts:
- name: test
  context: {cluster: test, user: user}
current-context: test
`, url, b64(ca), user)
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
