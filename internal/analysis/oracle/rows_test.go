package oracle_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// scenario is a statement about one row of the semantics: under these policies
// these flows get these verdicts.
type scenario struct {
	row      int
	name     string
	policies string // YAML documents of NetworkPolicies, without kind
	tiers    string // YAML documents of admin policies, see anp, banp and cnp
	edit     func(*oracle.State)
	opts     []oracle.Option
	want     []string // "src > dst port/protocol allow" or "... deny"
}

// elsewhere lists the rows that no verdict about a first packet can show.
var elsewhere = map[int]string{
	48: "the time before a policy is handled is a matter of the agent",
	50: "established flows are a matter of the renderers",
	51: "how a packet is dropped is a matter of the renderers",
	53: "related ICMP errors are a matter of connection state",
	54: "address resolution is never asked about",
	55: "fragments are a matter of the renderers",
}

func TestSemantics(t *testing.T) {
	all := slices.Concat(structureRows, portRows, blockRows, podRows, adminOrderRows, adminPeerRows, adminPodRows, adminPortRows)
	for row := 1; row <= 80; row++ {
		has := slices.ContainsFunc(all, func(s scenario) bool { return s.row == row })
		if has == (elsewhere[row] != "") {
			t.Errorf("row %d must have a scenario or a reason why not", row)
		}
	}
	for _, s := range all {
		t.Run(fmt.Sprintf("row %02d %s", s.row, s.name), func(t *testing.T) { s.run(t) })
	}
}

func (s scenario) run(t *testing.T) {
	t.Helper()
	st := shop.Cluster()
	st.Policies = shop.Policies(t, s.policies)
	shop.AddAdmin(t, &st, s.tiers)
	if s.edit != nil {
		s.edit(&st)
	}
	o := oracle.New(st, s.opts...)
	for _, w := range s.want {
		q := shop.Ask(t, w)
		v := o.VerdictPods(q.Src, q.Dst, q.Protocol, q.Port)
		if v.Allowed != q.Allow {
			t.Errorf("%s: got the contrary\n%s", w, reason.Of(v))
		}
	}
}
