package cluster

import (
	"iter"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// TestStateHasNamedPortsOfSidecars counts the states in which a verdict changes when
// sidecars do not run on: what never matters is never tested.
func TestStateHasNamedPortsOfSidecars(t *testing.T) {
	const states, least = 60, 3
	matter := 0
	for seed := range uint64(states) {
		s := Random(seed, Small())
		with, without := oracle.New(s), oracle.New(withoutSidecars(s))
		for f := range toSidecars(s) {
			if with.Allowed(f) != without.Allowed(f) {
				matter++
				break
			}
		}
	}
	if matter < least {
		t.Errorf("sidecars matter in %d of %d states, want %d", matter, states, least)
	}
}

func withoutSidecars(s State) State {
	s.Pods = slices.Clone(s.Pods)
	for i, p := range s.Pods {
		s.Pods[i] = p.DeepCopy()
		for j := range s.Pods[i].Spec.InitContainers {
			s.Pods[i].Spec.InitContainers[j].RestartPolicy = nil
		}
	}
	return s
}

// toSidecars yields the flows of a state to ports of pods that have sidecars.
func toSidecars(s State) iter.Seq[api.Flow] {
	ports := map[netip.AddrPort]bool{}
	for _, p := range s.Pods {
		for _, c := range p.Spec.InitContainers {
			for _, port := range c.Ports {
				for _, ip := range p.Status.PodIPs {
					ports[netip.AddrPortFrom(netip.MustParseAddr(ip.IP), uint16(port.ContainerPort))] = true
				}
			}
		}
	}
	return func(yield func(api.Flow) bool) {
		for f := range FlowSpace(s).All() {
			if ports[netip.AddrPortFrom(f.Dst, f.DstPort)] && !yield(f) {
				return
			}
		}
	}
}
