package acl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// ownership says whose the interfaces of the vswitch are, and which tables they are to have.
type ownership struct {
	options *Options
	m       *mirror.Mirror
	layout  cache.Layout
	before  map[uint32][]api.PodID // pods by interface, of the last commit
	ending  *renderer.Unplugged

	tables   map[uint32]*cache.Table // for what leaves, by interface
	senders  map[uint32]*cache.Table // for what enters, by interface; with Split
	owned    map[uint32][]api.PodID  // pods by interface
	pods     map[uint32]api.PodID    // of interfaces that are not held
	uplinks  map[uint32]bool
	blocked  map[uint32]bool    // interfaces that are closed, because it is not known whose they are
	otherPod map[uint32]string  // of those that were made for another life of their pod: why
	pending  []renderer.Pending // pods, and uplinks, without all of their interfaces
}

// ownershipOf finds the interfaces of pods and the uplinks.
func ownershipOf(options *Options, m *mirror.Mirror, layout cache.Layout, before map[uint32][]api.PodID, ending *renderer.Unplugged) *ownership {
	o := &ownership{
		options: options, m: m, layout: layout, before: before, ending: ending,
		tables: make(map[uint32]*cache.Table), senders: make(map[uint32]*cache.Table),
		uplinks: make(map[uint32]bool), blocked: make(map[uint32]bool), pods: make(map[uint32]api.PodID), otherPod: make(map[uint32]string),
	}
	o.resolve()
	return o
}

// judges reports whether rules are for the packets of an interface, in either direction.
func (o *ownership) judges(n *mirror.Interface) bool {
	t := o.layout.Senders[o.pods[n.Index]]
	return o.tables[n.Index] != nil || o.uplinks[n.Index] && o.layout.Global != nil || t != nil && !expand.PermitsAll(t)
}

// judgesInput reports whether an interface is to have ACLs of ours for what enters: it is a pod's
// or an uplink. Without rules, what ACLs of others leave undecided stays denied.
func (o *ownership) judgesInput(n *mirror.Interface) bool {
	_, isPods := o.pods[n.Index]
	return (isPods || o.uplinks[n.Index]) && (o.judges(n) || !o.m.HasOthers(n.Bound.In))
}

// isOpen reports whether an interface is to permit what leaves, and to make sessions of it.
func (o *ownership) isOpen(n *mirror.Interface) bool {
	_, isPods := o.pods[n.Index]
	if o.tables[n.Index] != nil || o.uplinks[n.Index] && o.layout.Global != nil || !isPods && !o.uplinks[n.Index] {
		return false
	}
	return o.judges(n) || !o.m.HasOthers(n.Bound.Out)
}

func (o *ownership) resolve() {
	owners := o.owners()
	o.owned = owners
	for _, n := range o.m.Interfaces {
		switch pods := owners[n.Index]; {
		case len(pods) == 1:
			o.pods[n.Index] = pods[0]
			if t := o.layout.Pods[pods[0]]; t != nil {
				o.tables[n.Index] = t
			}
			if t := o.layout.Senders[pods[0]]; t != nil && o.options.Orientation == Split {
				o.senders[n.Index] = t
			}
		case len(pods) > 1:
			o.blocked[n.Index] = true
			for _, pod := range pods {
				o.wait(pod, fmt.Sprintf("pods %s and %s claim interface %s", pods[0], pods[1], n.Name))
			}
		case o.otherPod[n.Index] != "", o.options.Pods.BlockUnknown && (o.isPods(n) || o.wasPods(n)):
			o.blocked[n.Index] = true
		}
	}
	slices.SortFunc(o.pending, renderer.Pending.Compare)
	if o.options.Orientation == Outputs && len(o.pods) > 0 || o.layout.Global != nil {
		o.resolveUplinks(owners)
	}
}

// owners returns the known pods that claim an interface, sorted; one, unless somebody
// is wrong. Pods with a table that have no interface, or not all of theirs, are pending.
func (o *ownership) owners() map[uint32][]api.PodID {
	byTag, byName := make(map[string][]*mirror.Interface, len(o.m.Interfaces)), make(map[string]*mirror.Interface, len(o.m.Interfaces))
	for _, n := range o.m.Interfaces {
		byTag[n.Tag] = append(byTag[n.Tag], n)
		byName[n.Name] = n
	}
	owners := make(map[uint32][]api.PodID)
	for pod, t := range o.layout.Pods {
		found := o.ofThisPod(pod, byTag[InterfaceTag(pod)])
		missing := ""
		for _, name := range o.named(pod) {
			switch n := byName[name]; {
			case n == nil:
				missing = name
			case !slices.Contains(found, n):
				found = append(found, n)
			}
		}
		for _, n := range found {
			owners[n.Index] = append(owners[n.Index], pod)
		}
		switch {
		case t == nil && o.layout.Senders[pod] == nil:
		case len(found) == 0 && o.ending.Ends(pod, time.Now()):
			o.pending = append(o.pending, renderer.Pending{Pod: pod, Reason: "its interface is gone", Ends: true})
		case missing != "":
			o.wait(pod, fmt.Sprintf("no interface %s in the vswitch", missing))
		case len(found) == 0 && (o.options.Pods.Elsewhere == nil || !o.options.Pods.Elsewhere(pod)):
			o.wait(pod, "no interface in the vswitch")
		}
	}
	for _, pods := range owners {
		slices.SortFunc(pods, api.PodID.Compare)
	}
	return owners
}

// ofThisPod returns those of the interfaces with the tag of a pod that were not made for another
// life of it, and notes why the others are closed.
func (o *ownership) ofThisPod(pod api.PodID, tagged []*mirror.Interface) (out []*mirror.Interface) {
	for _, n := range tagged {
		if n.Made != nil && o.options.Pods.Refuses != nil {
			if why := o.options.Pods.Refuses(pod, *n.Made); why != "" {
				o.otherPod[n.Index] = why
				continue
			}
		}
		out = append(out, n)
	}
	return out
}

// wait notes what a pod, or an uplink, waits for.
func (o *ownership) wait(pod api.PodID, reason string) {
	o.pending = append(o.pending, renderer.Pending{Pod: pod, Reason: reason})
}

// named returns the interfaces of a pod that do not need a tag.
func (o *ownership) named(pod api.PodID) []string {
	if o.options.Pods.Bindings == nil {
		return nil
	}
	return o.options.Pods.Bindings.InterfacesOf(pod)
}

// isPods reports whether an interface is meant for some pod.
func (o *ownership) isPods(n *mirror.Interface) bool {
	return strings.HasPrefix(n.Tag, vpp.PodTagPrefix) || o.options.Pods.Bindings != nil && o.options.Pods.Bindings.IsPodInterface(n.Name)
}

// wasPods reports whether an interface has what ours gave it while it was a pod's. Its tag or its
// key is gone, which may be a mistake, and it stays closed until it gets one again, is released by
// ReleasedTag, or is gone: VPP takes the ACLs of an interface away with it. What it has is
// remembered by VPP, so that an agent that starts knows it, too.
func (o *ownership) wasPods(n *mirror.Interface) bool {
	if n.Tag == ReleasedTag || o.isCalledUplink(n) {
		return false
	}
	own := slices.Concat(o.m.Own(n.Bound.In), o.m.Own(n.Bound.Out))
	return slices.ContainsFunc(own, func(index uint32) bool {
		slot, _, _, _ := mirror.ParseTag(o.m.ACLs[index].Tag)
		return len(o.before[n.Index]) > 0 || slot == closedSlot || isNumbered(slot, "l") || isNumbered(slot, "i")
	})
}

// isCalledUplink reports whether an interface is an uplink, unless it is a pod's.
func (o *ownership) isCalledUplink(n *mirror.Interface) bool {
	configured := o.options.Uplinks
	return n.Tag == UplinkTag || slices.Contains(configured, n.Name) || slices.Contains(configured, n.Tag)
}

// resolveUplinks finds the uplinks. An interface of a pod is none, whatever it is called.
func (o *ownership) resolveUplinks(owners map[uint32][]api.PodID) {
	configured := o.options.Uplinks
	missing := slices.Clone(configured)
	for _, n := range o.m.Interfaces {
		if !o.isCalledUplink(n) || len(owners[n.Index]) > 0 || o.isPods(n) {
			continue
		}
		o.uplinks[n.Index] = true
		missing = slices.DeleteFunc(missing, func(s string) bool { return s == n.Name || s == n.Tag })
	}
	if o.layout.Global == nil {
		return // nothing is enforced there
	}
	for _, name := range missing {
		o.wait(api.PodID{}, fmt.Sprintf("no uplink %s in the vswitch", name))
	}
	if len(configured) == 0 && len(o.uplinks) == 0 {
		o.wait(api.PodID{}, fmt.Sprintf("no uplink with the tag %s in the vswitch", UplinkTag))
	}
}

// blockedState says why an interface is blocked.
func (o *ownership) blockedState(n *mirror.Interface) (state, reason string) {
	switch why := o.otherPod[n.Index]; {
	case why != "":
		return BoundPending, why
	case len(o.owned[n.Index]) > 1:
		return BoundConflicting, fmt.Sprintf("pods %s and %s claim it", o.owned[n.Index][0], o.owned[n.Index][1])
	case o.isPods(n):
		return BoundPending, cmp.Or(o.identityRefused(n), "its pod is not known yet")
	}
	return BoundOrphaned, "its tag or its key is gone"
}

// identityRefused returns why an interface is not that of its pod, of which policy knows no
// address.
func (o *ownership) identityRefused(n *mirror.Interface) string {
	name, tagged := strings.CutPrefix(n.Tag, vpp.PodTagPrefix)
	pod, err := api.ParsePodID(name)
	if !tagged || err != nil || n.Made == nil || o.options.Pods.Refuses == nil {
		return ""
	}
	return o.options.Pods.Refuses(pod, *n.Made)
}

// isToHave reports whether an interface is to have a table, in either direction.
func (o *ownership) isToHave(n *mirror.Interface, t *cache.Table) bool {
	return o.tables[n.Index] == t || o.senders[n.Index] == t
}

// listBindings returns the lists of an interface.
func (o *ownership) listBindings(n *mirror.Interface) [2]listBinding {
	return [2]listBinding{{n.Bound.In, o.senders[n.Index]}, {n.Bound.Out, o.tables[n.Index]}}
}
