package backends

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// Installed implements Backend: the tables of the renderer, and what the rules in the dataplane
// permit. How they say it depends on the past and is left out.
func (s *Session) Installed() (string, error) {
	d := s.Rules.State()
	if d.Err != nil {
		return "", d.Err
	}
	var b strings.Builder
	for _, t := range d.Tables {
		t.Objects, t.Entries = nil, 0
		text, err := json.Marshal(t)
		if err != nil {
			return "", err
		}
		b.Write(append(text, '\n'))
	}
	rules, err := s.meaning()
	return b.String() + rules, err
}

// attempts are those that the same session rules decide about.
type attempts struct {
	who      string // the pod that connects, or the address that is reached
	protocol api.Protocol
	v6       bool
}

// meaning prints what the session rules in the dataplane permit.
func (s *Session) meaning() (string, error) {
	pods := map[uint32]api.PodID{}
	for pod, namespace := range s.Namespaces {
		pods[namespace] = pod
	}
	sections := map[attempts][]vswitch.SessionRule{}
	for _, r := range s.Switch.SessionRules() {
		of := attempts{"to " + r.Lcl.String(), r.Protocol, !r.Rmt.Addr().Is4()}
		if r.Local {
			of.who = "from " + pods[r.Namespaces[0]].String()
		}
		sections[of] = append(sections[of], r)
	}
	var out []string
	for of, rules := range sections {
		permits, err := permitted(rules)
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprintf("%s %s v6 %t\n%s", of.who, of.protocol, of.v6, permits))
	}
	slices.Sort(out)
	return strings.Join(out, ""), nil
}

// permitted prints the peers that rules permit, per port. A rule for all peers and ports decides
// the rest; of the others, those for any port say the opposite, and those for one port decide about
// it: exceptions that say what the rest does, and further ones that do not.
func permitted(rules []vswitch.SessionRule) (string, error) {
	action := func(r vswitch.SessionRule) api.Action {
		if r.Action == vswitch.SessionRuleDrop {
			return api.Deny
		}
		return api.Permit
	}
	rest := api.Permit
	ports := map[uint16]bool{0: true}
	for _, r := range rules {
		port := r.LclPort | r.RmtPort
		if ports[port] = true; r.Rmt.Bits() == 0 && port == 0 {
			rest = action(r)
		}
	}
	var b strings.Builder
	usual := ""
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		var bulk, exceptions, further netipx.IPSetBuilder
		for _, r := range rules {
			switch of := r.LclPort | r.RmtPort; {
			case action(r) != rest && of == 0:
				bulk.AddPrefix(r.Rmt)
			case action(r) != rest && of == port:
				further.AddPrefix(r.Rmt)
			case action(r) == rest && of == port && port != 0:
				exceptions.AddPrefix(r.Rmt)
			}
		}
		set, err := opposing(&bulk, &exceptions, &further)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("%s but for %v", rest, set)
		if port == 0 {
			usual = text
			fmt.Fprintf(&b, "  any port: %s\n", text)
		} else if text != usual {
			fmt.Fprintf(&b, "  port %d: %s\n", port, text)
		}
	}
	return b.String(), nil
}

// opposing returns what does not go as the rest.
func opposing(bulk, exceptions, further *netipx.IPSetBuilder) ([]netip.Prefix, error) {
	except, err := exceptions.IPSet()
	if err != nil {
		return nil, err
	}
	bulk.RemoveSet(except)
	more, err := further.IPSet()
	if err != nil {
		return nil, err
	}
	bulk.AddSet(more)
	set, err := bulk.IPSet()
	if err != nil {
		return nil, err
	}
	return set.Prefixes(), nil
}

// Dangling implements Backend: rules for addresses that no pod has, rules of no namespace that a
// pod has, and what is left of the rules by which the renderer finds out how the dataplane
// understands it.
func (s *Session) Dangling() (out []string) {
	namespaces := map[uint32]bool{}
	for _, n := range s.Namespaces {
		namespaces[n] = true
	}
	for _, r := range s.Switch.SessionRules() {
		switch {
		case strings.HasPrefix(r.Tag, probeTag):
			out = append(out, "left of a probe: "+r.String())
		case r.Local && !namespaces[r.Namespaces[0]]:
			out = append(out, "rule of a namespace of no pod: "+r.String())
		case !r.Local && !s.Has(r.Lcl.Addr()):
			out = append(out, "rule for an address of no pod: "+r.String())
		}
	}
	return out
}
