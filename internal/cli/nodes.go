package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// nodeList lists what every node of the cluster says of itself, beside the revision of etcd at
// which a policy, or anything, changed last. Nodes report that through etcd at once; while there
// are many changes, every 10 seconds (--status-interval of the agent).
func nodeList() listing[view.NodeEnforcement] {
	return listing[view.NodeEnforcement]{
		what: "nodes", single: "node", aliases: []string{"no"},
		short: "nodes, and whether each enforces a policy (--policy), or everything",
		table: nodeTable,
		name:  func(n view.NodeEnforcement) string { return n.Node },
		named: func(n view.NodeEnforcement, _, name string) bool { return n.Node == name },
		special: special[view.NodeEnforcement]{
			check: func(names []string) error {
				if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "/") }); i >= 0 {
					return fmt.Errorf("%q is not the name of a node: for a policy want --policy %s", names[i], names[i])
				}
				return nil
			},
			query: aboutPolicy,
			empty: "no node reports what it enforces: agents do with --node and --status-interval",
			still: func(n view.NodeEnforcement) view.NodeEnforcement {
				n.Time = time.Time{}
				return n
			},
			negative: func(nodes []view.NodeEnforcement) bool {
				return len(nodes) == 0 || slices.ContainsFunc(nodes, func(n view.NodeEnforcement) bool { return n.Enforced != view.EnforcedFully })
			},
		},
	}
}

// aboutPolicy asks whether nodes enforce the policy of --policy.
func aboutPolicy(r *getRun) (url.Values, error) {
	q := url.Values{}
	if r.policy == "" {
		return q, nil
	}
	in, name, err := splitName(r.policy, r.namespace)
	if err != nil {
		return nil, fmt.Errorf("--policy %w", err)
	}
	q.Set("namespace", in)
	q.Set("name", name)
	return q, nil
}

func nodeTable(nodes []view.NodeEnforcement, _ bool) *term.Table {
	t := term.NewTable("NODE", "ENFORCED", "REVISION", "TARGET", "REPORTED", "VERSION").
		Narrow(20, "ENFORCED", "VERSION").Optional("VERSION", "TARGET", "REVISION")
	for _, n := range nodes {
		enforced := term.Cell{Text: string(n.Enforced), Style: term.Green}
		if n.Enforced != view.EnforcedFully {
			enforced = term.Cell{Text: string(n.Enforced) + ": " + n.Why, Style: term.Amber}
		}
		t.Row(n.Node, enforced, reached(n), n.Wanted, ago(n.Time, time.Now()), n.Version)
	}
	return t
}

// reached returns how much of the target a node enforces. The store moves on without it,
// too, so that the revision of the node alone cannot be compared with the target.
func reached(n view.NodeEnforcement) string {
	if n.Time.IsZero() {
		return "-"
	}
	return strconv.FormatInt(min(n.Revision, n.Wanted), 10)
}
