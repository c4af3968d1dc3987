package explained

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// AuditTable lists what policies in audit mode would deny.
func AuditTable(audits []view.Audited, wide bool) *term.Table {
	columns := []string{"POLICY", "WOULD DENY", "OF", "PACKETS", "TOTAL"}
	if wide {
		columns = append(columns, "RENDERER", "PODS")
	}
	t := term.NewTable(columns...).Narrow(20, "OF").Optional("TOTAL")
	for _, a := range audits {
		most := 4
		if wide {
			most = len(a.Workloads)
		}
		row := []any{a.Policy.Short(), wouldDeny(a), cmp.Or(term.Few(a.Workloads, most), "-"), counted(a.Packets), counted(a.Total)}
		if wide {
			row = append(row, a.Renderer, cmp.Or(term.Joined(a.Pods), "-"))
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
