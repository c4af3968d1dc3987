package bench

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
)

// toggle is a change and what takes it back. Both are events of one kind.
type toggle struct {
	name     string
	prepared change // is there before
	do, undo change
}

// toggles returns the events on a shape. What they are about lies in the namespace
// of a local pod, so that most of them concern this node.
func (s shape) toggles() []toggle {
	home := s.home()
	ns := home.Namespace
	const fresh = 30_000 // number of an address that no pod has
	remote := pod(ns, "remote", 7, podIP(7, fresh), "app", "a0", "role", "r0")
	idle := pod(ns, "idle", 7, podIP(7, fresh), "app", "none")
	local := pod(ns, "local", 0, podIP(0, fresh), "app", home.Labels["app"], "role", "r0")
	relabelled, moved := remote.DeepCopy(), local.DeepCopy()
	relabelled.Labels["role"], moved.Labels["app"] = "r1", "a"+fmt.Sprint((s.number(home)+1)%apps)
	first := s.first(ns)
	fromTarget := networkingv1.NetworkPolicyPeer{NamespaceSelector: matchLabels("target", "yes"), PodSelector: matchLabels("role", "r0")}
	added := ingress(ns, "added", matchLabels("app", home.Labels["app"]), networkingv1.NetworkPolicyPeer{PodSelector: matchLabels("role", "r4")}, 443)
	broad := ingress(ns, "broad", matchLabels("app", home.Labels["app"]), networkingv1.NetworkPolicyPeer{
		NamespaceSelector: matchLabels(), PodSelector: matchLabels("role", "r3"),
	}, 443)
	return []toggle{
		{name: "remote-pod-irrelevant", do: putting(idle), undo: removing(idle)},
		{name: "remote-pod-relevant", do: putting(remote), undo: removing(remote)},
		{name: "local-pod", do: putting(local), undo: removing(local)},
		{name: "remote-pod-relabel", prepared: putting(remote), do: putting(relabelled), undo: putting(remote)},
		{name: "local-pod-relabel", prepared: putting(local), do: putting(moved), undo: putting(local)},
		{name: "policy-update", do: putting(s.policy(first, 22)), undo: putting(s.policy(first, int32(1000+first%1000)))},
		{name: "policy-add-delete", do: putting(added), undo: removing(added)},
		{name: "policy-broad-add-delete", do: putting(broad), undo: removing(broad)},
		s.namespaceRelabel(ns, fromTarget),
	}
}

// namespaceRelabel has one policy per namespace that selects by a label which a
// namespace gets and loses.
func (s shape) namespaceRelabel(home string, from networkingv1.NetworkPolicyPeer) toggle {
	t := toggle{name: "namespace-relabel"}
	for i := range s.namespaces() {
		np := ingress(namespaceOf(i), "from-target", matchLabels(), from, 8443)
		t.prepared.put = append(t.prepared.put, np)
	}
	other := namespaceOf(0)
	if other == home {
		other = namespaceOf(1)
	}
	t.do, t.undo = putting(namespace(other, "team", "t0", "target", "yes")), putting(namespace(other, "team", "t0"))
	return t
}

// home returns the local pod with the smallest number.
func (s shape) home() *corev1.Pod {
	w := s.world()
	for i := range s.pods {
		id := model.ID{Kind: model.KindPod, Namespace: namespaceOf(i / podsPerNamespace), Name: fmt.Sprintf("pod-%d", i)}
		if p := w[id].(*corev1.Pod); p.Spec.NodeName == node0 {
			return p
		}
	}
	panic("a shape without local pods")
}

func (s shape) number(p *corev1.Pod) (app int) {
	_, _ = fmt.Sscanf(p.Labels["app"], "a%d", &app)
	return app
}

// first returns the number of a policy that selects the local pod of a namespace.
func (s shape) first(namespace string) int {
	home := s.home()
	for i := range s.policies {
		if np := s.policy(i, 1); np.Namespace == namespace && np.Spec.PodSelector.MatchLabels["app"] == home.Labels["app"] {
			return i
		}
	}
	panic("a shape without a policy for a local pod")
}

// BenchmarkEvent measures single events on a plugin that is up to date, from the
// decoded object to the end of the commit. An operation is one event; events and
// those that take them back alternate.
func BenchmarkEvent(b *testing.B) {
	for _, s := range shapes {
		for _, t := range s.toggles() {
			for _, k := range subjects {
				b.Run(fmt.Sprintf("%s/%s/%s", s, t.name, k), func(b *testing.B) { s.event(b, t, k) })
			}
		}
	}
}

func (s shape) event(b *testing.B, t toggle, k kind) {
	x := running(b, k)
	x.apply(s.world().resync(b))
	x.apply(t.prepared.changes(b))
	in := [2]model.Changes{t.do.changes(b), t.undo.changes(b)}
	for _, c := range in {
		x.apply(c) // the first time is not the usual one
	}
	i := alternate(b, x, in)
	w := s.world()
	w.apply(t.prepared)
	if i%2 == 1 {
		w.apply(t.do)
	}
	focus := append(t.do.put, t.undo.put...)
	x.check(b, w, focus...)
	w.apply([2]change{t.do, t.undo}[i%2])
	x.apply(in[i%2])
	x.check(b, w, focus...)
}
