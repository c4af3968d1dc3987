package cache

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// noGroup is the group of pods that policies ignore.
const noGroup = ^intent.GroupID(0)

// podState is the reason why a pod is in a group or in none.
type podState uint8

const (
	podLive        podState = iota // in a group
	podHostNetwork                 // has the addresses of its node
	podFinished                    // Succeeded or Failed
)

// pod is kept small: there may be 100 000. pods.v4 holds the address of a pod with exactly one IPv4
// address, the usual case; extras holds the addresses of others.
type pod struct {
	name  string // empty: the slot is free
	ns    uint32
	group intent.GroupID
	pos   uint32 // index in the group's pods
	host  uint32
	extra uint32 // index in extras plus one; 0: none
	epoch uint32
	state podState
}

// pods holds all pods of the cluster.
type pods struct {
	ns      *namespaces
	groups  *groups
	hosts   hostTable
	list    pages[pod]
	v4      pages[uint32] // by pod; 0: none, or see pod.extra. Large sets read them all
	index   hashIndex
	byAddr  hashIndex // pods by address, one entry for each address
	free    []uint32
	extras  extraAddrs
	given   map[uint32]struct{}     // pods that have their registered addresses
	yielded map[uint32][]netip.Addr // addresses in the state of pods that have not all of them, because others own some
	scratch scratch
}

// extraAddrs holds address lists that do not fit into a pod.
type extraAddrs struct {
	lists [][]netip.Addr
	free  []uint32
}

func hashPod(ns, name string) uint32 { return fold(hashString(hashString(0, ns), name)) }

func (x *pods) find(ns, name string) (uint32, bool) {
	return x.index.find(hashPod(ns, name), func(i uint32) bool {
		return x.list.at(i).name == name && x.ns.list[x.list.at(i).ns].name == ns
	})
}

func (x *pods) apply(id model.ID, m *model.Pod, w update) []api.Problem {
	i, known := x.find(id.Namespace, id.Name)
	if m == nil {
		if known {
			x.drop(i, w)
		}
		return nil
	}
	if !known {
		i = x.add(id)
	}
	x.list.at(i).epoch = w.epoch
	state := stateOf(m)
	var addrs []netip.Addr
	var problems []api.Problem
	host := x.hosts.acquire(m.GetNodeName(), m.GetNodeIps())
	if state == podLive {
		addrs, problems = x.scratch.readAddrs(id, m, x.hosts.list[host].ips)
	}
	addrs = x.keeps(i, state, addrs)
	delete(x.yielded, i)
	group := noGroup
	if state == podLive {
		ports, bad := x.scratch.readPorts(m.GetNamedPorts())
		if bad {
			problems = append(problems, api.Problem{Object: id.String(), Field: "spec.containers", Reason: "a named port has no name, an unknown protocol or a number outside 1 to 65535, and is left out"})
		}
		group = x.groups.groupFor(x.list.at(i).ns, x.scratch.readLabels(m.GetLabels()), ports, w)
	}
	x.change(i, pod{group: group, host: host, state: state}, addrs, known, w)
	return problems
}

func (x *pods) add(id model.ID) uint32 {
	n := x.ns.indexOrAdd(id.Namespace)
	i := x.slot()
	*x.list.at(i) = pod{name: id.Name, ns: n, group: noGroup}
	x.index.insert(hashPod(id.Namespace, id.Name), i)
	x.ns.list[n].pods++
	return i
}

// slot returns a free index.
func (x *pods) slot() uint32 {
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i
	}
	x.v4.add()
	return x.list.add()
}

func stateOf(m *model.Pod) podState {
	switch {
	case m.GetPhase() == model.Pod_PHASE_SUCCEEDED || m.GetPhase() == model.Pod_PHASE_FAILED:
		return podFinished
	case m.GetHostNetwork():
		return podHostNetwork
	}
	return podLive
}

// readAddrs returns the pod's addresses, valid until the next call. It drops addresses that only
// nodes have or whose meaning differs from host to host.
func (s *scratch) readAddrs(id model.ID, m *model.Pod, ofNode []netip.Addr) ([]netip.Addr, []api.Problem) {
	addrs, bad := parseAddrs(s.addrs[:0], m.GetIps())
	s.addrs = addrs
	problem := func(format string, args ...any) api.Problem {
		return api.Problem{Object: id.String(), Field: "status.podIPs", Reason: fmt.Sprintf(format, args...)}
	}
	var problems []api.Problem
	if len(bad) > 0 {
		problems = append(problems, problem("cannot be understood and left out: %s", quoted(bad)))
	}
	var never []string
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		if a.IsGlobalUnicast() && !slices.Contains(ofNode, a) {
			return false
		}
		never = append(never, a.String())
		return true
	})
	if len(never) > 0 {
		problems = append(problems, problem("cannot be addresses of a pod and left out: %s", quoted(never)))
	}
	if len(addrs) > model.MaxAddresses {
		problems = append(problems, problem("has %d addresses, the limit is %d: the others are left out", len(addrs), model.MaxAddresses))
		addrs = addrs[:model.MaxAddresses]
	}
	return addrs, problems
}

// change sets the new state of a pod and notifies the watcher. It takes over the references of want
// (group by membership, host by count).
func (x *pods) change(i uint32, want pod, addrs []netip.Addr, known bool, w update) {
	p := x.list.at(i)
	s := &x.scratch
	was := *p
	var old, now *intent.Pod
	oldAddrs := x.addrs(i, &s.oldV4)
	sameAddrs := slices.Equal(oldAddrs, addrs)
	if known && was.group == want.group && was.host == want.host && was.state == want.state && sameAddrs {
		x.hosts.release(want.host)
		return
	}
	if was.group != noGroup {
		old = &s.old
		*old = x.view(i, oldAddrs)
	}
	if !sameAddrs {
		x.unindexAddrs(i, oldAddrs)
		x.setAddrs(i, addrs)
	}
	if was.group != want.group {
		x.leave(i)
		x.join(i, want.group)
	}
	p.host, p.state = want.host, want.state
	shared := !sameAddrs && x.indexAddrs(i, addrs)
	if p.group != noGroup {
		now = &s.new
		*now = x.view(i, x.addrs(i, &s.newV4))
		now.Shared = shared
	}
	if old != nil || now != nil {
		w.PodChanged(old, now)
	}
	if known {
		x.hosts.release(was.host)
	}
	x.groups.tidy(was.group, w)
}

func (x *pods) drop(i uint32, w update) {
	p := x.list.at(i)
	n, g, h := p.ns, p.group, p.host
	if g != noGroup {
		s := &x.scratch
		addrs := x.addrs(i, &s.oldV4)
		s.old = x.view(i, addrs)
		x.unindexAddrs(i, addrs)
		x.leave(i)
		w.PodChanged(&s.old, nil)
	}
	x.setAddrs(i, nil)
	delete(x.given, i)
	delete(x.yielded, i)
	x.index.remove(hashPod(x.ns.list[n].name, p.name), i)
	*p = pod{}
	x.free = append(x.free, i)
	x.hosts.release(h)
	x.ns.list[n].pods--
	x.groups.tidy(g, w)
	x.ns.tidy(n)
}

func (x *groups) tidy(g intent.GroupID, w update) {
	if g != noGroup && len(x.list[g].pods) == 0 {
		x.drop(g, w)
	}
}

// view returns a pod as the watcher sees it.
func (x *pods) view(i uint32, addrs []netip.Addr) intent.Pod {
	p := x.list.at(i)
	h := &x.hosts.list[p.host]
	return intent.Pod{
		ID:    api.PodID{Namespace: x.ns.list[p.ns].name, Name: p.name},
		Group: p.group, Node: h.name, IPs: addrs, NodeIPs: h.ips,
	}
}

func (x *pods) leave(i uint32) {
	p := x.list.at(i)
	if p.group == noGroup {
		return
	}
	g := &x.groups.list[p.group]
	last := g.pods[len(g.pods)-1]
	g.pods[p.pos] = last
	x.list.at(last).pos = p.pos
	g.pods = g.pods[:len(g.pods)-1]
	p.group = noGroup
}

func (x *pods) join(i uint32, id intent.GroupID) {
	if id == noGroup {
		return
	}
	g := &x.groups.list[id]
	x.list.at(i).group = id
	x.list.at(i).pos = uint32(len(g.pods))
	g.pods = append(g.pods, i)
}

// addrs returns the addresses of a pod; a single one is stored in buf.
func (x *pods) addrs(i uint32, buf *[1]netip.Addr) []netip.Addr {
	p := x.list.at(i)
	switch {
	case p.extra != 0:
		return x.extras.lists[p.extra-1]
	case *x.v4.at(i) != 0:
		buf[0] = addr4(*x.v4.at(i))
		return buf[:]
	}
	return nil
}

// setAddrs replaces the addresses of a pod by a copy of addrs. Lists returned earlier do not
// change.
func (x *pods) setAddrs(i uint32, addrs []netip.Addr) {
	p := x.list.at(i)
	if p.extra != 0 {
		x.extras.lists[p.extra-1] = nil
		x.extras.free = append(x.extras.free, p.extra-1)
	}
	*x.v4.at(i), p.extra = 0, 0
	switch {
	case len(addrs) == 0:
	case len(addrs) == 1 && addrs[0].Is4():
		b := addrs[0].As4()
		*x.v4.at(i) = binary.BigEndian.Uint32(b[:])
	default:
		e := alloc(&x.extras.lists, &x.extras.free)
		x.extras.lists[e] = slices.Clone(addrs)
		p.extra = e + 1
	}
}

func addr4(v uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}

// hasAddress reports whether a pod has an address.
func (x *pods) hasAddress(i uint32, a netip.Addr) bool {
	var buf [1]netip.Addr
	_, found := slices.BinarySearchFunc(x.addrs(i, &buf), a, netip.Addr.Compare)
	return found
}

// isStated reports whether a pod has addresses in the state.
func (x *pods) isStated(i uint32) bool {
	return *x.v4.at(i) != 0 || x.list.at(i).extra != 0 || x.yielded[i] != nil
}

// stated reports whether a pod has an address in the state.
func (x *pods) stated(i uint32, a netip.Addr) bool {
	return x.hasAddress(i, a) || slices.Contains(x.yielded[i], a)
}

// holders returns the pods that have an address.
func (x *pods) holders(a netip.Addr) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		x.byAddr.find(hashAddr(a), func(i uint32) bool { return x.hasAddress(i, a) && !yield(i) })
	}
}

// indexAddrs indexes addresses that the pod already has, and reports whether another pod has one of
// them as well.
func (x *pods) indexAddrs(i uint32, addrs []netip.Addr) (shared bool) {
	for _, a := range addrs {
		hash := hashAddr(a)
		_, taken := x.byAddr.find(hash, func(o uint32) bool { return x.hasAddress(o, a) })
		shared = shared || taken
		x.byAddr.insert(hash, i)
	}
	return shared
}

func (x *pods) unindexAddrs(i uint32, addrs []netip.Addr) {
	for _, a := range addrs {
		x.byAddr.remove(hashAddr(a), i)
	}
}

// keeps returns the addresses of a pod whose addresses in the state are addrs: registered ones stay
// until the state has some.
func (x *pods) keeps(i uint32, state podState, addrs []netip.Addr) []netip.Addr {
	if _, given := x.given[i]; !given {
		return addrs
	}
	if state == podLive && len(addrs) == 0 {
		return x.addrs(i, &x.scratch.oldV4)
	}
	delete(x.given, i)
	return addrs
}
