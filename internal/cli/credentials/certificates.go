// Package credentials generates TLS certificates for etcd and its clients as Kubernetes Secrets,
// and the etcdctl commands that create users and roles.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// storeName is the name that the certificate of an embedded etcd has, whatever its address is.
const storeName = "sluice-store"

// Secrets returns the two Secrets of the manifests as YAML: for the etcd in sluice-ksr, and for
// agents. Their authority is new, and its key is discarded. They are valid from a minute before
// now, for clocks that differ.
func Secrets(namespace string, now time.Time, valid time.Duration) ([]byte, error) {
	a, err := newAuthority(now.Add(-time.Minute), now.Add(valid))
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, c := range []struct {
		secret, name string
		usage        x509.ExtKeyUsage
		hosts        []string
	}{
		{"sluice-ksr-etcd", storeName, x509.ExtKeyUsageServerAuth, []string{storeName}},
		{"sluice-agent-etcd", "sluice-agent", x509.ExtKeyUsageClientAuth, nil},
	} {
		cert, key, err := a.issue(c.name, c.usage, c.hosts)
		if err != nil {
			return nil, err
		}
		secret, err := yaml.Marshal(corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: c.secret, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "sluice"}},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{"ca.crt": a.pem, corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
		})
		if err != nil {
			return nil, err
		}
		text = append(append(text, "---\n"...), secret...)
	}
	return text, nil
}

// authority signs certificates, all of which end when its own does.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(from, to time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sluice"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err = x509.ParseCertificate(der)
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// issue returns a certificate for one use, and its key, as PEM.
func (a *authority) issue(name string, usage x509.ExtKeyUsage, hosts []string) (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: hosts, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}
