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

// resolve finds the interfaces of pods and the uplinks.
func (w *wanted) resolve() {
	w.tables, w.senders = make(map[uint32]*cache.Table), make(map[uint32]*cache.Table)
	w.uplinks, w.held, w.pods = make(map[uint32]bool), make(map[uint32]bool), make(map[uint32]api.PodID)
	w.otherLife = make(map[uint32]string)
	owners := w.owners()
	w.owned = owners
	for _, n := range w.m.Interfaces {
		switch pods := owners[n.Index]; {
		case len(pods) == 1:
			w.pods[n.Index] = pods[0]
			if t := w.layout.Pods[pods[0]]; t != nil {
				w.tables[n.Index] = t
			}
			if t := w.layout.Senders[pods[0]]; t != nil && w.r.options.Orientation == Split {
				w.senders[n.Index] = t
			}
		case len(pods) > 1:
			w.held[n.Index] = true
			for _, pod := range pods {
				w.wait(pod, fmt.Sprintf("pods %s and %s claim interface %s", pods[0], pods[1], n.Name))
			}
		case w.otherLife[n.Index] != "", w.r.options.HoldUnknown && (w.isPods(n) || w.wasPods(n)):
			w.held[n.Index] = true
		}
	}
	slices.SortFunc(w.pending, renderer.Pending.Compare)
	if w.r.options.Orientation == Outputs && len(w.pods) > 0 || w.layout.Global != nil {
		w.resolveUplinks(owners)
	}
}

// owners returns the known pods that claim an interface, sorted; one, unless somebody
// is wrong. Pods with a table that have no interface, or not all of theirs, are pending.
func (w *wanted) owners() map[uint32][]api.PodID {
	byTag, byName := make(map[string][]*mirror.Interface, len(w.m.Interfaces)), make(map[string]*mirror.Interface, len(w.m.Interfaces))
	for _, n := range w.m.Interfaces {
		byTag[n.Tag] = append(byTag[n.Tag], n)
		byName[n.Name] = n
	}
	owners := make(map[uint32][]api.PodID)
	for pod, t := range w.layout.Pods {
		found := w.ofThisLife(pod, byTag[InterfaceTag(pod)])
		missing := ""
		for _, name := range w.named(pod) {
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
		case t == nil && w.layout.Senders[pod] == nil:
		case len(found) == 0 && w.r.ending.Ends(pod, time.Now()):
			w.pending = append(w.pending, renderer.Pending{Pod: pod, Reason: "its interface is gone", Ends: true})
		case missing != "":
			w.wait(pod, fmt.Sprintf("no interface %s in the vswitch", missing))
		case len(found) == 0 && (w.r.options.Elsewhere == nil || !w.r.options.Elsewhere(pod)):
			w.wait(pod, "no interface in the vswitch")
		}
	}
	for _, pods := range owners {
		slices.SortFunc(pods, api.PodID.Compare)
	}
	return owners
}

// ofThisLife returns those of the interfaces with the tag of a pod that were not made for another life
// of it, and notes why the others are closed.
func (w *wanted) ofThisLife(pod api.PodID, tagged []*mirror.Interface) (out []*mirror.Interface) {
	for _, n := range tagged {
		if n.Made != nil && w.r.options.Refuses != nil {
			if why := w.r.options.Refuses(pod, *n.Made); why != "" {
				w.otherLife[n.Index] = why
				continue
			}
		}
		out = append(out, n)
	}
	return out
}

// wait notes what a pod, or an uplink, waits for.
func (w *wanted) wait(pod api.PodID, reason string) {
	w.pending = append(w.pending, renderer.Pending{Pod: pod, Reason: reason})
}

// named returns the interfaces of a pod that do not need a tag.
func (w *wanted) named(pod api.PodID) []string {
	if w.r.options.Plumbing == nil {
		return nil
	}
	return w.r.options.Plumbing.InterfacesOf(pod)
}

// plugged remembers at which pods' interfaces rules are in force.
func (r *Renderer) plugged(w *wanted) {
	pods := make(map[api.PodID]bool, len(w.pods))
	for _, pod := range w.pods {
		pods[pod] = true
	}
	r.ending.Plugged(pods, func(pod api.PodID) bool { _, known := w.layout.Pods[pod]; return known })
}

// holding remembers which interfaces are held, and logs those that are held from now on.
func (r *Renderer) holding(w *wanted) {
	var names []string
	for _, n := range w.m.Interfaces {
		if w.held[n.Index] {
			names = append(names, n.Name)
			if !slices.Contains(r.held, n.Name) {
				r.log.Info("interface is closed until its pod is known", "interface", n.Name, "tag", n.Tag)
			}
		}
	}
	r.held = names
}

// isPods says whether an interface is meant for some pod.
func (w *wanted) isPods(n *mirror.Interface) bool {
	return strings.HasPrefix(n.Tag, vpp.PodTagPrefix) || w.r.options.Plumbing != nil && w.r.options.Plumbing.IsPodInterface(n.Name)
}

// wasPods reports whether an interface has what ours gave it while it was a pod's. Its tag or its key
// is gone, which may be a mistake, and it stays closed until it gets one again, is released by
// ReleasedTag, or is gone: VPP takes the ACLs of an interface away with it. What it has is remembered
// by VPP, so that an agent that starts knows it, too.
func (w *wanted) wasPods(n *mirror.Interface) bool {
	if n.Tag == ReleasedTag || w.isCalledUplink(n) {
		return false
	}
	own := slices.Concat(w.m.Own(n.Bound.In), w.m.Own(n.Bound.Out))
	return slices.ContainsFunc(own, func(index uint32) bool {
		slot, _, _, _ := mirror.ParseTag(w.m.ACLs[index].Tag)
		return len(w.r.owned[n.Index]) > 0 || slot == closedSlot || isNumbered(slot, "l") || isNumbered(slot, "i")
	})
}

// isCalledUplink reports whether an interface is an uplink, unless it is a pod's.
func (w *wanted) isCalledUplink(n *mirror.Interface) bool {
	configured := w.r.options.Uplinks
	return n.Tag == UplinkTag || slices.Contains(configured, n.Name) || slices.Contains(configured, n.Tag)
}

// resolveUplinks finds the uplinks. An interface of a pod is none, whatever it is called.
func (w *wanted) resolveUplinks(owners map[uint32][]api.PodID) {
	configured := w.r.options.Uplinks
	missing := slices.Clone(configured)
	for _, n := range w.m.Interfaces {
		if !w.isCalledUplink(n) || len(owners[n.Index]) > 0 || w.isPods(n) {
			continue
		}
		w.uplinks[n.Index] = true
		missing = slices.DeleteFunc(missing, func(s string) bool { return s == n.Name || s == n.Tag })
	}
	if w.layout.Global == nil {
		return // nothing is enforced there
	}
	for _, name := range missing {
		w.wait(api.PodID{}, fmt.Sprintf("no uplink %s in the vswitch", name))
	}
	if len(configured) == 0 && len(w.uplinks) == 0 {
		w.wait(api.PodID{}, fmt.Sprintf("no uplink with the tag %s in the vswitch", UplinkTag))
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
