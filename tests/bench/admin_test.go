package bench

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// skipAdmin skips what would not fit: rules of administrators name most of a cluster as
// peers, and a dataplane without sets holds every member of them, once per port and pod.
func (w workload) skipAdmin(b *testing.B, k kind) {
	if k == vpp && w.stats(b).AdminPolicies > 0 {
		b.Skipf("%s would be tens of millions of ACL entries", w)
	}
}

// adminEvents are changes that administrators make to a workload that has their
// policies: the one that applies to most local pods goes to the end of the tier, and a
// namespace gets labels by which it is no peer, and no subject, of most of them.
func adminEvents(b *testing.B, w world, x *subject) map[string]toggle {
	snapshot, err := x.plugin.Snapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	out, most := map[string]toggle{}, 0
	for _, p := range snapshot.Policies {
		if p.Place.Tier != api.TierAdmin || len(p.Pods) <= most {
			continue
		}
		most = len(p.Pods)
		id := model.ID{Kind: model.KindAdminNetworkPolicy, Name: p.ID.Name}
		if p.ID.Kind == api.ClusterNetworkPolicy {
			id.Kind = model.KindClusterNetworkPolicy
		}
		out["priority"] = toggle{do: putting(last(w[id])), undo: putting(w[id])}
	}
	ns, _ := w[w.ids()[slices.IndexFunc(w.ids(), func(id model.ID) bool { return id.Kind == model.KindNamespace })]].(*corev1.Namespace)
	moved := ns.DeepCopy()
	moved.Labels["env"], moved.Labels["team"] = "moved", "moved"
	out["peer-namespace"] = toggle{do: putting(moved), undo: putting(ns)}
	return out
}

// last returns a policy with the priority that is asked last.
func last(policy any) any {
	switch o := policy.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		o = o.DeepCopy()
		o.Spec.Priority = 1000
		return o
	case *v1alpha2.ClusterNetworkPolicy:
		o = o.DeepCopy()
		o.Spec.Priority = 1000
		return o
	}
	return policy
}

// BenchmarkAdminEvent measures single events on a workload with admin policies.
func BenchmarkAdminEvent(b *testing.B) {
	for _, w := range workloads(b) {
		if w.stats(b).AdminPolicies == 0 {
			continue
		}
		for _, name := range []string{"priority", "peer-namespace"} {
			b.Run(w.String()+"/"+name, func(b *testing.B) { w.adminEvent(b, name) })
		}
	}
}

func (w workload) adminEvent(b *testing.B, name string) {
	x := startSubject(b, recorder, workloadNode, nil)
	defer x.close()
	x.apply(w.resync(b))
	after := w.world(b)
	t := adminEvents(b, after, x)[name]
	in := [2]model.Changes{t.do.changes(b), t.undo.changes(b)}
	for _, c := range in {
		x.apply(c) // the first time is not the usual one
	}
	before := x.operations()
	i := alternate(b, x, in)
	b.ReportMetric(float64(x.operations()-before)/float64(i), "changes/event")
	if i%2 == 1 {
		after.apply(t.do)
	}
	x.check(b, after, t.do.put...)
}
