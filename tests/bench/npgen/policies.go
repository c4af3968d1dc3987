package main

import "fmt"

// Directions of a policy.
var (
	ingressOnly = []string{"Ingress"}
	egressOnly  = []string{"Egress"}
	bothWays    = []string{"Ingress", "Egress"}
)

// servicePorts are the ports that policies open.
var servicePorts = []int{80, 443, 5432, 6379, 8080, 9090, 3306, 27017}

func (c *cluster) newPolicy(ns int, name string, spec policySpec) *networkPolicy {
	return &networkPolicy{"networking.k8s.io/v1", "NetworkPolicy", c.meta("NetworkPolicy", namespaceName(ns), name, nil), spec}
}

func (c *cluster) addPolicy(ns int, name string, spec policySpec) {
	c.policies = append(c.policies, c.newPolicy(ns, name, spec))
}

// allowFrom is the policy that lets the peers reach the pods of a selector.
func allowFrom(applied selector, types []string, ports []port, from ...peer) policySpec {
	return policySpec{PodSelector: applied, PolicyTypes: types, Ingress: []ingressRule{{ports, from}}}
}

// denyAll is the policy that isolates all pods of its namespace.
func denyAll() policySpec { return policySpec{PolicyTypes: bothWays} }

// addPolicies gives every namespace its policies, the first of which denies all.
func (c *cluster) addPolicies() {
	r := newRNG(c.seed, "pol")
	for ns := range c.size.namespaces {
		c.addPolicy(ns, "default-deny-all", denyAll())
		for i := 1; i < c.size.policies; i++ {
			if c.size.small {
				c.addPolicy(ns, fmt.Sprintf("np-%d", i), amongThemselves(i-1))
				continue
			}
			c.addPolicy(ns, fmt.Sprintf("np-%02d", i), c.mixedSpec(r))
		}
	}
}

// amongThemselves lets the pods of an app of a small namespace reach each other.
func amongThemselves(app int) policySpec {
	s := selector{MatchLabels: scaleLabels(app)}
	return allowFrom(s, bothWays, nil, peer{PodSelector: &s})
}

// mixedSpec draws one of the usual policies. What it draws comes before the kind of
// policy and then in the order in which it is written down.
func (c *cluster) mixedSpec(r *rng) policySpec {
	applied := matching("app", c.anyApp(r))
	switch x := r.below(100); {
	case x < 40:
		return c.appToApp(r, applied)
	case x < 55:
		return c.teamToApp(r, applied)
	case x < 65:
		return broad(r)
	case x < 80:
		return lookupAndBlock(r, applied)
	case x < 90:
		return c.namedPorts(r, applied)
	default:
		return c.portRange(r, applied)
	}
}

// appToApp is a policy inside of a namespace.
func (c *cluster) appToApp(r *rng, applied selector) policySpec {
	on := tcp(pick(r, servicePorts))
	return allowFrom(applied, ingressOnly, []port{on}, peer{PodSelector: new(matching("app", c.anyApp(r)))})
}

// teamToApp is a policy for an app of all namespaces of a team.
func (c *cluster) teamToApp(r *rng, applied selector) policySpec {
	on := tcp(pick(r, servicePorts))
	team := matching("team", anyTeam(r))
	return allowFrom(applied, ingressOnly, []port{on}, peer{NamespaceSelector: &team, PodSelector: new(matching("app", c.anyApp(r)))})
}

// broad is a policy of many pods for a very large set of peers.
func broad(r *rng) policySpec {
	on := tcp(pick(r, servicePorts))
	return allowFrom(expression("tier", "In", "backend", "frontend"), ingressOnly, []port{on}, peer{
		NamespaceSelector: new(matching("env", "prod")),
		PodSelector:       new(expression("role", "In", "client", "gateway")),
	})
}

// lookupAndBlock lets pods ask the DNS and reach a block outside, with exceptions.
func lookupAndBlock(r *rng, applied selector) policySpec {
	block := randomBlock4(r, r.below(5))
	dns := peer{NamespaceSelector: new(matching(nameLabel, namespaceName(0))), PodSelector: new(matching("app", appName(0)))}
	return policySpec{PodSelector: applied, PolicyTypes: egressOnly, Egress: []egressRule{
		{[]port{{Protocol: "UDP", Port: 53}, tcp(53)}, []peer{dns}},
		{[]port{tcp(443)}, []peer{{IPBlock: &block}}},
	}}
}

// namedPorts is a policy with two ports by name and two peers.
func (c *cluster) namedPorts(r *rng, applied selector) policySpec {
	app := matching("app", c.anyApp(r))
	tier := matching("tier", pick(r, tiers))
	return allowFrom(applied, ingressOnly, []port{tcp("http"), tcp("metrics")}, peer{PodSelector: &app}, peer{PodSelector: &tier})
}

// portRange is a policy with a range of ports, three namespaces by name and a label
// that peers must not have.
func (c *cluster) portRange(r *rng, applied selector) policySpec {
	named := expression(nameLabel, "In", c.anyNamespace(r), c.anyNamespace(r), c.anyNamespace(r))
	from := 1024 + r.below(30000)
	to := from + 1 + r.below(2000)
	return allowFrom(applied, ingressOnly, []port{{Protocol: "TCP", Port: from, EndPort: to}},
		peer{NamespaceSelector: &named, PodSelector: new(expression(statefulPodLabel, "DoesNotExist"))})
}

// addDense makes one namespace of n pods in which every pod has an app of its own and
// a policy that lets one other pod in: an engine that tries every selector on every
// pod is quadratic here.
func (c *cluster) addDense(n int) {
	c.size.namespaces = 1
	c.addNamespaces()
	app := func(i int) string { return fmt.Sprintf("a-%06d", i) }
	for i := range n {
		l := labels{"app": app(i), "tier": tiers[i%len(tiers)], "part-of": "dense"}
		c.pods = append(c.pods, c.podOn(i%c.size.nodes, namespaceName(0), fmt.Sprintf("pod-%06d", i), l, containerPort{"http", 8080, "TCP"}))
		neighbour := matching("app", app(i^1), "part-of", "dense")
		c.addPolicy(0, fmt.Sprintf("np-%06d", i), allowFrom(matching("app", app(i)), bothWays, nil, peer{PodSelector: &neighbour}))
	}
}
