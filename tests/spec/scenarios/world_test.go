package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// world is the cluster of a scenario, with the names that its file gives to ends of
// flows. A change makes a new one; objects are never changed.
type world struct {
	state    cluster.State
	declared map[string]bool // namespaces
	parties
}

// parties are what a file can name as ends of flows.
type parties struct {
	names     []string // in the order in which the file names them
	externals map[string][]netip.Addr
	services  map[string]service
}

// service is a Service with one backend, as address translation sees it.
type service struct {
	backend string
	ports   map[uint16]uint16 // the Service's to the pod's
}

func newWorld() *world {
	return &world{declared: map[string]bool{}, parties: parties{externals: map[string][]netip.Addr{}, services: map[string]service{}}}
}

// clone returns a world that can be changed.
func (w *world) clone() *world {
	out := *w
	out.state.Namespaces, out.state.Pods = slices.Clone(w.state.Namespaces), slices.Clone(w.state.Pods)
	out.state.Policies, out.state.Nodes = slices.Clone(w.state.Policies), slices.Clone(w.state.Nodes)
	out.names, out.declared = slices.Clone(w.names), maps.Clone(w.declared)
	out.externals, out.services = maps.Clone(w.externals), maps.Clone(w.services)
	return &out
}

// verbs are the statements that change a world.
var verbs = map[string]func(*world, line) error{
	"node": (*world).node, "namespace": (*world).namespace, "external": (*world).external, "service": (*world).service,
	"pod": (*world).pod, "label": (*world).label, "readdress": (*world).readdress, "phase": (*world).phase,
	"terminate": (*world).terminate, "delete": (*world).remove, "forget": (*world).forget,
}

// change applies statements in their order.
func (w *world) change(lines []line) error {
	for _, l := range lines {
		do, known := verbs[l.verb]
		if !known {
			return fmt.Errorf("%q is none of %s", l.verb, strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
		}
		if err := do(w, l); err != nil {
			return err
		}
	}
	return nil
}

// name remembers an end of flows.
func (p *parties) name(name string) error {
	if slices.Contains(p.names, name) {
		return fmt.Errorf("%s is there already", name)
	}
	p.names = append(p.names, name)
	return nil
}

// node reads "node n1 192.168.0.1 fd00:9::1 zone=a". The first address of a family is
// the node's internal one, others are external ones.
func (w *world) node(l line) error {
	name, err := l.take("the name of a node")
	if err != nil {
		return err
	}
	addrs, err := l.addresses()
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, a := range l.args {
		if err := setLabel(n.Labels, a); err != nil {
			return err
		}
	}
	seen := map[int]bool{}
	for _, a := range addrs {
		t := corev1.NodeInternalIP
		if seen[family(a)] {
			t = corev1.NodeExternalIP
		}
		seen[family(a)] = true
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: t, Address: a.String()})
	}
	w.state.Nodes = append(w.state.Nodes, n)
	return w.name(name)
}

// addresses takes the words that are addresses, at least one.
func (l *line) addresses() ([]netip.Addr, error) {
	var out []netip.Addr
	l.args = slices.Clone(l.args)
	for len(l.args) > 0 {
		a, err := netip.ParseAddr(l.args[0].Key)
		if err != nil || l.args[0].Vals != nil {
			break
		}
		out, l.args = append(out, a), l.args[1:]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q: want an address", l)
	}
	return out, nil
}

// external reads "external internet 8.8.8.8 2001:db8::8".
func (p *parties) external(l line) error {
	name, err := l.take("a name")
	if err != nil {
		return err
	}
	if p.externals[name], err = l.addresses(); err != nil {
		return err
	}
	return errors.Join(p.name(name), l.end())
}

// service reads "service db 80=5432 to=shop/db".
func (w *world) service(l line) error {
	name, err := l.take("a name")
	if err != nil {
		return err
	}
	s := service{ports: map[uint16]uint16{}}
	for _, a := range l.args {
		value, err := one(a)
		if err != nil {
			return err
		}
		if a.Key == "to" {
			s.backend = value
			continue
		}
		from, errFrom := parseNumber(a.Key)
		to, errTo := parseNumber(value)
		if err := errors.Join(errFrom, errTo); err != nil {
			return err
		}
		s.ports[from] = to
	}
	if podIndex(w.state, s.backend) < 0 {
		return fmt.Errorf("service %s: there is no pod %q", name, s.backend)
	}
	w.services[name] = s
	return nil
}

// namespace reads "namespace shop team=a", or "namespace shop unknown" for one whose
// object comes later or never.
func (w *world) namespace(l line) error {
	name, err := l.take("the name of a namespace")
	if err != nil {
		return err
	}
	w.declared[name] = true
	if len(l.args) == 1 && l.args[0].String() == "unknown" {
		return w.forgetNamespace(name)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, a := range l.args {
		if err := setLabel(ns.Labels, a); err != nil {
			return err
		}
	}
	_ = w.forgetNamespace(name)
	w.state.Namespaces = append(w.state.Namespaces, ns)
	return nil
}

func (w *world) forgetNamespace(name string) error {
	w.state.Namespaces = slices.DeleteFunc(w.state.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return nil
}

// forget reads "forget namespace shop": the namespace's object is removed, but what is in it stays,
// as for a node that receives the namespace last.
func (w *world) forget(l line) error {
	kind, err := l.take("namespace")
	if err != nil || kind != "namespace" {
		return fmt.Errorf("%q: want forget namespace NAME", l)
	}
	name, err := l.take("the name of a namespace")
	if err != nil {
		return err
	}
	if namespaceIndex(w.state, name) < 0 {
		return fmt.Errorf("there is no namespace %s", name)
	}
	return errors.Join(w.forgetNamespace(name), l.end())
}

// remove reads "delete pod shop/web", "delete policy shop/web", "delete cnp guard" and
// "delete namespace shop", which takes everything with it that is in the namespace.
func (w *world) remove(l line) error {
	kind, err := l.take("pod, policy, anp, banp, cnp or namespace")
	if err != nil {
		return err
	}
	name, err := l.take("the name of a " + kind)
	if err != nil {
		return err
	}
	if err := l.end(); err != nil {
		return err
	}
	switch kind {
	case "pod":
		return w.removePod(name)
	case "policy":
		return w.removePolicy(name)
	case "anp", "banp", "cnp":
		return w.removeTier(kind, name)
	case "namespace":
		return w.removeNamespace(name)
	}
	return fmt.Errorf("delete: %q is none of pod, policy, anp, banp, cnp, namespace", kind)
}

func (w *world) removePod(name string) error {
	i := podIndex(w.state, name)
	if i < 0 {
		return fmt.Errorf("there is no pod %s", name)
	}
	w.state.Pods = slices.Delete(w.state.Pods, i, i+1)
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
	return nil
}

func (w *world) removePolicy(name string) error {
	i := slices.IndexFunc(w.state.Policies, func(np *networkingv1.NetworkPolicy) bool { return nameOf(np) == name })
	if i < 0 {
		return fmt.Errorf("there is no policy %s", name)
	}
	w.state.Policies = slices.Delete(w.state.Policies, i, i+1)
	return nil
}

func (w *world) removeNamespace(name string) error {
	if !w.declared[name] {
		return fmt.Errorf("there is no namespace %s", name)
	}
	delete(w.declared, name)
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return strings.HasPrefix(n, name+"/") })
	w.state.Pods = slices.DeleteFunc(w.state.Pods, func(p *corev1.Pod) bool { return p.Namespace == name })
	w.state.Policies = slices.DeleteFunc(w.state.Policies, func(np *networkingv1.NetworkPolicy) bool { return np.Namespace == name })
	return w.forgetNamespace(name)
}

// put adds a policy or replaces the one of its name.
func (w *world) put(np *networkingv1.NetworkPolicy) error {
	if !w.declared[np.Namespace] {
		return undeclared(np.Namespace)
	}
	_ = w.removePolicy(nameOf(np))
	w.state.Policies = append(w.state.Policies, np)
	return nil
}

func undeclared(namespace string) error {
	return fmt.Errorf("namespace %s is not declared: add \"namespace %s\", or \"namespace %s unknown\" when its object comes later",
		namespace, namespace, namespace)
}

func podIndex(s cluster.State, name string) int {
	return slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return nameOf(p) == name })
}

func namespaceIndex(s cluster.State, name string) int {
	return slices.IndexFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
}

// nameOf returns "shop/web".
func nameOf(o metav1.Object) string {
	return api.PodID{Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}
