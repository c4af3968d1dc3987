package backends

import "github.com/sluice-net/sluice/api"

// Tabled is a Backend whose renderer holds tables, which pods share.
type Tabled interface {
	// Tables returns the installed tables, those of pods first, in an order that is a function of
	// the latest desired state.
	Tables() []Table
}

// Table is one table.
type Table struct {
	Pods  []api.PodID // the pods that have it, sorted; none: the node
	Rules []string    // in their order
}

var _ Tabled = aclBackend{}

// Tables implements Tabled.
func (s aclBackend) Tables() []Table {
	var out []Table
	for _, t := range s.ACL.State().Tables {
		table := Table{Pods: t.Pods}
		for _, r := range t.Rules {
			table.Rules = append(table.Rules, r.String())
		}
		out = append(out, table)
	}
	return out
}
