package keeper

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
)

// Uncovered is an interface in the network namespace of a pod whose traffic passes no end of a pair
// at the node, so that no policy applies to it.
type Uncovered struct {
	Pod       api.PodID
	Interface string // its name in the pod
	Kind      string // for example macvlan; device for one without a kind, such as a virtual function
}

func (u Uncovered) String() string {
	return fmt.Sprintf("interface %s (%s) of pod %s", u.Interface, u.Kind, u.Pod)
}

// Uncovered returns the interfaces of pods that cannot be enforced at, sorted.
func (k *Keeper) Uncovered() []Uncovered {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.uncovered
}

// inspectPods looks for interfaces of pods that cannot be enforced at.
func (k *Keeper) inspectPods() {
	k.mu.Lock()
	spaces := maps.Clone(k.sandboxes)
	for _, e := range k.reg.Endpoints() {
		if id := k.devices[e.Link.Index].netns; e.Pod != (api.PodID{}) && id >= 0 {
			spaces[id] = e.Pod
		}
	}
	k.mu.Unlock()
	links := map[api.PodID][]netlink.Link{}
	for id, pod := range spaces {
		links[pod] = append(links[pod], linksIn(id)...)
	}
	var now []Uncovered
	own := ownID() // the kernel may have given it with the links
	for pod, all := range links {
		for _, l := range all {
			if passesBy(l, own) {
				now = append(now, Uncovered{pod, l.Attrs().Name, l.Type()})
			}
		}
	}
	slices.SortFunc(now, func(a, b Uncovered) int {
		return cmp.Or(a.Pod.Compare(b.Pod), cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Kind, b.Kind))
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range now {
		if !slices.Contains(k.uncovered, u) {
			k.log.Warn("no policy applies to an interface of a pod: want an end of a veth or netkit pair", "pod", u.Pod, "interface", u.Interface, "kind", u.Kind)
		}
	}
	k.uncovered = now
}

// passesBy reports whether an interface of a pod leads out of it other than by a pair: it is a
// device of its own, or is based on a device or a socket in the node's network namespace, which has
// an id. What a pod makes by itself is based on its own interfaces, or on namespaces that it made,
// or leads nowhere.
func passesBy(l netlink.Link, node int) bool {
	a := l.Attrs()
	switch l.Type() {
	case "veth", "netkit":
		return false
	case "device":
		return a.Flags&net.FlagLoopback == 0
	}
	return a.NetNsID >= 0 && a.NetNsID == node
}

// skipStatistics is RTEXT_FILTER_SKIP_STATS of the kernel.
const skipStatistics = 8

// linksIn returns the interfaces of a network namespace by its id. It needs no right in that
// namespace. A namespace that is gone has none.
func linksIn(id int) (out []netlink.Link) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(id))))
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
	all, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil
	}
	for _, m := range all {
		if l, err := netlink.LinkDeserialize(nil, m); err == nil {
			out = append(out, l)
		}
	}
	return out
}

// ownID returns the id that the node's network namespace has in itself, which the kernel gives it
// when it lists a device elsewhere that is based on one of the node; negative: there is none.
func ownID() int {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return -1
	}
	defer func() { _ = f.Close() }() // it was read
	id, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err != nil {
		return -1
	}
	return id
}

// idOf returns the node's id of a network namespace, which it makes if there is none. The node's
// own namespace has none.
func idOf(f *os.File) (id int, ok bool) {
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return 0, false
	}
	if at, err := f.Stat(); err != nil || os.SameFile(own, at) {
		return 0, false
	}
	if id, err = netlink.GetNetNsIdByFd(int(f.Fd())); err == nil && id < 0 {
		if err = netlink.SetNetNsIdByFd(int(f.Fd()), -1); err == nil {
			id, err = netlink.GetNetNsIdByFd(int(f.Fd()))
		}
	}
	return id, err == nil && id >= 0
}
