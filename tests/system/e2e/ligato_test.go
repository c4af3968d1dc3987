package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// TestAgentPublishesForVPPAgent: no VPP is needed where a vpp-agent programs it.
func TestAgentPublishesForVPPAgent(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	store(t, etcd, demo)
	// The interface of one pod has a name of its own, those of all others follow a pattern.
	writeKey(t, etcd, model.InterfaceKey(model.DefaultPrefix, "node-1", "demo", "server", "memif1"))
	args := []string{"run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", "",
		"--acl-target", "ligato", "--ligato-label", "vpp7", "--ligato-interface", "tap-{namespace}-{name}", "--uplink", "eth0"}
	a := startAgent(t, args...)
	a.ready()
	prefix := "/vnf-agent/vpp7/config/vpp/acls/v2/acl/"
	keys := publishedFor(t, etcd)
	reflect, table := keys[prefix+"sluice-reflect"], keys[prefix+"sluice-table-1"]
	if len(keys) != 2 || !strings.HasSuffix(reflect, `"interfaces":{"ingress":["memif1"]}}`) || !strings.HasSuffix(table, `"interfaces":{"egress":["memif1"]}}`) {
		t.Fatalf("published is %v", keys)
	}
	rule := func(src string) string {
		return `{"action":"REFLECT","ip_rule":{"ip":{"destination_network":"0.0.0.0/0","source_network":"` + src + `/32"},"tcp":{"destination_port_range":{"lower_port":80,"upper_port":80},`
	}
	if !strings.Contains(table, rule(friend)) || strings.Contains(table, rule(stranger)) {
		t.Errorf("the table of the server is %s", table)
	}
	if out, code := a.ctl("get", "tables", "-o", "json"); code != 0 || !strings.Contains(out, "acl sluice-table-1") {
		t.Errorf("get tables: exit code %d:\n%s", code, out)
	}

	// Equal state writes nothing, also after a restart.
	a.stop(syscall.SIGTERM)
	b := startAgent(t, args...)
	b.ready()
	if again := publishedFor(t, etcd); again[prefix+"sluice-table-1"] != table || len(again) != 2 {
		t.Errorf("after a restart, published is %v", again)
	}
	store(t, etcd, strings.ReplaceAll(demo, "{matchLabels: {app: friend}}}]", "{matchLabels: {app: stranger}}}]"))
	eventually(t, func() error {
		if table := publishedFor(t, etcd)[prefix+"sluice-table-1"]; strings.Contains(table, rule(friend)) || !strings.Contains(table, rule(stranger)) {
			return fmt.Errorf("the change is not published: %s", table)
		}
		return nil
	})

	// What another client deletes is restored.
	change(t, etcd, func(c *kvstore.Client) error { return c.Write(t.Context(), nil, []string{prefix + "sluice-table-1"}) })
	eventually(t, func() error {
		if table := publishedFor(t, etcd)[prefix+"sluice-table-1"]; !strings.Contains(table, rule(stranger)) {
			return errors.New("the key that was deleted is gone")
		}
		return nil
	})
	b.stop(syscall.SIGTERM)
}

// change does something to etcd.
func change(t testing.TB, etcd string, do func(*kvstore.Client) error) {
	t.Helper()
	c, err := kvstore.Dial(t.Context(), kvstore.Config{Endpoints: []string{etcd}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(c), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// publishedFor returns the keys of all vpp-agents.
func publishedFor(t testing.TB, etcd string) map[string]string {
	t.Helper()
	out := map[string]string{}
	change(t, etcd, func(c *kvstore.Client) error {
		entries, _, err := c.List(t.Context(), "/vnf-agent/")
		for _, e := range entries {
			out[e.Key] = string(e.Value)
		}
		return err
	})
	return out
}
