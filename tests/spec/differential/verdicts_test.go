package differential

import (
	"fmt"
	"iter"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// evaluation reports whether the first packet of a flow is allowed.
type evaluation func(api.Flow) bool

// byFabric asks with packets.
func byFabric(f *node.Fabric) evaluation {
	return func(flow api.Flow) bool { return f.Ask(flow).Verdict == api.Permit }
}

// byFleet asks the dataplanes of a fleet; for flows that they cannot judge it asks an oracle.
func byFleet(f *harness.Cluster, o *oracle.Oracle) evaluation {
	return func(flow api.Flow) bool { return f.Does(flow, o.Allowed(flow)) }
}

// difference returns the first flow on which two evaluations differ.
func difference(flows iter.Seq[api.Flow], a, b evaluation) (api.Flow, bool) {
	for f := range flows {
		if a(f) != b(f) {
			return f, true
		}
	}
	return api.Flow{}, false
}

// disagreement explains a flow on which the product differs from the oracle.
func disagreement(f api.Flow, o *oracle.Oracle, trace string, s cluster.State) string {
	return fmt.Sprintf("%s\n%s\nthe oracle:\n%s\n%s", f, trace, reason.Of(o.Verdict(f)), harness.Manifests(s))
}

// walkText prints what the nodes of a fabric did with a packet.
func walkText(w node.Walk) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", w.Verdict, w.Reason)
	for _, v := range w.Visits {
		fmt.Fprintf(&b, "node %s: %s\n", v.Node, v.Trace)
	}
	return b.String()
}
