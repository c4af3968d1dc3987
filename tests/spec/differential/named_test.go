package differential

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// closed isolates web in both directions and allows nothing.
func closed() cluster.State {
	s := pair(80)
	s.Policies[0].Spec.Ingress = nil
	s.Policies[0].Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	return s
}

// TestPlayPodReachesItself is decision D1: policies never restrict traffic of a pod
// to itself, and this traffic never gets to the vswitch.
func TestPlayPodReachesItself(t *testing.T) {
	s := closed()
	f, o := fabricOf(t, s), oracle.New(s)
	for _, text := range []string{"10.1.0.1", "fd00::1"} {
		for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, api.ICMPv6} {
			if (protocol == api.ICMP) != addr(text).Is4() && !protocol.HasPorts() {
				continue
			}
			self := api.Flow{Src: addr(text), Dst: addr(text), Protocol: protocol}
			if protocol.HasPorts() {
				self.SrcPort, self.DstPort = sourcePort, 80
			}
			if w := f.Ask(self); w.Verdict != api.Permit || len(w.Visits) != 0 || !o.Allowed(self) {
				t.Errorf("%s: %s after %d nodes, the oracle says %t", self, w, len(w.Visits), o.Allowed(self))
			}
		}
	}
	other := api.Flow{Src: addr("10.1.0.2"), Dst: addr("10.1.0.1"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 80}
	if w := f.Ask(other); w.Verdict != api.Deny || len(w.Visits) == 0 {
		t.Errorf("%s: %s", other, w)
	}
}
