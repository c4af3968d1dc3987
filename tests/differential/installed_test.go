package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/acl"
)

// installed is what one node holds, room by room, as text: everything that must be
// a function of the state, and nothing that may depend on the way to it.
type installed struct {
	Plugin    string // pods with their rules, policies, sets with their members, problems
	Recorder  string // what renderers were told
	Tables    string // of the ACL renderer, without slots and indexes
	Dataplane string // the rules of every interface, and routes
}

// inspect reads everything.
func (w watched) inspect(ctx context.Context) (installed, error) {
	s, err := w.Plugin.Snapshot(ctx)
	if err != nil {
		return installed{}, err
	}
	out := installed{Recorder: w.told.Dump(), Dataplane: dataplaneOf(w.Switch)}
	if out.Plugin, err = pluginOf(s); err != nil {
		return out, err
	}
	out.Tables, err = tablesOf(w.ACL)
	return out, err
}

func (i installed) diff(fresh installed) string { return cmp.Diff(fresh, i) }

// pluginOf prints a snapshot without its status, which counts transactions.
func pluginOf(s *policy.Snapshot) (string, error) {
	var b strings.Builder
	for _, print := range []func() error{
		func() error { return lines(&b, s.Namespaces) },
		func() error { return lines(&b, s.Pods) },
		func() error { return lines(&b, s.Policies) },
		func() error { return lines(&b, s.Sets) },
		func() error { return lines(&b, s.Problems) },
	} {
		if err := print(); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// lines writes one line of JSON per element.
func lines[T any](b *strings.Builder, list []T) error {
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		b.Write(append(text, '\n'))
	}
	return nil
}

// tablesOf prints the tables of the ACL renderer. Which ACLs hold them depends on
// the past.
func tablesOf(r *acl.Renderer) (string, error) {
	var b strings.Builder
	d := r.Dump()
	for i := range d.Tables {
		d.Tables[i].ACLs = nil
	}
	if d.Error != "" || len(d.Pending) > 0 {
		return "", fmt.Errorf("the renderer is not done: %s, pending %v", d.Error, d.Pending)
	}
	err := lines(&b, d.Tables)
	return b.String(), err
}

// dataplaneOf prints what a packet can meet: the rules of each interface in their
// order, however ACLs divide them, and the routes.
func dataplaneOf(sw *vswitch.Switch) string {
	var b strings.Builder
	names := map[uint32]string{}
	var interfaces []string
	for _, i := range sw.Interfaces() {
		names[i.Index] = i.Name
		text := fmt.Sprintf("interface %s tag %q up %t\n", i.Name, i.Tag, i.Up)
		text += "  in\n" + rulesOf(sw, i.Inputs) + "  out\n" + rulesOf(sw, i.Outputs)
		interfaces = append(interfaces, text)
	}
	slices.Sort(interfaces)
	b.WriteString(strings.Join(interfaces, ""))
	for _, r := range sw.Routes() {
		fmt.Fprintf(&b, "route %s to %s\n", r.Prefix, names[r.SwIfIndex])
	}
	return b.String()
}

func rulesOf(sw *vswitch.Switch, acls []uint32) string {
	var b strings.Builder
	for _, index := range acls {
		rules, ok := sw.Rules(index)
		if !ok {
			fmt.Fprintf(&b, "    acl %d is gone\n", index)
		}
		for _, r := range rules {
			fmt.Fprintf(&b, "    %s\n", r)
		}
	}
	return b.String()
}

// leftovers returns the ACLs of ours that no interface has.
func leftovers(acls []vswitch.ACL) []string {
	var out []string
	for _, a := range acls {
		if strings.HasPrefix(a.Tag, "sluice:") && len(a.Inputs)+len(a.Outputs) == 0 {
			out = append(out, fmt.Sprintf("acl %d %s with %d rules", a.Index, a.Tag, a.Rules))
		}
	}
	return out
}

// imprint tells whether a dataplane was touched. An ACL that is replaced by an
// equal one has other rules in memory, so it counts as touched, too; a binding
// that is set to what it is does not.
type imprint struct {
	acls       map[uint32]heldACL
	interfaces []vswitch.Interface
	routes     []vswitch.Route
}

// heldACL is compared by identity.
type heldACL struct {
	tag   string
	first *vswitch.Rule
}

func imprintOf(sw *vswitch.Switch) imprint {
	out := imprint{acls: map[uint32]heldACL{}, interfaces: sw.Interfaces(), routes: sw.Routes()}
	for _, a := range sw.ACLs() {
		held := heldACL{tag: a.Tag}
		if rules, ok := sw.Rules(a.Index); ok && len(rules) > 0 {
			held.first = &rules[0]
		}
		out.acls[a.Index] = held
	}
	return out
}

// touched says what is not as it was.
func (i imprint) touched(now imprint) string {
	var out []string
	for index, a := range i.acls {
		if b, ok := now.acls[index]; !ok || a != b {
			out = append(out, fmt.Sprintf("acl %d %s was replaced or removed", index, a.tag))
		}
	}
	for index, a := range now.acls {
		if _, ok := i.acls[index]; !ok {
			out = append(out, fmt.Sprintf("acl %d %s was added", index, a.tag))
		}
	}
	slices.Sort(out)
	if diff := cmp.Diff(i.interfaces, now.interfaces); diff != "" {
		out = append(out, "interfaces: "+diff)
	}
	if !slices.Equal(i.routes, now.routes) {
		out = append(out, "routes: "+cmp.Diff(i.routes, now.routes))
	}
	return strings.Join(out, "\n")
}

// imprints are those of a whole fleet, by node.
func (f fleet) imprints() map[string]imprint {
	out := map[string]imprint{}
	for name, w := range f {
		out[name] = imprintOf(w.Switch)
	}
	return out
}

// touched says what a fleet has done since its imprints were taken.
func (f fleet) touched(before map[string]imprint) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if what := before[name].touched(imprintOf(f[name].Switch)); what != "" {
			out = append(out, "node "+name+": "+what)
		}
	}
	return strings.Join(out, "\n")
}
