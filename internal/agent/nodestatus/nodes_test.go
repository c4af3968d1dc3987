package nodestatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// followed is a watcher that has seen nothing.
type followed struct{}

func (followed) Status() datasync.Status { return datasync.Status{} }

// TestNodesAreUnknownWhileNoReflectorWrites: every node enforces what is in the store, which no
// program changes any more. Nodes that do not even enforce that say why.
func TestNodesAreUnknownWhileNoReflectorWrites(t *testing.T) {
	store := inprocess.Start(t, embedded.Config{}).Client()
	root := model.StatusRoot(model.DefaultPrefix)
	var reports []model.Entry
	for node, revision := range map[string]int64{"behind": 0, "enforces": 2} {
		text, err := json.Marshal(view.NodeStatus{Node: node, Revision: revision, Following: true, Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, model.Entry{Key: root + node, Value: text})
	}
	namespace := model.Entry{Key: model.KindRoot(model.DefaultPrefix, model.KindNamespace) + "_/shop", Value: []byte("x")}
	for _, e := range append([]model.Entry{namespace}, reports...) {
		if err := store.Write(t.Context(), []model.Entry{e}, nil); err != nil {
			t.Fatal(err)
		}
	}
	why := ""
	nodes := Nodes{Store: store, Prefix: model.DefaultPrefix, Watcher: followed{}, Unwritten: func() string { return why }}
	for _, want := range [][]string{
		{"behind pending is at revision 0", "enforces yes "},
		{"behind pending is at revision 0", "enforces unknown no reflector"},
	} {
		list, err := nodes.List(t.Context(), Policy{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range list {
			got = append(got, fmt.Sprintf("%s %s %s", n.Node, n.Enforced, n.Why))
		}
		if !slices.Equal(got, want) {
			t.Errorf("nodes are %q, want %q", got, want)
		}
		why = "no reflector"
	}
}
