package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	policyapi "github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Specs of policies: of those for the server, of those for all, and what they permit.
const (
	ofServer   = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress], ingress: [%s]}"
	ofAll      = "{podSelector: {}, policyTypes: [Egress], egress: [%s]}"
	ofFriend   = "{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress], egress: [%s]}"
	toServer   = "to: [{podSelector: {matchLabels: {app: server}}}]"
	fromFriend = "from: [{podSelector: {matchLabels: {app: friend}}}]"
)

// policySets returns specs by the name of the set. The first set, of a cluster without policies,
// has none.
func (w *table) policySets() (names []string, specs map[string][]string) {
	specs = map[string][]string{}
	add := func(name string, set ...string) { names, specs[name] = append(names, name), set }
	none := func(spec string) string { return fmt.Sprintf(spec, "") }
	rule := func(spec, peers string) string { return fmt.Sprintf(spec, "{"+peers+"}") }
	// blocks returns all addresses of all families, but some.
	blocks := func(except func(family) string) string {
		return "[" + w.each(func(f family) string { return fmt.Sprintf("{ipBlock: {cidr: %q, except: [%s]}}", f.all, except(f)) }) + "]"
	}
	pods := blocks(func(f family) string { return fmt.Sprintf("%q", f.podNet(2)) })
	nodes := blocks(func(f family) string {
		return fmt.Sprintf(`"%s/%d", "%s/%d"`, f.nodeIP(1), f.length, f.nodeIP(2), f.length)
	})
	allPods := blocks(func(f family) string { return fmt.Sprintf("%q", f.pods) })
	outside := "[" + w.each(func(f family) string { return fmt.Sprintf(`{ipBlock: {cidr: "%s/%d"}}`, f.control(), f.length) }) + "]"

	add("none")
	add("ingress to none", none(ofServer))
	add("ingress by podSelector", rule(ofServer, fromFriend))
	add("ingress by namespaceSelector", rule(ofServer, "from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: table-other}}}]"))
	add("ingress by ipBlock except pods", rule(ofServer, "from: "+pods))
	add("ingress by ipBlock except nodes", rule(ofServer, "from: "+nodes))
	add("ingress by ipBlock of the outside", rule(ofServer, "from: "+outside))
	add("egress to none", none(ofAll))
	add("egress by podSelector", rule(ofFriend, toServer), rule(strings.ReplaceAll(ofFriend, "friend", "stranger"), strings.ReplaceAll(toServer, "server", "friend")))
	add("egress by namespaceSelector", rule(ofAll, "to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]"))
	add("egress by ipBlock except pods", rule(ofAll, "to: "+allPods))
	add("egress by ipBlock except nodes", rule(ofAll, "to: "+nodes))
	add("both to none", none(ofServer), none(ofAll))
	add("both by podSelector", rule(ofServer, fromFriend), rule(ofAll, toServer))
	return names, specs
}

// TestClusterServesEveryKindOfService has each client connect to each kind of service, under each
// kind of policy. In a cluster without Sluice there are no policies, so that it shows what
// kube-proxy does.
func TestClusterServesEveryKindOfService(t *testing.T) {
	w := newTable(t)
	w.translated()
	names, specs := w.policySets()
	if w.Bare {
		names = names[:1]
	}
	for _, name := range names {
		w.enforce(name, specs[name])
		w.askAll(name)
	}
}

// enforce replaces the policies, and waits until both nodes enforce them.
func (w *table) enforce(set string, specs []string) {
	w.t.Helper()
	w.must(w.kube("", "-n", w.name, "delete", "networkpolicies", "--all"))
	var text strings.Builder
	var names []string
	for i, spec := range specs {
		names = append(names, fmt.Sprint(strings.ToLower(strings.ReplaceAll(set, " ", "-")), "-", i))
		fmt.Fprintf(&text, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", names[i], spec)
	}
	if len(specs) > 0 {
		w.apply(text.String())
	}
	for _, name := range names {
		if err := await("policy "+name, func() error {
			_, err := w.run(nodeName(1), "", w.Bin+"/sluicectl", "get", "nodes", "--policy", w.name+"/"+name)
			return err
		}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// specification returns what decides about the policies that are there.
func (w *table) specification() *oracle.Oracle {
	w.t.Helper()
	var namespaces corev1.NamespaceList
	var nodes corev1.NodeList
	var pods corev1.PodList
	var policies networkingv1.NetworkPolicyList
	w.read(&namespaces, "namespaces", "-A")
	w.read(&nodes, "nodes", "-A")
	w.read(&pods, "pods", "-A")
	w.read(&policies, "networkpolicies", "-A")
	var state oracle.State
	for i := range namespaces.Items {
		state.Add(&namespaces.Items[i])
	}
	for i := range nodes.Items {
		state.Add(&nodes.Items[i])
	}
	for i := range pods.Items {
		state.Add(&pods.Items[i])
	}
	for i := range policies.Items {
		state.Add(&policies.Items[i])
	}
	return oracle.New(state)
}

// cell is one question of the table.
type cell struct {
	client   party
	way      way
	family   int
	protocol string
}

var tableProtocols = map[string]policyapi.Protocol{"tcp": policyapi.TCP, "udp": policyapi.UDP}

// nameOf returns client/service/endpoint/family/protocol/policy.
func (w *table) nameOf(c cell, policy string) string {
	endpoint := "remote"
	switch {
	case c.way.to.name == "":
		endpoint = "none"
	case c.way.to.node == c.client.node:
		endpoint = "local"
	}
	return strings.Join([]string{c.client.name, c.way.name, endpoint, w.families[c.family].name, c.protocol, policy}, "/")
}

// want reports whether a cell must be answered.
func (w *table) want(o *oracle.Oracle, c cell) bool {
	return c.way.allowed(o, c.client, w.machines, c.family, tableProtocols[c.protocol]) &&
		(c.way.kind != named || w.dns.allowed(o, c.client, w.machines, 0, policyapi.UDP))
}

// eachCell calls f for all cells, for some of them at the same time.
func (w *table) eachCell(f func(cell)) {
	var g errgroup.Group
	g.SetLimit(64)
	for i := range w.families {
		for protocol := range tableProtocols {
			for _, way := range w.ways {
				for _, client := range w.clients {
					g.Go(func() error { f(cell{client, way, i, protocol}); return nil })
				}
			}
		}
	}
	_ = g.Wait() // nothing returns an error
}

// ask asks the question of a cell.
func (w *table) ask(c cell, wait time.Duration) error {
	ns := w.networks[c.client.name]
	to, name := w.address(c.way, c.family, c.protocol), "headless."+w.name+".svc.cluster.local."
	switch {
	case c.way.service == w.dns.service:
		_, err := lookUp(ns, c.protocol, to, w.families[c.family], name, wait)
		return err
	case c.way.kind == named:
		found, err := lookUp(ns, "udp", w.address(w.dns, 0, "udp"), w.families[c.family], name, wait)
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(to)
		to = net.JoinHostPort(found.String(), port)
	}
	_, err := ask(ns, c.protocol, to, wait)
	return err
}

// lookUp asks a resolver for the first address of a name.
func lookUp(ns netns.NsHandle, network, resolver string, f family, name string, wait time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return dialIn(ns, network, resolver, wait)
	}}
	found, err := r.LookupNetIP(ctx, f.name, name)
	if err != nil {
		return netip.Addr{}, err
	}
	return found[0], nil
}

// translated waits until both nodes translate the addresses of all services.
func (w *table) translated() {
	w.t.Helper()
	o := w.specification()
	w.eachCell(func(c cell) {
		if !strings.HasPrefix(c.client.name, "friend-") || !w.want(o, c) {
			return
		}
		if err := await(w.nameOf(c, "at first"), func() error { return w.ask(c, permittedWait) }); err != nil {
			w.t.Error(err)
		}
	})
}

// askAll asks all questions under a set of policies.
func (w *table) askAll(policy string) {
	w.t.Helper()
	o, begin := w.specification(), time.Now()
	var answered, denied atomic.Int64
	w.eachCell(func(c cell) {
		if w.want(o, c) {
			answered.Add(1)
			// A datagram may be lost on a busy machine.
			if err := w.ask(c, permittedWait); err != nil && w.ask(c, permittedWait) != nil {
				w.t.Errorf("%s: %v, want an answer", w.nameOf(c, policy), err)
			}
			return
		}
		denied.Add(1)
		if w.ask(c, deniedWait) == nil {
			w.t.Errorf("%s: an answer, want none", w.nameOf(c, policy))
		}
	})
	if answered.Load() == 0 || denied.Load() == 0 {
		w.t.Errorf("%s: %d cells are answered, and %d are not: this tests nothing", policy, answered.Load(), denied.Load())
	}
	w.t.Logf("%s: %d cells to be answered, %d not, in %s", policy, answered.Load(), denied.Load(), time.Since(begin).Round(time.Second))
}
