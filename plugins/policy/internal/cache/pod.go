package cache

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// noGroup is the group of pods that policies do not see.
const noGroup = ^intent.GroupID(0)

// podState says why a pod is in a group or in none.
type podState uint8

const (
	podLive        podState = iota // in a group
	podHostNetwork                 // has its node's addresses
	podFinished                    // Succeeded or Failed
)

// pod is kept small: there may be 100 000. A pod with exactly one IPv4 address,
// the usual case, has it in v4; the addresses of others are in extras.
type pod struct {
	name  string // empty: the place is free
	ns    uint32
	group intent.GroupID
	pos   uint32 // in the group's pods
	host  uint32
	v4    uint32 // 0: none, or see extra
	extra uint32 // place in extras plus one; 0: none
	epoch uint32
	state podState
}

// extraAddrs holds address lists that do not fit into a pod.
type extraAddrs struct {
	lists [][]netip.Addr
	free  []uint32
}

func hashPod(ns, name string) uint32 { return fold(hashString(hashString(0, ns), name)) }

func (c *Cache) findPod(ns, name string) (uint32, bool) {
	return c.podIndex.find(hashPod(ns, name), func(i uint32) bool {
		return c.pods[i].name == name && c.namespaces[c.pods[i].ns].name == ns
	})
}

func (c *Cache) applyPod(id model.ID, m *model.Pod, w Watcher) []api.Problem {
	i, known := c.findPod(id.Namespace, id.Name)
	if m == nil {
		if known {
			c.dropPod(i, w)
		}
		return nil
	}
	if !known {
		i = c.newPod(id)
	}
	c.pods[i].epoch = c.epoch
	state := stateOf(m)
	var addrs []netip.Addr
	var problems []api.Problem
	host := c.hosts.acquire(m.GetNodeName(), m.GetNodeIps())
	if state == podLive {
		addrs, problems = c.readAddrs(id, m, c.hosts.list[host].ips)
	}
	addrs = c.keepsRegistered(i, state, addrs)
	group := noGroup
	if state == podLive {
		ports, bad := c.scratch.readPorts(m.GetNamedPorts())
		if bad {
			problems = append(problems, api.Problem{Object: id.String(), Field: "spec.containers", Reason: "a named port has no name, an unknown protocol or a number outside 1 to 65535, and is left out"})
		}
		group = c.groupOf(c.pods[i].ns, c.scratch.readLabels(m.GetLabels()), ports, w)
	}
	c.changePod(i, pod{group: group, host: host, state: state}, addrs, known, w)
	return problems
}

func (c *Cache) newPod(id model.ID) uint32 {
	n := c.ns(id.Namespace)
	i := alloc(&c.pods, &c.freePods)
	c.pods[i] = pod{name: id.Name, ns: n, group: noGroup}
	c.podIndex.insert(hashPod(id.Namespace, id.Name), i)
	c.namespaces[n].pods++
	return i
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

// readAddrs returns the pod's addresses, valid until the next call. What only nodes have, or is
// another address on each host, is not a pod's.
func (c *Cache) readAddrs(id model.ID, m *model.Pod, ofNode []netip.Addr) ([]netip.Addr, []api.Problem) {
	addrs, bad := parseAddrs(c.scratch.addrs[:0], m.GetIps())
	c.scratch.addrs = addrs
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

// changePod brings a pod into a new state and tells the watcher. It takes over
// the references of want (group by membership, host by count).
func (c *Cache) changePod(i uint32, want pod, addrs []netip.Addr, known bool, w Watcher) {
	p := &c.pods[i]
	s := &c.scratch
	was := *p
	var old, now *intent.Pod
	oldAddrs := c.podAddrs(i, &s.oldV4)
	sameAddrs := slices.Equal(oldAddrs, addrs)
	if known && was.group == want.group && was.host == want.host && was.state == want.state && sameAddrs {
		c.hosts.release(want.host)
		return
	}
	if was.group != noGroup {
		old = &s.old
		*old = c.view(i, oldAddrs)
	}
	if !sameAddrs {
		c.unindexAddrs(i, oldAddrs)
		c.setAddrs(i, addrs)
	}
	if was.group != want.group {
		c.leaveGroup(i)
		c.joinGroup(i, want.group)
	}
	p.host, p.state = want.host, want.state
	shared := !sameAddrs && c.indexAddrs(i, addrs)
	if p.group != noGroup {
		now = &s.new
		*now = c.view(i, c.podAddrs(i, &s.newV4))
		now.Shared = shared
	}
	if old != nil || now != nil {
		w.PodChanged(old, now)
	}
	if known {
		c.hosts.release(was.host)
	}
	c.tidyGroup(was.group, w)
}

func (c *Cache) dropPod(i uint32, w Watcher) {
	p := &c.pods[i]
	n, g, h := p.ns, p.group, p.host
	if g != noGroup {
		s := &c.scratch
		addrs := c.podAddrs(i, &s.oldV4)
		s.old = c.view(i, addrs)
		c.unindexAddrs(i, addrs)
		c.leaveGroup(i)
		w.PodChanged(&s.old, nil)
	}
	c.setAddrs(i, nil)
	delete(c.registered.given, i)
	c.podIndex.remove(hashPod(c.namespaces[n].name, p.name), i)
	*p = pod{}
	c.freePods = append(c.freePods, i)
	c.hosts.release(h)
	c.namespaces[n].pods--
	c.tidyGroup(g, w)
	c.tidyNS(n)
}

func (c *Cache) tidyGroup(g intent.GroupID, w Watcher) {
	if g != noGroup && len(c.groups[g].pods) == 0 {
		c.dropGroup(g, w)
	}
}

// view returns what the watcher sees of a pod.
func (c *Cache) view(i uint32, addrs []netip.Addr) intent.Pod {
	p := &c.pods[i]
	h := &c.hosts.list[p.host]
	return intent.Pod{
		ID:    api.PodID{Namespace: c.namespaces[p.ns].name, Name: p.name},
		Group: p.group, Node: h.name, IPs: addrs, NodeIPs: h.ips,
	}
}

func (c *Cache) leaveGroup(i uint32) {
	p := &c.pods[i]
	if p.group == noGroup {
		return
	}
	g := &c.groups[p.group]
	last := g.pods[len(g.pods)-1]
	g.pods[p.pos] = last
	c.pods[last].pos = p.pos
	g.pods = g.pods[:len(g.pods)-1]
	p.group = noGroup
}

func (c *Cache) joinGroup(i uint32, id intent.GroupID) {
	if id == noGroup {
		return
	}
	g := &c.groups[id]
	c.pods[i].group = id
	c.pods[i].pos = uint32(len(g.pods))
	g.pods = append(g.pods, i)
}

// podAddrs returns the addresses of a pod; a single one is put into buf.
func (c *Cache) podAddrs(i uint32, buf *[1]netip.Addr) []netip.Addr {
	p := &c.pods[i]
	switch {
	case p.extra != 0:
		return c.extras.lists[p.extra-1]
	case p.v4 != 0:
		buf[0] = addr4(p.v4)
		return buf[:]
	}
	return nil
}

// setAddrs replaces the addresses of a pod; it copies them. A list that was
// handed out stays as it is.
func (c *Cache) setAddrs(i uint32, addrs []netip.Addr) {
	p := &c.pods[i]
	if p.extra != 0 {
		c.extras.lists[p.extra-1] = nil
		c.extras.free = append(c.extras.free, p.extra-1)
	}
	p.v4, p.extra = 0, 0
	switch {
	case len(addrs) == 0:
	case len(addrs) == 1 && addrs[0].Is4():
		b := addrs[0].As4()
		p.v4 = binary.BigEndian.Uint32(b[:])
	default:
		e := alloc(&c.extras.lists, &c.extras.free)
		c.extras.lists[e] = slices.Clone(addrs)
		p.extra = e + 1
	}
}

func addr4(v uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}

// has says whether a pod has an address.
func (c *Cache) has(i uint32, a netip.Addr) bool {
	var buf [1]netip.Addr
	_, found := slices.BinarySearchFunc(c.podAddrs(i, &buf), a, netip.Addr.Compare)
	return found
}

// indexAddrs enters addresses that the pod already has, and says whether another
// pod has one of them as well.
func (c *Cache) indexAddrs(i uint32, addrs []netip.Addr) (shared bool) {
	for _, a := range addrs {
		hash := hashAddr(a)
		_, taken := c.addrIndex.find(hash, func(o uint32) bool { return c.has(o, a) })
		shared = shared || taken
		c.addrIndex.insert(hash, i)
	}
	return shared
}

func (c *Cache) unindexAddrs(i uint32, addrs []netip.Addr) {
	for _, a := range addrs {
		c.addrIndex.remove(hashAddr(a), i)
	}
}
