package main

import "fmt"

// How many policies of cluster scope there are in addition to the baseline, and how many rules each
// has, half of them in either direction.
const (
	adminPolicies     = 100
	rulesPerDirection = 50
	baselineRules     = 5 // per direction
)

// dialect is how an API writes policies of cluster scope down.
type dialect struct {
	apiVersion                 string
	kind                       string
	baselineKind, baselineName string
	accept                     string // the action that lets pass
	portsField                 string // of a rule
	tiered                     bool   // the spec names its tier
	single                     func(number int) object
	ranged                     func(start, end int) object
}

// dialects are those that -api names.
var dialects = map[string]dialect{
	"anp": {
		apiVersion: "policy.networking.k8s.io/v1alpha1", kind: "AdminNetworkPolicy",
		baselineKind: "BaselineAdminNetworkPolicy", baselineName: "default",
		accept: "Allow", portsField: "ports",
		single: func(number int) object { return object{"portNumber": object{"protocol": "TCP", "port": number}} },
		ranged: func(start, end int) object {
			return object{"portRange": object{"protocol": "TCP", "start": start, "end": end}}
		},
	},
	"cnp": {
		apiVersion: "policy.networking.k8s.io/v1alpha2", kind: "ClusterNetworkPolicy",
		baselineKind: "ClusterNetworkPolicy", baselineName: "baseline",
		accept: "Accept", portsField: "protocols", tiered: true,
		single: func(number int) object { return tcpDestination(object{"number": number}) },
		ranged: func(start, end int) object {
			return tcpDestination(object{"range": object{"start": start, "end": end}})
		},
	},
}

func tcpDestination(port object) object {
	return object{"tcp": object{"destinationPort": port}}
}

// adminWriter draws policies of cluster scope.
type adminWriter struct {
	dialect
	cluster *cluster
	rng     *rng
}

// addAdmin appends the policies of cluster scope, and the baseline at the end.
func (c *cluster) addAdmin(d dialect) {
	w := adminWriter{d, c, newRNG(c.seed, "anp")}
	for i := range adminPolicies {
		spec := object{"priority": i, "subject": w.subject()}
		w.addRules(spec, rulesPerDirection, d.accept, "Deny", "Pass")
		if d.tiered {
			spec["tier"] = "Admin"
		}
		w.add(d.kind, fmt.Sprintf("anp-%03d", i), spec)
	}
	spec := object{"subject": object{"namespaces": selector{}}}
	w.addRules(spec, baselineRules, d.accept, "Deny")
	if d.tiered {
		spec["tier"], spec["priority"] = "Baseline", 0
	}
	w.add(d.baselineKind, d.baselineName, spec)
}

func (w adminWriter) add(kind, name string, spec object) {
	w.cluster.admin = append(w.cluster.admin, &adminPolicy{w.apiVersion, kind, w.cluster.meta(kind, "", name, nil), spec})
}

// subject draws which pods a policy is about. The namespaces of the first form are
// drawn even where the second one is taken.
func (w adminWriter) subject() object {
	whole := object{"namespaces": w.namespaces()}
	if !w.rng.oneIn(2) {
		return whole
	}
	return pods(w.namespaces(), matching("tier", pick(w.rng, tiers)))
}

func (w adminWriter) peer() object {
	if w.rng.oneIn(2) {
		return object{"namespaces": w.namespaces()}
	}
	return pods(w.namespaces(), matching("app", w.cluster.anyApp(w.rng)))
}

func pods(namespaces, selected selector) object {
	return object{"pods": object{"namespaceSelector": namespaces, "podSelector": selected}}
}

// namespaces draws a selector of namespaces by one of their labels.
func (w adminWriter) namespaces() selector {
	switch w.rng.below(4) {
	case 0:
		return matching("env", pick(w.rng, envs))
	case 1:
		return expression("tenant", "In", tenantName(w.rng.below(20)), tenantName(w.rng.below(20)))
	default:
		return matching("team", anyTeam(w.rng))
	}
}

func (w adminWriter) port() object {
	start := 1 + w.rng.below(60000)
	isRange := w.rng.oneIn(3)
	end := start + 1 + w.rng.below(1000) // drawn even if it is not a range
	if isRange {
		return w.ranged(start, end)
	}
	return w.single(start)
}

// addRules draws n rules in both directions.
func (w adminWriter) addRules(spec object, n int, actions ...string) {
	spec["ingress"] = w.rules(n, "ingress", "from", actions)
	spec["egress"] = w.rules(n, "egress", "to", actions)
}

func (w adminWriter) rules(n int, direction, peersField string, actions []string) []object {
	out := make([]object, n)
	for i := range out {
		rule := object{"name": fmt.Sprintf("%s-%03d", direction, i), "action": pick(w.rng, actions)}
		rule[peersField] = w.some(w.peer)
		rule[w.portsField] = w.some(w.port)
		out[i] = rule
	}
	return out
}

// some draws one to three elements. How many is drawn anew before each of them, which
// makes three rarer than two: the known workloads are made that way.
func (w adminWriter) some(draw func() object) []object {
	var out []object
	for len(out) < 1+w.rng.below(3) {
		out = append(out, draw())
	}
	return out
}
