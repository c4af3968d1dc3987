package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// mounted writes the Secrets that the command prints as the kubelet mounts them: a folder for each.
func mounted(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errOut := sluicectl("nowhere", "", append([]string{"store", "certificates"}, args...)...)
	if code != ExitOK {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	dir := t.TempDir()
	for doc := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "---\n") {
		var s corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
			t.Fatal(err)
		}
		if s.Kind != "Secret" || s.APIVersion != "v1" || s.Namespace != "kube-system" || s.Type != corev1.SecretTypeTLS {
			t.Errorf("it is a %s of %s in %s, type %s", s.Kind, s.APIVersion, s.Namespace, s.Type)
		}
		if err := os.Mkdir(filepath.Join(dir, s.Name), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, b := range s.Data {
			if err := os.WriteFile(filepath.Join(dir, s.Name, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestCertificatesOpenEmbeddedEtcd to those who have the one of an agent, by whatever address it
// is reached.
func TestCertificatesOpenEmbeddedEtcd(t *testing.T) {
	dir := mounted(t)
	server := filepath.Join(dir, "sluice-ksr-etcd")
	etcd, err := embedded.Start(t.Context(), embedded.Config{
		ClientURL: "https://127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Writable: []string{"/sluice/status/"},
		TLS: embedded.TLS{Cert: filepath.Join(server, "tls.crt"), Key: filepath.Join(server, "tls.key"), ClientCA: filepath.Join(server, "ca.crt")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	agent := filepath.Join(dir, "sluice-agent-etcd")
	right := settings.Etcd{Endpoints: etcd.Endpoints(), CA: filepath.Join(agent, "ca.crt"), Cert: filepath.Join(agent, "tls.crt"), Key: filepath.Join(agent, "tls.key"), Server: "sluice-store"}
	stranger := filepath.Join(mounted(t), "sluice-agent-etcd")
	otherCA := filepath.Join(stranger, "ca.crt")
	for name, c := range map[string]struct {
		edit func(e *settings.Etcd)
		ok   bool
	}{
		"an agent":                               {func(*settings.Etcd) {}, true},
		"an agent that takes the address":        {func(e *settings.Etcd) { e.Server = "" }, false},
		"an agent that expects another one":      {func(e *settings.Etcd) { e.Server = "elsewhere" }, false},
		"nobody":                                 {func(e *settings.Etcd) { e.Cert, e.Key = "", "" }, false},
		"an agent that trusts another authority": {func(e *settings.Etcd) { e.CA = otherCA }, false},
		"who has another authority's": {func(e *settings.Etcd) {
			e.Cert, e.Key = filepath.Join(stranger, "tls.crt"), filepath.Join(stranger, "tls.key")
		}, false},
		"the server's own": {func(e *settings.Etcd) {
			e.Cert, e.Key = filepath.Join(server, "tls.crt"), filepath.Join(server, "tls.key")
		}, false},
	} {
		e := right
		c.edit(&e)
		cfg, err := e.Client()
		if err != nil {
			t.Fatal(err)
		}
		patience := time.Minute
		if !c.ok {
			patience = time.Second // the client goes on trying
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		store, err := kvstore.Dial(ctx, cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = store.Close()
		}
		cancel()
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want to be let in: %t", name, err, c.ok)
		}
	}
}

func TestCertificateErrorsNameFile(t *testing.T) {
	for want, args := range map[string][]string{"--days": {"--days", "0"}, "--namespace": {"-n", "No_Name"}} {
		if code, _, errOut := sluicectl("nowhere", "", append([]string{"store", "certificates"}, args...)...); code != ExitError || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %q", args, code, errOut)
		}
	}
}
