package differential

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// ofNoPod are addresses that a pod may claim and never has.
var ofNoPod = []string{"127.0.0.1", "169.254.9.9", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::1", "fe80::9", "ff02::1", "::", "::ffff:127.0.0.1"}

// claims returns a state in which pods claim such addresses in addition to their own, and those of
// their nodes.
func claims(s cluster.State) cluster.State {
	s.Pods = slices.Clone(s.Pods)
	for i, p := range s.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		p = p.DeepCopy()
		more := append([]string{ofNoPod[i%len(ofNoPod)], ofNoPod[(i+3)%len(ofNoPod)]}, p.Status.HostIP)
		for _, ip := range p.Status.HostIPs {
			more = append(more, ip.IP)
		}
		for _, text := range more {
			if text != "" {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: text})
			}
		}
		s.Pods[i] = p
	}
	return s
}

// TestPlayIgnoresUnusedAddresses checks that claimed addresses other than a pod's own
// change no verdict, on any dataplane and in the specification, also for packets with these
// addresses.
func TestPlayIgnoresUnusedAddresses(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		needTime(t, kind)
		for seed := range renderertest.Extent(3, 10, 200) {
			s := cluster.Gen(cluster.Small()).Example(seed)
			plain, spec := oracle.New(s), oracle.New(claims(s))
			var flows []api.Flow
			for f := range flowsOf(s, flowsPerCluster, uint64(seed)) {
				flows = append(flows, f)
				if from := netip.MustParseAddr(ofNoPod[len(flows)%len(ofNoPod)]); from.Is4() == f.Dst.Is4() && !from.Is4In6() && holder(s, f.Dst) {
					f.Src = from
					flows = append(flows, f)
				}
			}
			if flow, differ := difference(slices.Values(flows), plain.Allowed, spec.Allowed); differ {
				t.Fatalf("the specification takes claims for addresses: %s\n%s", flow, reason.Of(spec.Verdict(flow)))
			}
			f := fleetOf(t, kind, claims(s))
			if flow, differ := difference(flowsOf(s, flowsPerCluster, uint64(seed)), spec.Allowed, byFleet(f, spec)); differ {
				t.Fatalf("%s\n%s", disagreement(flow, spec, f.Trace(flow), claims(s)), harness.Manifests(claims(s)))
			}
		}
	})
}

// holder reports whether an address is a pod's.
func holder(s cluster.State, a netip.Addr) bool {
	return slices.Contains(cluster.FlowSpace(s).Pods, a)
}
