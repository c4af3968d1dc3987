package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Etcd has the settings of the connection to etcd.
type Etcd struct {
	Endpoints []string `koanf:"etcd-endpoints"`
	CA        string   `koanf:"etcd-ca"`
	Server    string   `koanf:"etcd-server-name"`
	Cert      string   `koanf:"etcd-cert"`
	Key       string   `koanf:"etcd-key"`
	User      string   `koanf:"etcd-user"`
	Password  string   `koanf:"etcd-password"`
}

// EtcdFlags adds the flags of Etcd.
func EtcdFlags(f *pflag.FlagSet) {
	f.StringSlice("etcd-endpoints", []string{"127.0.0.1:2379"}, "members of the etcd cluster")
	f.String("etcd-ca", "", "file with the certificates that etcd's certificate is checked against (turns TLS on)")
	f.String("etcd-cert", "", "file with the client certificate for etcd")
	f.String("etcd-key", "", "file with the key of the client certificate")
	f.String("etcd-server-name", "", "name in etcd's certificate, where endpoints have another one, such as the address of a Service")
	f.String("etcd-user", "", "user name for etcd")
	f.String("etcd-password", "", "password for etcd (better: SLUICE_ETCD_PASSWORD)")
}

// Client returns the settings of an etcd client. Its error names the flag and the invalid value.
func (e Etcd) Client() (kvstore.Config, error) {
	endpoints := make([]string, len(e.Endpoints))
	for i, text := range e.Endpoints {
		endpoints[i] = Bracketed(text)
	}
	if err := checkEndpoints(endpoints); err != nil {
		return kvstore.Config{}, err
	}
	t, err := e.tls()
	return kvstore.Config{Endpoints: endpoints, TLS: t, ServerName: e.Server, Username: e.User, Password: e.Password}, err
}

// tls returns nil when TLS is not configured.
func (e Etcd) tls() (*tls.Config, error) {
	if e.CA == "" && e.Cert == "" && e.Key == "" {
		if e.Server != "" {
			return nil, errors.New("--etcd-server-name needs --etcd-ca or --etcd-cert: without TLS there is no certificate")
		}
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		pem, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, fmt.Errorf("--etcd-ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--etcd-ca %s: no certificate in the file", e.CA)
		}
	}
	if (e.Cert == "") != (e.Key == "") {
		return nil, errors.New("--etcd-cert and --etcd-key belong together")
	}
	if e.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cert %s and --etcd-key %s: %w", e.Cert, e.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
