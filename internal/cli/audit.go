package cli

import (
	"fmt"
	"strconv"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

// auditList lists what policies in audit mode would deny.
var auditList = listing[view.Audited]{
	what: "audit", single: "audit", short: "what policies in audit mode would deny, by policy and workload", table: auditTable,
	name: func(a view.Audited) string { return a.Policy.Short() },
	named: func(a view.Audited, in, name string) bool {
		return a.Policy.Name == name && (in == "" || a.Policy.Namespace == in)
	},
	namespaced: true,
	special:    special[view.Audited]{empty: "no policy in audit mode denies anything on this node", askedBy: policyList.known},
}

func auditTable(audits []view.Audited, wide bool) *term.Table {
	columns := []string{"POLICY", "WOULD DENY", "OF", "PACKETS", "TOTAL"}
	if wide {
		columns = append(columns, "RENDERER", "PODS")
	}
	t := term.NewTable(columns...).Narrow(20, "OF").Optional("TOTAL")
	for _, a := range audits {
		row := []any{a.Policy.Short(), wouldDeny(a), dash(few(a.Workloads, 4)), counted(a.Packets), counted(a.Total)}
		if wide {
			row = append(row, a.Renderer, dash(joined(a.Pods)))
		}
		t.Row(row...)
	}
	return t
}

// wouldDeny names the rule of the policy: what it does not allow, or one that denies.
func wouldDeny(a view.Audited) string {
	if a.Rule == api.IsolationRule {
		return a.Direction.String() + " that no rule allows"
	}
	return fmt.Sprintf("%s rule %d", a.Direction, a.Rule)
}

func counted(n *uint64) string {
	if n == nil {
		return "not counted"
	}
	return strconv.FormatUint(*n, 10)
}
