package suggest_test

import (
	"encoding/json"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// editTier makes a change in an admin policy: in its JSON, as a person
// would with an editor. Of objects of one name the last counts.
func editTier(t failing, s *cluster.State, g api.Origin, c suggest.Change) {
	switch g.Policy.Kind {
	case api.AdminNetworkPolicy:
		for _, p := range slices.Backward(s.AdminPolicies) {
			if p.Name == g.Policy.Name {
				edited(t, p, g, c)
				return
			}
		}
	case api.BaselineAdminNetworkPolicy:
		for _, p := range slices.Backward(s.BaselinePolicies) {
			if p.Name == g.Policy.Name {
				edited(t, p, g, c)
				return
			}
		}
	case api.ClusterNetworkPolicy:
		for _, p := range slices.Backward(s.ClusterPolicies) {
			if p.Name == g.Policy.Name {
				edited(t, p, g, c)
				return
			}
		}
	case api.NetworkPolicy:
	}
	t.Fatalf("%s: there is no %s", c.Text, g.Policy)
}

// edited changes an object of whichever kind.
func edited[T any](t failing, obj *T, g api.Origin, c suggest.Change) {
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatalf("%v", err)
	}
	spec := doc["spec"].(map[string]any)
	rules, _ := spec[g.Direction.String()].([]any)
	peers, ports := "to", "ports"
	if g.Direction == api.Ingress {
		peers = "from"
	}
	if g.Policy.Kind == api.ClusterNetworkPolicy {
		ports = "protocols"
	}
	rule := rules[g.Rule].(map[string]any)
	switch c.Kind {
	case suggest.RemoveRules:
		rules = slices.Delete(rules, g.Rule, g.Rule+1)
	case suggest.AddRuleBefore:
		added := map[string]any{"action": string(c.Action), peers: []any{peerDoc(c.Peer)}}
		if c.Port != nil {
			added[ports] = []any{portDoc(ports, c.Port)}
		}
		rules = slices.Insert(rules, g.Rule, any(added))
	case suggest.AddPeer:
		rule[peers] = append(listOf(rule[peers]), peerDoc(c.Peer))
	case suggest.AddPort:
		rule[ports] = append(listOf(rule[ports]), portDoc(ports, c.Port))
	case suggest.RemovePeers:
		rule[peers] = shorter(t, listOf(rule[peers]), c)
	case suggest.RemovePorts:
		rule[ports] = shorter(t, listOf(rule[ports]), c)
	default:
		t.Fatalf("%s: no test knows how to make a change of kind %s in a policy of administrators", c.Text, c.Kind)
	}
	spec[g.Direction.String()] = rules
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatalf("%v", err)
	}
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", c.Text, err)
	}
	*obj = out
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

func shorter(t failing, list []any, c suggest.Change) []any {
	remove(t, &list, c)
	return list
}

func peerDoc(p *networkingv1.NetworkPolicyPeer) any {
	if p.IPBlock != nil {
		return map[string]any{"networks": []any{p.IPBlock.CIDR}}
	}
	return map[string]any{"pods": map[string]any{"namespaceSelector": p.NamespaceSelector, "podSelector": p.PodSelector}}
}

func portDoc(list string, p *networkingv1.NetworkPolicyPort) any {
	if list == "ports" {
		return map[string]any{"portNumber": map[string]any{"protocol": *p.Protocol, "port": p.Port.IntVal}}
	}
	return map[string]any{strings.ToLower(string(*p.Protocol)): map[string]any{"destinationPort": map[string]any{"number": p.Port.IntVal}}}
}
