package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networks returns the networks that administrators' policies name.
func networks(s State) (out []string) {
	for _, o := range AdminPolicies(s) {
		for _, r := range rulesIn(o) {
			for _, p := range objectsIn(r["to"]) {
				list, _ := p["networks"].([]any)
				for _, n := range list {
					text, _ := n.(string)
					out = append(out, text)
				}
			}
		}
	}
	return out
}

// adminPorts adds every number in the ports of admin policies.
func adminPorts(s State, add func(int32)) {
	var numbers func(v any)
	numbers = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				numbers(x)
			}
		case []any:
			for _, x := range v {
				numbers(x)
			}
		case float64:
			add(int32(v))
		}
	}
	for _, o := range AdminPolicies(s) {
		for _, r := range rulesIn(o) {
			numbers(r["ports"])
			numbers(r["protocols"])
		}
	}
}

// rulesIn returns the rules of both directions.
func rulesIn(o metav1.Object) []map[string]any {
	sp := specOf(o)
	return append(objectsIn(sp["ingress"]), objectsIn(sp["egress"])...)
}

// objectsIn returns the elements of a list that are objects.
func objectsIn(v any) (out []map[string]any) {
	list, _ := v.([]any)
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
