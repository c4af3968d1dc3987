package acl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Plumbing knows interfaces of pods beside those that are tagged with InterfaceTag.
// Every Commit that changes anything asks it anew, so that what was true of a pod is
// never taken for true of another one with its name. Its methods are called with the
// Renderer locked: they must not block and must not call it. Whoever implements it
// calls InterfacesChanged when its answers change.
type Plumbing interface {
	// InterfacesOf returns the names that the interfaces of a pod have in the
	// vswitch, in any order; none while the pod has none. All of them get its table.
	InterfacesOf(pod api.PodID) []string
	// IsPodInterface says whether an interface is meant for some pod, also for one
	// that is not known yet; see Options.HoldUnknown.
	IsPodInterface(name string) bool
}

// PodInterfaces is the Plumbing of an embedder that can look up pods only.
type PodInterfaces func(pod api.PodID) []string

// InterfacesOf implements Plumbing.
func (f PodInterfaces) InterfacesOf(pod api.PodID) []string { return f(pod) }

// IsPodInterface implements Plumbing. Nothing is known of interfaces without a pod.
func (f PodInterfaces) IsPodInterface(string) bool { return false }

// InterfacesChanged has the next Commit look for the interfaces of all pods again, and
// calls OnChange, so that there is one.
func (r *Renderer) InterfacesChanged() {
	r.replugged.Store(true)
	r.link.Prompt()
}

// ownership says whose the interfaces of the vswitch are, and which tables they are to have.
type ownership struct {
	options *Options
	m       *mirror.Mirror
	layout  cache.Layout
	before  map[uint32][]api.PodID // pods by interface, of the last commit
	ending  *renderer.Unplugged

	tables    map[uint32]*cache.Table // for what leaves, by interface
	senders   map[uint32]*cache.Table // for what enters, by interface; with Split
	owned     map[uint32][]api.PodID  // pods by interface
	pods      map[uint32]api.PodID    // of interfaces that are not held
	uplinks   map[uint32]bool
	held      map[uint32]bool    // interfaces that are closed, because it is not known whose they are
	otherLife map[uint32]string  // of those that were made for another life of their pod: why
	pending   []renderer.Pending // pods, and uplinks, without all of their interfaces
}

// ownershipOf finds the interfaces of pods and the uplinks.
func ownershipOf(options *Options, m *mirror.Mirror, layout cache.Layout, before map[uint32][]api.PodID, ending *renderer.Unplugged) *ownership {
	o := &ownership{
		options: options, m: m, layout: layout, before: before, ending: ending,
		tables: make(map[uint32]*cache.Table), senders: make(map[uint32]*cache.Table),
		uplinks: make(map[uint32]bool), held: make(map[uint32]bool), pods: make(map[uint32]api.PodID), otherLife: make(map[uint32]string),
	}
	o.resolve()
	return o
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
			o.held[n.Index] = true
			for _, pod := range pods {
				o.wait(pod, fmt.Sprintf("pods %s and %s claim interface %s", pods[0], pods[1], n.Name))
			}
		case o.otherLife[n.Index] != "", o.options.HoldUnknown && (o.isPods(n) || o.wasPods(n)):
			o.held[n.Index] = true
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
		found := o.ofThisLife(pod, byTag[InterfaceTag(pod)])
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
		case len(found) == 0 && (o.options.Elsewhere == nil || !o.options.Elsewhere(pod)):
			o.wait(pod, "no interface in the vswitch")
		}
	}
	for _, pods := range owners {
		slices.SortFunc(pods, api.PodID.Compare)
	}
	return owners
}

// ofThisLife returns those of the interfaces with the tag of a pod that were not made for another life
// of it, and notes why the others are closed.
func (o *ownership) ofThisLife(pod api.PodID, tagged []*mirror.Interface) (out []*mirror.Interface) {
	for _, n := range tagged {
		if n.Made != nil && o.options.Refuses != nil {
			if why := o.options.Refuses(pod, *n.Made); why != "" {
				o.otherLife[n.Index] = why
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
	if o.options.Plumbing == nil {
		return nil
	}
	return o.options.Plumbing.InterfacesOf(pod)
}

// plugged remembers at which pods' interfaces rules are in force.
func (r *Renderer) plugged(w *wanted) {
	pods := make(map[api.PodID]bool, len(w.who.pods))
	for _, pod := range w.who.pods {
		pods[pod] = true
	}
	r.ending.Plugged(pods, func(pod api.PodID) bool { _, known := w.layout.Pods[pod]; return known })
}

// holding remembers which interfaces are held, and logs those that are held from now on.
func (r *Renderer) holding(w *wanted) {
	var names []string
	for _, n := range w.m.Interfaces {
		if w.who.held[n.Index] {
			names = append(names, n.Name)
			if !slices.Contains(r.held, n.Name) {
				r.log.Info("interface is closed until its pod is known", "interface", n.Name, "tag", n.Tag)
			}
		}
	}
	r.held = names
}

// isPods says whether an interface is meant for some pod.
func (o *ownership) isPods(n *mirror.Interface) bool {
	return strings.HasPrefix(n.Tag, vpp.PodTagPrefix) || o.options.Plumbing != nil && o.options.Plumbing.IsPodInterface(n.Name)
}

// wasPods reports whether an interface has what ours gave it while it was a pod's. Its tag or its key
// is gone, which may be a mistake, and it stays closed until it gets one again, is released by
// ReleasedTag, or is gone: VPP takes the ACLs of an interface away with it. What it has is remembered
// by VPP, so that an agent that starts knows it, too.
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

// UplinkTag is the tag of the interfaces that connect the node with other nodes.
const UplinkTag = "sluice/uplink"

// ReleasedTag is the tag of an interface that was a pod's and is to be open. Without a tag such an
// interface stays closed.
const ReleasedTag = "sluice/released"

// InterfaceTag returns the tag by which the interface of a pod is found. A name
// that is too long for a tag is cut and made unique by a hash.
func InterfaceTag(pod api.PodID) string { return vpp.PodTag(pod.String()) }
