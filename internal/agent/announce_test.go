package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// telling is an agent of node-1 that enforces the demo, and tells so.
func telling(t *testing.T) *Agent {
	t.Helper()
	return running(t, func(cfg *config.Config) { cfg.Node.Name, cfg.Store.StatusInterval = "node-1", 10*time.Millisecond })
}

// nodesAre waits until get nodes says of every node what is wanted.
func (a *Agent) nodesAre(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("nodes are %q, want %q", got, want)
		}
	}()
	a.eventually(t, "what nodes tell", func() bool {
		got = nil
		for _, n := range get[[]view.NodeEnforcement](t, a, "GET", "/v1/nodes", "") {
			got = append(got, fmt.Sprintf("%s %s", n.Node, n.Enforced))
		}
		return slices.Equal(got, want)
	})
}

// tells writes what another node tells.
func (a *Agent) tells(t *testing.T, s view.NodeStatus) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = a.store.Write(t.Context(), []model.Entry{{Key: model.StatusRoot(a.cfg.Store.Prefix) + s.Node, Value: text}}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNodeStatusIsUnknownWithoutReport(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	a.apply(t, "{apiVersion: v1, kind: Node, metadata: {name: node-0}}")
	a.nodesAre(t, "node-0 unknown", "node-1 yes")
}

// TestNodeStatusReportsChangesAtOnce has an interval in which nothing would be published twice.
func TestNodeStatusReportsChangesAtOnce(t *testing.T) {
	a := running(t, func(cfg *config.Config) { cfg.Node.Name, cfg.Store.StatusInterval = "node-1", time.Hour })
	a.nodesAre(t, "node-1 yes")
	a.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: more}}")
	a.nodesAre(t, "node-1 yes")
}

// TestNodeStatusTargetsDeletionsAtAllNodes: what is deleted is nowhere in the store, so that
// no revision there says that something changed.
func TestNodeStatusTargetsDeletionsAtAllNodes(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	a.tells(t, view.NodeStatus{Node: "node-2", Following: true, Revision: a.node.Plugin.Status().Revision})
	a.nodesAre(t, "node-1 yes", "node-2 yes")
	policy := model.ID{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "server"}
	if _, err := a.api.Answers.Reflector.Delete(t.Context(), []model.ID{policy}); err != nil {
		t.Fatal(err)
	}
	a.nodesAre(t, "node-1 yes", "node-2 pending")
	a.tells(t, view.NodeStatus{Node: "node-2", Following: true, Revision: a.node.Plugin.Status().Revision})
	a.nodesAre(t, "node-1 yes", "node-2 yes")
}

// TestNodeStatusIsReadUnderItsOwnKeyOnly: etcd lets a node write its own key, and what is in a
// report is what anybody may have written there.
func TestNodeStatusIsReadUnderItsOwnKeyOnly(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	now := time.Now().UTC()
	good := a.node.Plugin.Status().Revision
	write := func(node string, value []byte) {
		t.Helper()
		if err := a.store.Write(t.Context(), []model.Entry{{Key: model.StatusRoot(a.cfg.Store.Prefix) + node, Value: value}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		key    string
		status view.NodeStatus
		want   string
	}{
		{"node-2", view.NodeStatus{Node: "node-2", Revision: good, Time: now}, ""},
		{"node-2", view.NodeStatus{Node: "node-2", Revision: good, Time: now.Add(30 * time.Second)}, ""}, // clocks differ
		{"node-2", view.NodeStatus{Node: "node-1", Revision: good, Time: now}, "its report is invalid: it names node \"node-1\""},
		{"node-2", view.NodeStatus{Revision: good, Time: now}, "its report is invalid: it names node \"\""},
		{"node-2", view.NodeStatus{Node: "node-2\x1b[2J\n", Revision: good, Time: now}, `its report is invalid: it names node "node-2\x1b[2J\n"`},
		{"node-2", view.NodeStatus{Node: "node-2", Revision: 1 << 60, Time: now}, "its report is invalid: it is at revision 1152921504606846976, and etcd at "},
		{"node-2", view.NodeStatus{Node: "node-2", Revision: -1, Time: now}, "its report is invalid: it is at revision -1"},
		{"node-2", view.NodeStatus{Node: "node-2", Revision: good, Time: now.AddDate(70, 0, 0)}, "its report is invalid: it is of "},
		{"node-2", view.NodeStatus{Node: "node-2", Revision: good, Time: now, More: -1}, "its report is invalid: it has -1"},
		{"node-2/", view.NodeStatus{Node: "node-2/", Revision: good, Time: now}, "its report is invalid: no node can have this name"},
	} {
		text, err := json.Marshal(tc.status)
		if err != nil {
			t.Fatal(err)
		}
		write(tc.key, text)
		a.reportIs(t, tc.key, tc.want)
	}
	write("node-2", []byte(`{"node":"node-2","revision":1e400}`))
	a.reportIs(t, "node-2", "its report is invalid: json: ")
	a.nodesAre(t, "node-1 yes", "node-2 unknown", "node-2/ unknown")
}

// reportIs checks what is said of a node's report: nothing when it is believed.
func (a *Agent) reportIs(t *testing.T, node, want string) {
	t.Helper()
	for _, n := range get[[]view.NodeEnforcement](t, a, "GET", "/v1/nodes", "") {
		if n.Node != node {
			continue
		}
		invalid := strings.HasPrefix(n.Why, "its report is invalid: ")
		if invalid != (want != "") || !strings.HasPrefix(n.Why, want) || invalid && (n.Enforced != view.EnforcedUnknown || !n.Time.IsZero() || n.Revision != 0) {
			t.Errorf("of %q it says %+v, want %q", node, n, want)
		}
		return
	}
	t.Errorf("node %q is not there", node)
}

// TestNodeStatusCountsRevisionsOfNewStore: an embedded etcd in an emptyDir begins anew with its
// pod, with lower revisions.
func TestNodeStatusCountsRevisionsOfNewStore(t *testing.T) {
	address := programs.FreeAddress(t)
	// begin starts a store with the demo, after some revisions.
	begin := func(revisions int) *embedded.Server {
		t.Helper()
		server := inprocess.Start(t, embedded.Config{ClientURL: "http://" + address})
		client := server.Client()
		for range revisions {
			if err := client.Write(t.Context(), []model.Entry{{Key: "/other", Value: []byte("x")}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		write(t, reflect.NewReflector(client, model.DefaultPrefix, discard), demo)
		return server
	}
	first := begin(500)
	store, err := kvstore.Open(kvstore.Config{Endpoints: []string{address}, CallTimeout: time.Second}, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	a, err := newAgent(config.Config{
		Node: config.Node{Name: "node-1"}, Store: config.Store{Prefix: model.DefaultPrefix, StatusInterval: 10 * time.Millisecond},
		VPP: config.VPP{Timeout: time.Minute}, Listen: config.Listen{APISocket: socketPath(t)},
	}, discard, store, "a test")
	if err != nil {
		t.Fatal(err)
	}
	a.run(t)
	a.nodesAre(t, "node-1 yes")
	write(t, reflect.NewReflector(first.Client(), model.DefaultPrefix, discard), "{apiVersion: v1, kind: Namespace, metadata: {name: more}}")
	a.eventually(t, "a change", func() bool { return a.watcher.Status().Changed > 500 })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	begin(0)
	a.nodesAre(t, "node-1 yes")
	if s := a.node.Plugin.Status(); s.Revision > 100 {
		t.Errorf("revision %d is enforced", s.Revision)
	}
}

func TestUnwrittenNamesMissingReflector(t *testing.T) {
	var a Agent
	if why := a.unwritten(); why != "" {
		t.Errorf("in development: %s", why)
	}
	a.cfg.VPP.Socket = "/run/vpp/api.sock"
	if why := a.unwritten(); !strings.Contains(why, "not known yet") {
		t.Errorf("before the store has answered: %q", why)
	}
	a.heartbeat.set([]byte("{}"))
	if why := a.unwritten(); why != "" {
		t.Errorf("with a reflector: %s", why)
	}
	a.heartbeat.set(nil)
	if why := a.unwritten(); !strings.HasPrefix(why, "no active reflector for ") {
		t.Errorf("without a reflector: %q", why)
	}
}

// TestNodeStatusIgnoresMarker: sluice-ksr writes the completeness marker also alone, some seconds
// after a change.
func TestNodeStatusIgnoresMarker(t *testing.T) {
	a := telling(t)
	a.nodesAre(t, "node-1 yes")
	key := model.MarkerKey(a.cfg.Store.Prefix)
	entries, _, err := a.store.List(t.Context(), key)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the marker is %v, %v", entries, err)
	}
	if err := a.store.Write(t.Context(), entries, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range get[[]view.NodeEnforcement](t, a, "GET", "/v1/nodes", "") {
		if n.Enforced != view.EnforcedFully {
			t.Errorf("%s is %s: %s", n.Node, n.Enforced, n.Why)
		}
	}
}
