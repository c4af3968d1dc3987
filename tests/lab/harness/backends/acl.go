package backends

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
)

// aclBackend is the ACL renderer over the embedded dataplane, as a node runs it.
type aclBackend struct {
	*node.Embedded
	tap     *tap
	options acl.Options
}

var (
	_ Backend  = aclBackend{}
	_ Stateful = aclBackend{}
	_ Sender   = aclBackend{}
	_ Watched  = aclBackend{}
)

func newACL(prompt func()) (Backend, error) { return NewACL(acl.Options{OnChange: prompt}) }

// NewACL returns an empty backend of ACLs. The options need no Adapter.
func NewACL(o acl.Options) (Backend, error) {
	sw := vswitch.New(vswitch.Options{})
	s := aclBackend{tap: newTap(sw.Adapter(), aclMessages)}
	s.options = o
	s.options.Adapter = s.tap
	var err error
	s.Embedded, err = node.NewEmbedded(sw, s.options)
	return s, err
}

// Verdict implements Backend. It forgets all sessions, as those of all other backends do.
func (s aclBackend) Verdict(f api.Flow) api.Action {
	s.Switch.ClearSessions()
	return s.Embedded.First(f).Verdict
}

func (s aclBackend) Trace(f api.Flow) string { return s.Embedded.First(f).String() }
func (s aclBackend) Operations() int         { return s.tap.operations() }
func (s aclBackend) FailNext(n int)          { s.tap.failNext(n) }
func (s aclBackend) Restart() error          { return s.Embedded.Restart(s.options) }

// Watch implements Watched.
func (s aclBackend) Watch(look func()) { s.tap.watch(look) }

// Passes implements Sender.
func (s aclBackend) Passes(p vswitch.Packet) bool { return s.Send(p).Verdict == api.Permit }

// First implements Stateful.
func (s aclBackend) First(f api.Flow) bool { return s.Passes(vswitch.FlowPacket(f)) }

// Reply implements Stateful.
func (s aclBackend) Reply(f api.Flow) bool { return s.Passes(vswitch.FlowPacket(f).Reply()) }

// Installed implements Backend.
func (s aclBackend) Installed() (string, error) { return InstalledACL(s.ACL, s.Switch) }

// Dangling implements Backend.
func (s aclBackend) Dangling() []string { return DanglingACL(s.Switch) }

// InstalledACL prints the tables of an ACL renderer and what a packet can meet in the
// dataplane below it. Which ACLs hold a table and how they divide it depends on
// the past and is left out.
func InstalledACL(r *acl.Renderer, sw *vswitch.Switch) (string, error) {
	var b strings.Builder
	d := r.State()
	if d.Err != nil || len(d.Pending) > 0 {
		return "", fmt.Errorf("the renderer is not done: %w, pending %v", d.Err, d.Pending)
	}
	for _, t := range d.Tables {
		t.Objects, t.Entries = nil, 0
		text, err := json.Marshal(t)
		if err != nil {
			return "", err
		}
		b.Write(append(text, '\n'))
	}
	printInterfaces(&b, sw)
	return b.String(), nil
}

// printInterfaces prints the rules of each interface in their order, and the routes.
func printInterfaces(b *strings.Builder, sw *vswitch.Switch) {
	names := map[uint32]string{}
	var interfaces []string
	for _, i := range sw.Interfaces() {
		names[i.Index] = i.Name
		interfaces = append(interfaces, fmt.Sprintf("interface %s tag %q up %t\n  in\n%s  out\n%s",
			i.Name, i.Tag, i.Up, rulesOf(sw, i.Inputs), rulesOf(sw, i.Outputs)))
	}
	slices.Sort(interfaces)
	b.WriteString(strings.Join(interfaces, ""))
	for _, r := range sw.Routes() {
		fmt.Fprintf(b, "route %s to %s\n", r.Prefix, names[r.SwIfIndex])
	}
}

func rulesOf(sw *vswitch.Switch, acls []uint32) string {
	var b strings.Builder
	for _, r := range inForce(sw, acls) {
		fmt.Fprintf(&b, "    %s\n", r)
	}
	return b.String()
}

// DanglingACL finds interfaces with ACLs that are gone, ACLs of ours that no interface
// has, and routes to interfaces that are gone.
func DanglingACL(sw *vswitch.Switch) []string {
	var out []string
	exists := map[uint32]bool{}
	for _, i := range sw.Interfaces() {
		exists[i.Index] = true
		for _, index := range slices.Concat(i.Inputs, i.Outputs) {
			if _, ok := sw.Rules(index); !ok {
				out = append(out, fmt.Sprintf("interface %s has acl %d, which is gone", i.Name, index))
			}
		}
	}
	for _, r := range sw.Routes() {
		if !exists[r.SwIfIndex] {
			out = append(out, fmt.Sprintf("route %s leads to interface %d, which is gone", r.Prefix, r.SwIfIndex))
		}
	}
	return append(out, unused(sw.ACLs())...)
}

// unused names the ACLs of ours that no interface has.
func unused(acls []vswitch.ACL) []string {
	var out []string
	for _, a := range acls {
		if strings.HasPrefix(a.Tag, "sluice:") && len(a.Inputs)+len(a.Outputs) == 0 {
			out = append(out, fmt.Sprintf("acl %d %s with %d rules is on no interface", a.Index, a.Tag, a.Rules))
		}
	}
	return out
}
