package observed

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
)

// BenchmarkSuggest is about nearly as many flows as are kept, each from another address or from
// another pod that is gone: what a hostile client can leave in the verdicts of a node.
func BenchmarkSuggest(b *testing.B) {
	s := cluster.Random(1, cluster.Large(1000, 10))
	m, pod := described.Of(s), s.Pods[0]
	for name, c := range map[string]struct {
		action api.Action
		gone   bool
	}{"permitted": {api.Permit, false}, "denied": {api.Deny, false}, "gone": {api.Permit, true}} {
		b.Run(name, func(b *testing.B) {
			var v Verdicts
			src := netip.MustParseAddr("1.2.3.4")
			for i := range maxFlows - 1 {
				p := view.PacketVerdict{Time: noon, Direction: api.Ingress, Action: c.action, Reason: policyReason}
				p.Flow = api.Flow{Src: src, Dst: netip.MustParseAddr(pod.Status.PodIP), Protocol: api.TCP, SrcPort: 999, DstPort: 80}
				if c.gone {
					p.Src.Pod = api.PodID{Namespace: pod.Namespace, Name: "gone-" + string(rune('a'+i%26)) + src.String()}
				}
				if err := v.Add(p); err != nil {
					b.Fatal(err)
				}
				src = src.Next()
			}
			for b.Loop() {
				if _, err := Suggest(m, &v, Options{Namespace: pod.Namespace}); (err == nil) != (name == "permitted") {
					b.Fatal(err)
				}
			}
		})
	}
}
