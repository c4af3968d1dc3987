package plugin

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Pods determines which interfaces belong to pods, besides their tags. An Apply calls the
// functions: they must neither block nor call the Renderer. Who implements them calls
// InterfacesChanged when a result changes.
type Pods struct {
	// Bindings finds the interfaces of pods without tags. It may be nil.
	Bindings Bindings
	// Refuses returns the reason why an interface that sluice-cni made, and that has the pod's tag,
	// must not get the rules of the pod, "" if it may. Nil refuses no interface.
	Refuses func(pod api.PodID, m vpp.Made) string
}

// Bindings finds the interfaces of pods by name.
type Bindings interface {
	// InterfacesOf returns the names of the pod's interfaces. All of them get the pod's rules.
	InterfacesOf(pod api.PodID) []string
	// IsPodInterface reports whether an interface is meant for some pod, known or not.
	IsPodInterface(name string) bool
}

// isBridged is why an interface that switches frames has no rules.
const isBridged = "is bridged or cross-connected, and blocked: pods are judged at routed interfaces only"

// port is an interface of VPP that is a pod's, or is judged as one.
type port struct {
	name, tag string
	isUp      bool
	isBridged bool
	super     string    // the name of the interface that it is a sub-interface of; empty: of none
	made      *vpp.Made // nil: not by sluice-cni
}

// ports are the interfaces of pods in VPP, as the last Apply read them. Any goroutine may call the
// exported methods, which do not wait for an Apply.
type ports struct {
	pods Pods
	wake func()        // causes an Apply
	asks atomic.Uint64 // that interfaces shall be read
	view atomic.Pointer[portsView]

	seen   uint64 // of asks, when interfaces were read
	all    map[uint32]port
	byTag  map[string][]uint32
	byName map[string]uint32
	// Of the running Apply.
	owners  map[uint32][]api.PodID
	refused map[uint32]string
}

// portsView is what readers see. It is never modified.
type portsView struct {
	bound    map[string]vpp.Bound // by name
	made     []vpp.Made
	answered uint64 // of asks
}

func newPorts(pods Pods, wake func()) *ports {
	p := &ports{pods: pods, wake: wake}
	p.view.Store(&portsView{})
	return p
}

// Ask makes the next Apply read all interfaces, and causes one. It returns a ticket for Bound.
func (p *ports) Ask() (ticket uint64) {
	ticket = p.asks.Add(1)
	p.wake()
	return ticket
}

// InterfacesChanged makes the next Apply look up the interfaces of all pods again, and causes one.
func (p *ports) InterfacesChanged() { p.Ask() }

// Bound returns the state of an interface after an Apply that has read the interfaces since Ask. It
// returns false when there was no such Apply, or when the interface is not known as a pod's.
func (p *ports) Bound(name string, ticket uint64) (vpp.Bound, bool) {
	v := p.view.Load()
	b, ok := v.bound[name]
	return b, ok && v.answered >= ticket
}

// Interfaces returns the state of the pods' interfaces after the last Apply, by index.
func (p *ports) Interfaces() []vpp.Bound {
	return slices.SortedFunc(maps.Values(p.view.Load().bound), func(a, b vpp.Bound) int { return cmp.Compare(a.Index, b.Index) })
}

// Made returns the interfaces that sluice-cni made.
func (p *ports) Made() []vpp.Made { return p.view.Load().made }

// isPods reports whether an interface is meant for some pod.
func (p *ports) isPods(n port) bool {
	return strings.HasPrefix(n.tag, vpp.PodTagPrefix) || p.isNamed(n)
}

// isNamed reports whether an interface is a pod's by its name.
func (p *ports) isNamed(n port) bool {
	return p.pods.Bindings != nil && p.pods.Bindings.IsPodInterface(n.name)
}

// read takes the interfaces of VPP. Those that are judged belong to it whatever their tag is.
func (p *ports) read(seen uint64, found []*interfaces.SwInterfaceDetails, made map[uint32]*vpp.Made, judged map[uint32]sluice.SluiceState) {
	p.seen, p.all, p.byTag, p.byName = seen, map[uint32]port{}, map[string][]uint32{}, map[string]uint32{}
	names := make(map[uint32]string, len(found))
	for _, d := range found {
		names[uint32(d.SwIfIndex)] = d.InterfaceName
	}
	for _, d := range found {
		index := uint32(d.SwIfIndex)
		state, isJudged := judged[index]
		n := port{
			name: d.InterfaceName, tag: d.Tag, isUp: d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0,
			isBridged: state == sluice.SLUICE_API_BRIDGED, made: made[index],
		}
		if !isJudged && !p.isPods(n) {
			continue
		}
		if d.SupSwIfIndex != index {
			n.super = names[d.SupSwIfIndex]
		}
		p.all[index], p.byName[n.name] = n, index
		if n.tag != "" {
			p.byTag[n.tag] = append(p.byTag[n.tag], index)
		}
	}
}

// begin begins with the interfaces of an Apply.
func (p *ports) begin() { p.owners, p.refused = map[uint32][]api.PodID{}, map[uint32]string{} }

// interfacesOf returns the interfaces of a pod, sorted.
func (p *ports) interfacesOf(pod api.PodID) (out []uint32) {
	for _, index := range p.byTag[vpp.PodTag(pod.String())] {
		if why := p.refuses(pod, p.all[index]); why != "" {
			p.refused[index] = why
			continue
		}
		out = append(out, index)
	}
	if p.pods.Bindings != nil {
		for _, name := range p.pods.Bindings.InterfacesOf(pod) {
			if index, known := p.byName[name]; known && !slices.Contains(out, index) {
				out = append(out, index)
			}
		}
	}
	for _, index := range out {
		p.owners[index] = append(p.owners[index], pod)
		if p.all[index].isBridged {
			p.refused[index] = "it " + isBridged
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(out, func(index uint32) bool { return p.all[index].isBridged })
}

// refuses returns the reason why an interface is not that of a pod, "" if it is.
func (p *ports) refuses(pod api.PodID, n port) string {
	if n.made == nil || p.pods.Refuses == nil {
		return ""
	}
	return p.pods.Refuses(pod, *n.made)
}

// publish shows readers what an Apply made of the interfaces, of which enforce has those that
// enforce.
func (p *ports) publish(enforce map[uint32]api.PodID) {
	before, now := p.view.Load(), time.Now()
	v := &portsView{bound: make(map[string]vpp.Bound, len(p.all)), answered: p.seen}
	for _, index := range slices.Sorted(maps.Keys(p.all)) {
		n := p.all[index]
		b := vpp.Bound{Name: n.name, Index: index, Tag: n.tag, Since: now}
		if n.made != nil {
			b.UID = n.made.UID
			v.made = append(v.made, *n.made)
		}
		b.State, b.Reason = p.stateOf(index, n, enforce)
		if b.State == vpp.BoundEnforced {
			b.Pod = enforce[index]
		}
		if was := before.bound[n.name]; was.Index == index && was.State == b.State && was.Pod == b.Pod && was.UID == b.UID {
			b.Since = was.Since
		}
		v.bound[n.name] = b
	}
	p.view.Store(v)
	if !slices.EqualFunc(v.made, before.made, sameMade) {
		p.wake() // policy gets other addresses of pods
	}
}

// sameMade reports whether two interfaces were made for the same pod and addresses.
func sameMade(a, b vpp.Made) bool {
	return a.Tag == b.Tag && a.UID == b.UID && slices.Equal(a.IPs, b.IPs)
}

// stateOf returns the state of an interface, and why it is blocked.
func (p *ports) stateOf(index uint32, n port, enforce map[uint32]api.PodID) (state, reason string) {
	owners := p.owners[index]
	_, enforces := enforce[index]
	switch {
	case len(owners) > 1:
		return vpp.BoundConflicting, "pods " + owners[0].String() + " and " + owners[1].String() + " claim it"
	case enforces:
		return vpp.BoundEnforced, ""
	case len(owners) == 1:
		return vpp.BoundPending, cmp.Or(p.refused[index], "the rules of its pod are not in force")
	case p.isPods(n):
		return vpp.BoundPending, cmp.Or(p.refused[index], p.refusedUnknown(n), "its pod is not known yet")
	}
	if n.super != "" && n.tag == "" {
		return vpp.BoundPending, "it is a sub-interface of " + n.super + ", and names no pod"
	}
	return vpp.BoundOrphaned, "its tag or its key is gone"
}

// refusedUnknown returns the reason why an interface was made for another incarnation of its pod,
// when policy knows no address of that pod.
func (p *ports) refusedUnknown(n port) string {
	name, tagged := strings.CutPrefix(n.tag, vpp.PodTagPrefix)
	pod, err := api.ParsePodID(name)
	if !tagged || err != nil {
		return ""
	}
	return p.refuses(pod, n)
}
