package policytest

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// world is the state that the subjects have, with the indexes in which endpoint
// expressions are looked up. Namespaces that objects live in and that no object
// defines are implied.
type world struct {
	objects map[model.ID]kinds.Object
	implied map[string]kinds.Object
	members map[string]map[model.ID]bool // objects by the namespace they live in
	pods    map[string]map[string]*pod   // by namespace and name
	holders map[netip.Addr][]*pod        // live pods in their own network

	resolved map[string]resolution // of expressions, until a pod changes
	services *services.Cluster     // until a pod or a service changes; nil for not known
}

func newWorld() *world {
	return &world{
		objects:  map[model.ID]kinds.Object{},
		implied:  map[string]kinds.Object{},
		members:  map[string]map[model.ID]bool{},
		pods:     map[string]map[string]*pod{},
		holders:  map[netip.Addr][]*pod{},
		resolved: map[string]resolution{},
	}
}

// change is a difference between two states, sorted by ID.
type change struct {
	upserts []kinds.Object
	deletes []model.ID
}

func (c change) isEmpty() bool { return len(c.upserts) == 0 && len(c.deletes) == 0 }

// apply puts objects in place and takes others away, and returns what that
// changed. An object that is equal to the one before changes nothing.
func (w *world) apply(upserts []kinds.Object, deletes []model.ID) change {
	delta := map[model.ID]kinds.Object{} // the zero Object: deleted
	for _, id := range deletes {
		if _, ok := w.objects[id]; ok {
			w.remove(id)
			delta[id] = kinds.Object{}
		}
	}
	for _, o := range upserts {
		id := o.ID()
		if old, ok := w.objects[id]; ok && reflect.DeepEqual(old.Object, o.Object) {
			continue
		}
		w.setObject(id, o)
		delta[id] = o
	}
	touched := map[string]bool{}
	for id := range delta {
		touched[namespaceOf(id)] = true
	}
	for ns := range touched {
		w.imply(ns, delta)
	}
	return sortedChange(delta)
}

// namespaceOf returns the namespace that an object lives in or is.
func namespaceOf(id model.ID) string {
	if id.Kind == model.KindNamespace {
		return id.Name
	}
	return id.Namespace
}

// imply adds or takes away the implied namespace of the name.
func (w *world) imply(namespace string, delta map[model.ID]kinds.Object) {
	id := model.ID{Kind: model.KindNamespace, Name: namespace}
	_, defined := w.objects[id]
	_, implied := w.implied[namespace]
	switch needed := !defined && len(w.members[namespace]) > 0; {
	case needed && !implied:
		member := slices.SortedFunc(maps.Keys(w.members[namespace]), compareIDs)[0]
		for _, o := range kinds.ImpliedNamespaces([]kinds.Object{w.objects[member]}) {
			w.implied[namespace], delta[id] = o, o
		}
	case !needed && implied:
		delete(w.implied, namespace)
		if !defined {
			delta[id] = kinds.Object{}
		}
	}
}

// sortedChange omits objects that no policy depends on: subjects do not need them.
func sortedChange(delta map[model.ID]kinds.Object) change {
	var c change
	for _, id := range slices.SortedFunc(maps.Keys(delta), compareIDs) {
		if id.Kind.IsOfServices() {
			continue
		}
		if o := delta[id]; o.Object != nil {
			c.upserts = append(c.upserts, o)
		} else {
			c.deletes = append(c.deletes, id)
		}
	}
	return c
}

// compareIDs orders referenced objects before those that refer to them.
func compareIDs(a, b model.ID) int {
	return cmp.Or(cmp.Compare(slices.Index(model.Kinds, a.Kind), slices.Index(model.Kinds, b.Kind)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func (w *world) setObject(id model.ID, o kinds.Object) {
	w.remove(id)
	w.objects[id], w.services = o, nil
	if id.Kind != model.KindNamespace {
		insert(w.members, id.Namespace, id, true)
	}
	if obj, ok := o.Object.(*corev1.Pod); ok {
		p := newPod(obj)
		insert(w.pods, id.Namespace, id.Name, p)
		for _, a := range p.ownAddresses() {
			w.holders[a] = append(w.holders[a], p)
		}
		clear(w.resolved)
	}
}

func (w *world) remove(id model.ID) {
	delete(w.objects, id)
	w.services = nil
	if members := w.members[id.Namespace]; members != nil {
		if delete(members, id); len(members) == 0 {
			delete(w.members, id.Namespace)
		}
	}
	p := w.pods[id.Namespace][id.Name]
	if id.Kind != model.KindPod || p == nil {
		return
	}
	if delete(w.pods[id.Namespace], id.Name); len(w.pods[id.Namespace]) == 0 {
		delete(w.pods, id.Namespace)
	}
	for _, a := range p.ownAddresses() {
		w.holders[a] = slices.DeleteFunc(w.holders[a], func(q *pod) bool { return q == p })
		if len(w.holders[a]) == 0 {
			delete(w.holders, a)
		}
	}
	clear(w.resolved)
}

func insert[K1, K2 comparable, V any](m map[K1]map[K2]V, k1 K1, k2 K2, v V) {
	if m[k1] == nil {
		m[k1] = map[K2]V{}
	}
	m[k1][k2] = v
}

// exists reports whether there is such an object, or an implied namespace.
func (w *world) exists(id model.ID) bool {
	if _, ok := w.objects[id]; ok {
		return true
	}
	_, ok := w.implied[id.Name]
	return ok && id.Kind == model.KindNamespace
}

// pod is the part of a pod that a test needs.
type pod struct {
	id          api.PodID
	labels      labels.Set
	addrs       []netip.Addr // in the order of the status
	hostNetwork bool         // policies do not see it, and its addresses are the node's
	finished    bool         // its addresses belong to no pod
	ports       []Port       // every declared port, of containers and sidecars; may lack a name
}

func newPod(obj *corev1.Pod) *pod {
	p := &pod{
		id:          api.PodID{Namespace: obj.Namespace, Name: obj.Name},
		labels:      obj.Labels,
		hostNetwork: obj.Spec.HostNetwork,
		finished:    obj.Status.Phase == corev1.PodSucceeded || obj.Status.Phase == corev1.PodFailed,
	}
	for _, ip := range append(slices.Clip(obj.Status.PodIPs), corev1.PodIP{IP: obj.Status.PodIP}) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(p.addrs, a.Unmap()) {
			p.addrs = append(p.addrs, a.Unmap())
		}
	}
	for _, c := range obj.Spec.Containers {
		p.declare(c.Ports)
	}
	for _, c := range obj.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			p.declare(c.Ports) // a sidecar
		}
	}
	return p
}

func (p *pod) declare(ports []corev1.ContainerPort) {
	for _, c := range ports {
		protocol, ok := parseProtocol(string(c.Protocol))
		if ok && protocol.HasPorts() && c.ContainerPort >= 1 && c.ContainerPort <= 65535 {
			p.ports = append(p.ports, Port{Number: uint16(c.ContainerPort), Name: c.Name, Protocol: protocol})
		}
	}
}

// ownAddresses returns the addresses that are the pod's own.
func (p *pod) ownAddresses() []netip.Addr {
	if p.hostNetwork || p.finished {
		return nil
	}
	return p.addrs
}

// named returns the numbers of the ports with a name, sorted.
func (p *pod) named(name string, protocol api.Protocol) []uint16 {
	var out []uint16
	for _, port := range p.ports {
		if port.Name == name && port.Protocol == protocol {
			out = append(out, port.Number)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
