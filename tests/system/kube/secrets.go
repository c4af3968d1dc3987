package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// secrets are what the parts of a lab identify themselves by.
type secrets struct{ *lab }

// authority signs the certificates of a lab.
type authority struct {
	secrets
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// users are those of the API server, with the groups that they are in. Tokens are their names: the
// API server is reached from the lab alone.
func (s secrets) users() map[string][2]string {
	out := map[string][2]string{"admin": {"admin", "system:masters"}, "proxy": {"system:kube-proxy", "system:node-proxier"}}
	for n := range s.Nodes {
		name := nodeName(n + 1)
		out[name] = [2]string{"system:node:" + name, "system:nodes"}
	}
	return out
}

// write writes certificates, keys, tokens and kubeconfigs, unless they are there.
func (s secrets) write() error {
	if _, err := os.Stat(s.path("admin.conf")); err == nil {
		return nil
	}
	a, err := s.newAuthority()
	if err != nil {
		return err
	}
	for name, uses := range map[string][]x509.ExtKeyUsage{
		"server": {x509.ExtKeyUsageServerAuth}, "etcd-client": {x509.ExtKeyUsageClientAuth},
	} {
		if err := a.issue(name, uses); err != nil {
			return err
		}
	}
	account, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if err := s.writeKey("accounts", account); err != nil {
		return err
	}
	var tokens strings.Builder
	for token, u := range s.users() {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, u[0], token, u[1])
		if token == "admin" {
			continue
		}
		if err := s.writeConfig(token); err != nil {
			return err
		}
	}
	if err := os.WriteFile(s.path("tokens.csv"), []byte(tokens.String()), 0o600); err != nil {
		return err
	}
	return s.writeConfig("admin")
}

func (s secrets) newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template("sluice-kube")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if t, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return &authority{s, t, key}, s.writePEM("ca.crt", "CERTIFICATE", der)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
}

// issue writes a certificate and its key.
func (a *authority) issue(name string, uses []x509.ExtKeyUsage) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := template(name)
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, uses
	t.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, f := range families[a.Family] {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(f.localhost), net.ParseIP(f.control()), net.ParseIP(f.kubernetes()))
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := a.writePEM(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (s secrets) writeKey(name string, key any) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return s.writePEM(name+".key", "PRIVATE KEY", der)
}

func (s secrets) writePEM(name, kind string, der []byte) error {
	return os.WriteFile(s.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeConfig writes the kubeconfig of a user.
func (s secrets) writeConfig(user string) error {
	return os.WriteFile(s.path(user+".conf"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: %s, user: {token: %s}}]
contexts: [{name: lab, context: {cluster: lab, user: %[3]s}}]
current-context: lab
`, s.at("6443"), s.path("ca.crt"), user, user), 0o600)
}
