package renderertest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// state is what a Recorder has installed. Its methods record violations of the contract.
type state struct {
	pods   map[api.PodID]renderer.PodConfig
	sets   map[api.SetID]*memberSet // never empty sets
	byAddr map[netip.Addr][]api.PodID

	resync     bool                 // under construction by a resync
	checked    map[checkedList]bool // by the changes
	violations []string
	journal    *journal // nil: changes are not counted
}

// checkedList is a list of many pods.
type checkedList struct {
	list      *renderer.RuleList
	direction string
}

func newState() state {
	return state{
		pods:    map[api.PodID]renderer.PodConfig{},
		sets:    map[api.SetID]*memberSet{},
		byAddr:  map[netip.Addr][]api.PodID{},
		checked: map[checkedList]bool{},
	}
}

func (s *state) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// takeViolations ends the checks of one value of changes.
func (s *state) takeViolations() []string {
	v := s.violations
	s.violations = nil
	clear(s.checked)
	return v
}

func (s *state) updateSet(id api.SetID, added, removed []netip.Prefix) {
	if s.resync && len(removed) > 0 {
		s.violate("set %s: a resync removes members, and has to tell the whole membership", id)
	}
	set := s.sets[id]
	if set == nil {
		set = newMemberSet()
		s.sets[id] = set
	}
	s.journal.touchSet(id, added, removed)
	for _, p := range added {
		if !p.IsValid() || !p.IsSingleIP() && p != p.Masked() {
			s.violate("set %s: %s is not a masked prefix", id, p)
		}
	}
	set.change(added, removed, func(p netip.Prefix, added bool) {
		if added {
			s.violate("set %s: %s is added but is a member", id, p)
		} else {
			s.violate("set %s: %s is removed but is no member", id, p)
		}
	})
	if a, b, ok := set.overlap(); ok {
		s.violate("set %s: members %s and %s overlap", id, a, b)
	}
	if set.size == 0 {
		delete(s.sets, id)
	}
}

func (s *state) render(pod api.PodID, cfg renderer.PodConfig) {
	s.checkAddrs(pod, cfg.IPs)
	s.checkList(pod, "ingress", cfg.Ingress)
	s.checkList(pod, "egress", cfg.Egress)
	s.remove(pod)
	s.pods[pod] = cfg
	for _, a := range cfg.IPs {
		s.byAddr[a] = append(s.byAddr[a], pod)
	}
}

func (s *state) remove(pod api.PodID) {
	old, known := s.pods[pod]
	s.journal.touchPod(pod, old, known)
	s.forgetAddrs(pod, old)
	delete(s.pods, pod)
}

func (s *state) forgetAddrs(pod api.PodID, cfg renderer.PodConfig) {
	for _, a := range cfg.IPs {
		rest := slices.DeleteFunc(s.byAddr[a], func(p api.PodID) bool { return p == pod })
		if len(rest) == 0 {
			delete(s.byAddr, a)
			continue
		}
		s.byAddr[a] = rest
	}
}

func (s *state) checkAddrs(pod api.PodID, ips []netip.Addr) {
	if len(ips) == 0 || !slices.IsSortedFunc(ips, netip.Addr.Compare) {
		s.violate("pod %s: addresses %v are not sorted, or there is none", pod, ips)
	}
	for i, a := range ips {
		if !a.IsValid() || i > 0 && ips[i-1] == a {
			s.violate("pod %s: address %s is invalid or there twice", pod, a)
		}
	}
}

// checkList checks the requirements of PodConfig for lists.
func (s *state) checkList(pod api.PodID, direction string, l *renderer.RuleList) {
	if l == nil || s.checked[checkedList{l, direction}] {
		return
	}
	s.checked[checkedList{l, direction}] = true
	if l.Len() == 0 {
		s.violate("pod %s: the %s list is empty, so it does not end with a rule that matches everything", pod, direction)
		return
	}
	var last api.ContivRule
	for i, r := range l.All() {
		last = r
		podSide := r.Src
		if direction == "egress" {
			podSide = r.Dst
		}
		if !podSide.IsAny() {
			s.violate("pod %s: %s rule %d %q names the pod's side", pod, direction, i, r)
		}
		if why := malformed(r); why != "" {
			s.violate("pod %s: %s rule %d %q: %s", pod, direction, i, r, why)
		}
	}
	if last.Action, last.Audit = api.Deny, false; last != (api.ContivRule{}) {
		s.violate("pod %s: the %s list does not end with a rule that matches everything", pod, direction)
	}
}

func malformed(r api.ContivRule) string {
	ports := !r.SrcPort.IsAny() || !r.DstPort.IsAny()
	switch {
	case ports && !r.Protocol.HasPorts():
		return "it has ports, but its protocol has none"
	case r.SrcPort.First > r.SrcPort.Last || r.DstPort.First > r.DstPort.Last:
		return "its port range is inverted"
	case r.Audit && r.Action == api.Deny:
		return "it denies what it audits"
	}
	for _, n := range []api.Net{r.Src, r.Dst} {
		if n.Prefix.IsValid() && (n.Set != 0 || n.Prefix != n.Prefix.Masked()) {
			return "a side is both a set and a prefix, or its prefix is not masked"
		}
	}
	return ""
}

// distance counts the pods and members in which two states differ.
func (s *state) distance(o *state) int {
	n := 0
	for id, cfg := range s.pods {
		if other, ok := o.pods[id]; !ok || !equalConfigs(cfg, other) {
			n++
		}
	}
	for id := range o.pods {
		if _, ok := s.pods[id]; !ok {
			n++
		}
	}
	for id, set := range s.sets {
		n += set.missingIn(o.sets[id])
	}
	for id, set := range o.sets {
		n += set.missingIn(s.sets[id])
	}
	return n
}

func equalConfigs(a, b renderer.PodConfig) bool {
	return slices.Equal(a.IPs, b.IPs) && equalLists(a.Ingress, b.Ingress) && equalLists(a.Egress, b.Egress)
}

// equalLists compares rules; it ignores origins.
func equalLists(a, b *renderer.RuleList) bool {
	return a == b || (a == nil) == (b == nil) && a.Len() == b.Len() && a.Digest() == b.Digest()
}
