package faults

import (
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/tests/cluster"
)

// tree is a part of a manifest.
type tree = map[string]any

// manifest is an admin policy of any kind: the manifests of the kinds are nearly equal, unlike
// their Go types.
type manifest struct {
	baseline bool // of that tier
	alpha1   bool // of v1alpha1
	name     string
	spec     tree
}

// allow is the word that the kind has for it.
func (m manifest) allow() string {
	if m.alpha1 {
		return "Allow"
	}
	return "Accept"
}

// directions are the lists of rules of a spec, with the peers of their rules.
var directions = map[string]string{"ingress": "from", "egress": "to"}

// manifests changes every policy of administrators.
func manifests(change func(m manifest)) edit {
	return func(s *cluster.State) {
		for _, p := range s.AdminPolicies {
			p.Spec = changed(p.Spec, func(t tree) { change(manifest{alpha1: true, name: p.Name, spec: t}) })
		}
		for _, p := range s.BaselinePolicies {
			p.Spec = changed(p.Spec, func(t tree) { change(manifest{alpha1: true, baseline: true, name: p.Name, spec: t}) })
		}
		for _, p := range s.ClusterPolicies {
			baseline := p.Spec.Tier == v1alpha2.BaselineTier
			p.Spec = changed(p.Spec, func(t tree) { change(manifest{baseline: baseline, name: p.Name, spec: t}) })
		}
	}
}

// changed returns a spec as it is after a change.
func changed[T any](spec T, change func(tree)) T {
	t := tree{}
	convert(spec, &t)
	change(t)
	var out T
	convert(t, &out)
	return out
}

// convert makes one Go type of another by way of their JSON.
func convert(from, into any) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(fmt.Sprintf("%T is not %T: %v", from, into, err)) // a mistake of an edit
	}
}

// lists changes the rules of each direction of each policy.
func lists(change func(m manifest, peers string, rules []any) []any) edit {
	return manifests(func(m manifest) {
		for direction, peers := range directions {
			rules, _ := m.spec[direction].([]any)
			m.spec[direction] = change(m, peers, rules)
		}
	})
}

// tierRules puts other rules in the place of each. The lists of peers are called from
// or to.
func tierRules(change func(m manifest, peers string, rule tree) []tree) edit {
	return lists(func(m manifest, peers string, rules []any) []any {
		out := []any{}
		for _, r := range rules {
			for _, c := range change(m, peers, r.(tree)) {
				out = append(out, c)
			}
		}
		return out
	})
}

// tierPeers changes the peers of rules.
func tierPeers(change func(m manifest, rule, peer tree)) edit {
	return tierRules(func(m manifest, peers string, rule tree) []tree {
		list, _ := rule[peers].([]any)
		for _, p := range list {
			change(m, rule, p.(tree))
		}
		return []tree{rule}
	})
}

// actions changes the actions of rules.
func actions(change func(m manifest, action string) string) edit {
	return tierRules(func(m manifest, _ string, rule tree) []tree {
		action, _ := rule["action"].(string)
		rule["action"] = change(m, action)
		return []tree{rule}
	})
}

// tierPorts changes the ports of rules, of which v1alpha2 calls the list protocols.
func tierPorts(change func(m manifest, port tree)) edit {
	return tierRules(func(m manifest, _ string, rule tree) []tree {
		for _, list := range []string{"ports", "protocols"} {
			ports, _ := rule[list].([]any)
			for _, p := range ports {
				change(m, p.(tree))
			}
		}
		return []tree{rule}
	})
}

// ranked gives the policies of the admin tier the priorities of their places in some
// order, in which no two are equal.
func ranked(before func(a, b place) int) edit {
	return func(s *cluster.State) {
		var places []place
		for _, p := range s.AdminPolicies {
			places = append(places, place{p.Name, 1, int(p.Spec.Priority), &p.Spec.Priority})
		}
		for _, p := range s.ClusterPolicies {
			if p.Spec.Tier == v1alpha2.AdminTier {
				places = append(places, place{p.Name, 2, int(p.Spec.Priority), &p.Spec.Priority})
			}
		}
		places = slices.DeleteFunc(places, func(p place) bool { return p.priority < 0 || p.priority > 1000 }) // refused
		slices.SortFunc(places, before)
		for i, p := range places {
			*p.at = int32(i)
		}
	}
}

// place is the position of a policy in its tier.
type place struct {
	name           string
	kind, priority int
	at             *int32
}

// asAdmin makes a policy of v1alpha1 of the baseline one of the admin tier.
func asAdmin(b *v1alpha1.BaselineAdminNetworkPolicy, priority int32) *v1alpha1.AdminNetworkPolicy {
	out := &v1alpha1.AdminNetworkPolicy{ObjectMeta: b.ObjectMeta}
	convert(b.Spec, &out.Spec)
	out.Spec.Priority = priority
	return out
}
