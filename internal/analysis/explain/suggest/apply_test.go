package suggest_test

import (
	"maps"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// apply makes a change that an explanation offers, with nothing but what the change
// says. It fails when the change names what does not exist or changes nothing.
func apply(t failing, s cluster.State, c suggest.Change) cluster.State {
	if c.Kind == suggest.Together {
		for _, part := range c.Parts {
			s = apply(t, s, part)
		}
		return s
	}
	out := cluster.Copy(s)
	switch c.Kind {
	case suggest.LabelPod:
		if len(c.Set)+len(c.Unset) == 0 {
			t.Fatalf("%s: changes nothing", c.Text)
		}
		relabel(&shop.PodOf(&out, c.Pod.String()).ObjectMeta, c)
	case suggest.LabelNamespace:
		relabel(&shop.NamespaceOf(&out, c.Namespace).ObjectMeta, c)
	case suggest.Isolate, suggest.AddPolicy:
		types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if c.Direction == api.Egress {
			types[0] = networkingv1.PolicyTypeEgress
		}
		np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: types}}
		np.Namespace, np.Name = shop.PodOf(&out, c.Pod.String()).Namespace, "isolate"
		if c.Kind == suggest.AddPolicy {
			np.Name, np.Spec.PodSelector.MatchLabels = "allow-"+c.Pod.Name, shop.PodOf(&out, c.Pod.String()).Labels
			addRule(np, c)
		}
		out.Policies = append(out.Policies, np)
	default:
		for _, g := range slices.Backward(c.Origins) {
			if g.Policy.Kind != api.NetworkPolicy {
				editTier(t, &out, g, c)
				continue
			}
			edit(t, policyOf(&out, g.Policy), g, c)
		}
	}
	if reflect.DeepEqual(s, out) {
		t.Fatalf("%s: changes nothing", c.Text)
	}
	return out
}

// failing is what testing.T and rapid.T share.
type failing interface {
	Fatalf(format string, args ...any)
}

func relabel(m *metav1.ObjectMeta, c suggest.Change) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, c.Set)
	for _, k := range c.Unset {
		delete(m.Labels, k)
	}
}

func policyOf(s *cluster.State, id api.PolicyID) *networkingv1.NetworkPolicy {
	i := slices.IndexFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool {
		return np.Namespace == id.Namespace && np.Name == id.Name
	})
	return s.Policies[i]
}

// edit changes a policy. The types stay what they were: an API server has written
// the defaults down before an edit.
func edit(t failing, np *networkingv1.NetworkPolicy, g api.Origin, c suggest.Change) {
	if np.Spec.PolicyTypes == nil {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	if c.Kind == suggest.AddRule {
		addRule(np, c)
		return
	}
	if g.Direction == api.Ingress && c.Kind == suggest.RemoveRules {
		np.Spec.Ingress = slices.Delete(np.Spec.Ingress, g.Rule, g.Rule+1)
		return
	}
	if c.Kind == suggest.RemoveRules {
		np.Spec.Egress = slices.Delete(np.Spec.Egress, g.Rule, g.Rule+1)
		return
	}
	if g.Direction == api.Ingress {
		r := &np.Spec.Ingress[g.Rule]
		editTerms(t, &r.From, &r.Ports, c)
		return
	}
	r := &np.Spec.Egress[g.Rule]
	editTerms(t, &r.To, &r.Ports, c)
}

func addRule(np *networkingv1.NetworkPolicy, c suggest.Change) {
	var ports []networkingv1.NetworkPolicyPort
	if c.Port != nil {
		ports = append(ports, *c.Port)
	}
	peers := []networkingv1.NetworkPolicyPeer{*c.Peer}
	if c.Direction == api.Ingress {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
		return
	}
	np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
}

func editTerms(t failing, peers *[]networkingv1.NetworkPolicyPeer, ports *[]networkingv1.NetworkPolicyPort, c suggest.Change) {
	switch c.Kind {
	case suggest.AddPeer:
		*peers = append(*peers, *c.Peer)
	case suggest.AddPort:
		*ports = append(*ports, *c.Port)
	case suggest.OpenPorts:
		*ports = nil
	case suggest.RemovePeers:
		remove(t, peers, c)
	case suggest.RemovePorts:
		remove(t, ports, c)
	case suggest.AddExcept, suggest.RemoveExcept:
		for _, i := range c.Terms {
			except := &(*peers)[i].IPBlock.Except
			if c.Kind == suggest.AddExcept {
				*except = append(*except, c.Except...)
				continue
			}
			for _, gone := range c.Except {
				if !slices.Contains(*except, gone) {
					t.Fatalf("%s: there is no except %s", c.Text, gone)
				}
				*except = slices.DeleteFunc(*except, func(e string) bool { return e == gone })
			}
		}
	default:
		t.Fatalf("no test knows how to make a change of kind %s", c.Kind)
	}
}

// remove takes terms out of a list, which must not become empty: that would match
// everything.
func remove[T any](t failing, list *[]T, c suggest.Change) {
	for _, i := range slices.Backward(c.Terms) {
		*list = slices.Delete(*list, i, i+1)
	}
	if len(*list) == 0 {
		t.Fatalf("%s: leaves an empty list", c.Text)
	}
}
