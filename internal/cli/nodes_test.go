package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// TestGetNodesShowsRevisionBesideTarget: the revision of the store that a node has
// reached moves on without policy, too.
func TestGetNodesShowsRevisionBesideTarget(t *testing.T) {
	now := time.Now()
	node := func(name string, revision int64, enforced view.Enforcement) view.NodeEnforcement {
		return view.NodeEnforcement{
			NodeStatus: view.NodeStatus{Node: name, Version: "v1", Revision: revision, Time: now.Add(-3 * time.Second)}, Wanted: 20, Enforced: enforced,
		}
	}
	nodes := []view.NodeEnforcement{
		node("ahead", 2100, view.EnforcedFully), node("behind", 7, view.EnforcedPending), node("equal", 20, view.EnforcedFully),
		{NodeStatus: view.NodeStatus{Node: "missing"}, Wanted: 20, Enforced: view.EnforcedUnknown, Why: "no agent reports on it"},
	}
	var b strings.Builder
	nodeTable(nodes, false).Print(term.NewWriter(&b))
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"NODE ENFORCED REVISION TARGET REPORTED VERSION",
		"ahead yes 20 20 3s ago v1",
		"behind pending: 7 20 3s ago v1",
		"equal yes 20 20 3s ago v1",
		"missing unknown: no agent reports on it - 20 -",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the nodes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
