package main

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
)

// size is the shape of a cluster.
type size struct {
	namespaces, podsPerNamespace, nodes int
	apps                                int // in every namespace
	policies                            int // in every namespace, the default one included
	// small says that a namespace has a few pods and that the labels of both name
	// nothing else, so that there are very many selectors which match very little.
	small bool
}

// sizes are those that -size names.
var sizes = map[string]size{
	"S":   {namespaces: 20, podsPerNamespace: 50, nodes: 10, apps: 5, policies: 5},
	"M":   {namespaces: 200, podsPerNamespace: 50, nodes: 100, apps: 10, policies: 10},
	"L":   {namespaces: 1000, podsPerNamespace: 100, nodes: 1000, apps: 10, policies: 10},
	"XL":  {namespaces: 25000, podsPerNamespace: 4, nodes: 1000, apps: 2, policies: 3, small: true},
	"XXL": {namespaces: 10000, podsPerNamespace: 100, nodes: 10000, apps: 10, policies: 10},
}

// The values of labels. App i of any namespace has tier i%4 and role i%3.
var (
	envs  = []string{"prod", "staging", "dev"}
	tiers = []string{"frontend", "backend", "cache", "batch"}
	roles = []string{"server", "client", "gateway"}
)

// teams is the number of teams that share the namespaces.
const teams = 50

// maxPodsPerNode is how many addresses a node hands out: a /22, less those that end
// in 0 or 255 in the first /24, and the last.
const maxPodsPerNode = 1021

// The labels that selectors name, too.
const (
	nameLabel        = "kubernetes.io/metadata.name"
	statefulPodLabel = "statefulset.kubernetes.io/pod-name"
)

// cluster is the state at the start, and what is needed to make more objects. Objects
// that were appended are not modified any more: events are made of copies.
type cluster struct {
	seed       uint64
	size       size
	dual       bool // pods have an IPv6 address, too
	namespaces []*namespace
	pods       []*pod
	policies   []*networkPolicy
	admin      []*adminPolicy

	used    []int // addresses handed out, by node; none is handed out twice
	version int   // the last resource version
}

func newCluster(seed uint64, sz size, dual bool) *cluster {
	return &cluster{seed: seed, size: sz, dual: dual, used: make([]int, sz.nodes)}
}

func namespaceName(i int) string { return fmt.Sprintf("ns-%05d", i) }
func nodeName(i int) string      { return fmt.Sprintf("node-%04d", i) }
func appName(i int) string       { return fmt.Sprintf("app-%d", i) }
func teamName(i int) string      { return fmt.Sprintf("team-%02d", i) }
func tenantName(i int) string    { return fmt.Sprintf("tenant-%03d", i) }
func uniqueName(i int) string    { return fmt.Sprintf("uniq-%d", i) } // an app that no pod has

// anyApp, anyTeam and anyNamespace draw the name of one that exists.
func (c *cluster) anyApp(r *rng) string       { return appName(r.below(c.size.apps)) }
func (c *cluster) anyNamespace(r *rng) string { return namespaceName(r.below(c.size.namespaces)) }
func anyTeam(r *rng) string                   { return teamName(r.below(teams)) }

// meta returns the metadata of the next object that comes into being.
func (c *cluster) meta(kind, namespace, name string, l labels) metadata {
	c.version++
	return metadata{
		Name: name, Namespace: namespace, UID: uid(kind, namespace, name),
		ResourceVersion: strconv.Itoa(c.version), Labels: l,
	}
}

func (c *cluster) addNamespaces() {
	r := newRNG(c.seed, "ns")
	for i := range c.size.namespaces {
		name := namespaceName(i)
		l := labels{nameLabel: name}
		if c.size.small {
			l["app"] = name
		} else {
			l["team"] = teamName(i % teams)
			l["env"] = pick(r, envs)
			l["tenant"] = tenantName(i / 10)
		}
		c.namespaces = append(c.namespaces, &namespace{"v1", "Namespace", c.meta("Namespace", "", name, l)})
	}
}

// addPods fills the namespaces. Every node gets the same number of pods.
func (c *cluster) addPods() {
	r := newRNG(c.seed, "pods")
	nodes := c.shuffledNodes(r)
	for ns := range c.size.namespaces {
		for i := range c.size.podsPerNamespace {
			app := i % c.size.apps
			if c.size.small {
				app = i / 2
			}
			c.pods = append(c.pods, c.newPod(r, ns, app, i, nodes[len(c.pods)]))
		}
	}
}

// shuffledNodes returns the node of every pod.
func (c *cluster) shuffledNodes(r *rng) []int {
	out := make([]int, c.size.namespaces*c.size.podsPerNamespace)
	for i := range out {
		out[i] = i % c.size.nodes
	}
	for i := len(out) - 1; i > 0; i-- {
		j := r.below(i + 1)
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// newPod makes pod index of an app, running, with its addresses.
func (c *cluster) newPod(r *rng, ns, app, index, node int) *pod {
	name := fmt.Sprintf("pod-%02d-%03d", app, index)
	return c.podOn(node, namespaceName(ns), name, c.podLabels(r, ns, app, index),
		containerPort{"http", 8080, "TCP"}, containerPort{"metrics", 9090, "TCP"}, containerPort{"dns", 53, "UDP"})
}

func (c *cluster) podOn(node int, namespace, name string, l labels, ports ...containerPort) *pod {
	return &pod{
		APIVersion: "v1", Kind: "Pod",
		Meta:   c.meta("Pod", namespace, name, l),
		Spec:   podSpec{nodeName(node), []container{{"c", "registry.local/app:1", ports}}},
		Status: c.running(node),
	}
}

func (c *cluster) podLabels(r *rng, ns, app, index int) labels {
	if c.size.small {
		return scaleLabels(app)
	}
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d/%d/%d", c.seed, ns, app) // a hash never fails
	l := appLabels(app)
	l["version"] = fmt.Sprintf("v%d", 1+app%2)
	l["pod-template-hash"] = fmt.Sprintf("%08x", h.Sum32())
	if r.below(100) < 5 { // as in a StatefulSet: no other pod has the same set of labels
		l[statefulPodLabel] = fmt.Sprintf("p-%05d-%d", ns, index)
		l["apps.kubernetes.io/pod-index"] = strconv.Itoa(index)
	}
	return l
}

// appLabels are those that move with a pod from app to app.
func appLabels(app int) labels {
	return labels{"app": appName(app), "tier": tiers[app%len(tiers)], "role": roles[app%len(roles)]}
}

// scaleLabels are those of a pod in a cluster of small namespaces.
func scaleLabels(app int) labels {
	return labels{appName(app + 1): fmt.Sprintf("scale-%d", app+1)}
}

// running hands out the next addresses of a node.
func (c *cluster) running(node int) podStatus {
	k := c.used[node]
	c.used[node]++
	if k > 253 { // the first /24 is full: leave out its broadcast and the next network address
		k += 2
	}
	v4 := block4(10<<24|uint32(node)<<10|uint32(k+1), 32).Addr().String()
	st := podStatus{Phase: "Running", PodIP: v4, PodIPs: []podIP{{v4}}}
	if c.dual {
		st.PodIPs = append(st.PodIPs, podIP{fmt.Sprintf("fd00:10::%x:%x", node, k+1)})
	}
	return st
}

// checkAddresses fails if some node handed out an address of the next one.
func (c *cluster) checkAddresses() error {
	if most := slices.Max(c.used); most > maxPodsPerNode {
		return fmt.Errorf("a node would have had %d pods, and it has addresses for %d: take a smaller -n or a larger -size", most, maxPodsPerNode)
	}
	return nil
}
