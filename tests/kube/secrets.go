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

// authority signs the certificates of a lab.
type authority struct {
	l    *lab
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// users are those of the API server, with the groups that they are in. Tokens are their names: the
// API server is reached from the lab alone.
func (l *lab) users() map[string][2]string {
	out := map[string][2]string{"admin": {"admin", "system:masters"}, "proxy": {"system:kube-proxy", "system:node-proxier"}}
	for n := range l.Nodes {
		name := nodeName(n + 1)
		out[name] = [2]string{"system:node:" + name, "system:nodes"}
	}
	return out
}

// secrets writes certificates, keys, tokens and kubeconfigs, unless they are there.
func (l *lab) secrets() error {
	if _, err := os.Stat(l.path("admin.conf")); err == nil {
		return nil
	}
	a, err := l.newAuthority()
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
	if err := l.writeKey("accounts", account); err != nil {
		return err
	}
	var tokens strings.Builder
	for token, u := range l.users() {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, u[0], token, u[1])
		if token == "admin" {
			continue
		}
		if err := l.writeConfig(token); err != nil {
			return err
		}
	}
	if err := os.WriteFile(l.path("tokens.csv"), []byte(tokens.String()), 0o600); err != nil {
		return err
	}
	return l.writeConfig("admin")
}

func (l *lab) newAuthority() (*authority, error) {
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
	return &authority{l, t, key}, l.writePEM("ca.crt", "CERTIFICATE", der)
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
	for _, f := range families[a.l.Family] {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(f.localhost), net.ParseIP(f.control()), net.ParseIP(f.kubernetes()))
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := a.l.writePEM(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.l.writeKey(name, key)
}

func (l *lab) writeKey(name string, key any) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return l.writePEM(name+".key", "PRIVATE KEY", der)
}

func (l *lab) writePEM(name, kind string, der []byte) error {
	return os.WriteFile(l.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeConfig writes the kubeconfig of a user.
func (l *lab) writeConfig(user string) error {
	return os.WriteFile(l.path(user+".conf"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: %s, user: {token: %s}}]
contexts: [{name: lab, context: {cluster: lab, user: %[3]s}}]
current-context: lab
`, l.at("6443"), l.path("ca.crt"), user, user), 0o600)
}
