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

// ownership maps the interfaces of the vswitch to pods, uplinks and tables.
type ownership struct {
	options *Options
	m       *mirror.Mirror
	layout  cache.Layout
	before  map[uint32][]api.PodID // pods by interface, as of the last Apply
	ending  *renderer.Unplugged

	tables   map[uint32]*cache.Table // for output, by interface
	senders  map[uint32]*cache.Table // for input, by interface; only with Split
	owned    map[uint32][]api.PodID  // pods by interface
	pods     map[uint32]api.PodID    // of interfaces that are not blocked
	uplinks  map[uint32]bool
	blocked  map[uint32]bool    // interfaces that are blocked because their pod is unknown
	otherPod map[uint32]string  // interfaces made for another incarnation of their pod, with the reason
	pending  []renderer.Pending // pods and uplinks with missing interfaces
}

// ownershipOf finds the interfaces of pods, and the uplinks.
func ownershipOf(options *Options, m *mirror.Mirror, layout cache.Layout, before map[uint32][]api.PodID, ending *renderer.Unplugged) *ownership {
	o := &ownership{
		options: options, m: m, layout: layout, before: before, ending: ending,
		tables: make(map[uint32]*cache.Table), senders: make(map[uint32]*cache.Table),
		uplinks: make(map[uint32]bool), blocked: make(map[uint32]bool), pods: make(map[uint32]api.PodID), otherPod: make(map[uint32]string),
	}
	o.resolve()
	return o
}

// judges reports whether rules apply to packets of an interface, in either direction.
func (o *ownership) judges(n *mirror.Interface) bool {
	t := o.layout.Senders[o.pods[n.Index]]
	return o.tables[n.Index] != nil || o.uplinks[n.Index] && o.layout.Global != nil || t != nil && !expand.PermitsAll(t)
}

// judgesInput reports whether an interface must have input ACLs of ours, because it belongs to a
// pod or is an uplink. Without rules, packets that foreign ACLs do not decide stay denied.
func (o *ownership) judgesInput(n *mirror.Interface) bool {
	_, isPods := o.pods[n.Index]
	return (isPods || o.uplinks[n.Index]) && (o.judges(n) || !o.m.HasOthers(n.Bound.In))
}

// isOpen reports whether an interface must permit all output and create sessions for it.
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
	o.blockSubInterfaces()
	slices.SortFunc(o.pending, renderer.Pending.Compare)
	if o.options.Orientation == Outputs && len(o.pods) > 0 || o.layout.Global != nil {
		o.resolveUplinks(owners)
	}
}

// blockSubInterfaces blocks what a pod could send and receive past the rules of its interface: in
// frames with the tag of a VLAN. A sub-interface with a tag of its own is another one's.
func (o *ownership) blockSubInterfaces() {
	for _, n := range o.m.Interfaces {
		if n.Super == n.Index || n.Tag != "" || len(o.owned[n.Index]) > 0 || o.isCalledUplink(n) {
			continue
		}
		if len(o.owned[n.Super]) > 0 || o.blocked[n.Super] {
			o.blocked[n.Index] = true
		}
	}
}

// owners returns the sorted known pods that claim an interface: one, unless there is a conflict.
// Pods with a table and a missing interface are pending.
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

// ofThisPod returns the interfaces with the tag of a pod that were not made for another incarnation
// of it, and records why the others are blocked.
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

// wait records what a pod, or an uplink, waits for.
func (o *ownership) wait(pod api.PodID, reason string) {
	o.pending = append(o.pending, renderer.Pending{Pod: pod, Reason: reason})
}

// named returns the interfaces of a pod that Bindings names.
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

// wasPods reports whether an interface still has the ACLs that it got as a pod's interface. It has
// lost its tag or key, perhaps by mistake. It stays blocked until it gets a tag again, is released
// by ReleasedTag, or is deleted, which removes its ACLs. VPP stores the ACLs, so the rule survives
// a restart of the agent.
func (o *ownership) wasPods(n *mirror.Interface) bool {
	if n.Tag == ReleasedTag || o.isCalledUplink(n) {
		return false
	}
	own := slices.Concat(o.m.Own(n.Bound.In), o.m.Own(n.Bound.Out))
	return slices.ContainsFunc(own, func(index uint32) bool {
		name, _, _ := mirror.ParseTag(o.m.ACLs[index].Tag)
		return len(o.before[n.Index]) > 0 || name == closedACL || name == guardACL || name == tableACL || name == frontACL || isOfEarlier(name)
	})
}

// isCalledUplink reports whether the name or tag of an interface makes it an uplink, unless it
// belongs to a pod.
func (o *ownership) isCalledUplink(n *mirror.Interface) bool {
	configured := o.options.Uplinks
	return n.Tag == UplinkTag || slices.Contains(configured, n.Name) || slices.Contains(configured, n.Tag)
}

// resolveUplinks finds the uplinks. The interface of a pod is never an uplink, whatever its name.
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

// blockedState returns the state of a blocked interface and the reason.
func (o *ownership) blockedState(n *mirror.Interface) (state, reason string) {
	switch why := o.otherPod[n.Index]; {
	case why != "":
		return vpp.BoundPending, why
	case n.Super != n.Index && n.Tag == "":
		return vpp.BoundPending, "it is a sub-interface of a pod's, and names no pod"
	case len(o.owned[n.Index]) > 1:
		return vpp.BoundConflicting, fmt.Sprintf("pods %s and %s claim it", o.owned[n.Index][0], o.owned[n.Index][1])
	case o.isPods(n):
		return vpp.BoundPending, cmp.Or(o.identityRefused(n), "its pod is not known yet")
	}
	return vpp.BoundOrphaned, "its tag or its key is gone"
}

// identityRefused returns the reason why an interface was made for another incarnation of its pod,
// when policy knows no address of that pod.
func (o *ownership) identityRefused(n *mirror.Interface) string {
	name, tagged := strings.CutPrefix(n.Tag, vpp.PodTagPrefix)
	pod, err := api.ParsePodID(name)
	if !tagged || err != nil || n.Made == nil || o.options.Pods.Refuses == nil {
		return ""
	}
	return o.options.Pods.Refuses(pod, *n.Made)
}

// outputTable returns the table on the output of an interface; nil for none.
func (o *ownership) outputTable(n *mirror.Interface) *cache.Table {
	if t := o.tables[n.Index]; t != nil || !o.uplinks[n.Index] {
		return t
	}
	return o.layout.Global
}
