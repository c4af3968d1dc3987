package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api/model"
)

// selectorTable lets policies share selectors: equal selectors are the same *intent.Selector, which is
// what membership and specs compare. So it is no memo that could be left out.
type selectorTable struct {
	byText map[string]sharedSelector
	rules  ruleTable            // of policies with these selectors
	reqs   []intent.Requirement // scratch
	text   []byte               // scratch
}

type sharedSelector struct {
	sel  *intent.Selector
	refs int
}

func newSelectorTable() selectorTable {
	return selectorTable{byText: map[string]sharedSelector{}}
}

// acquire returns the selector for a message; a nil message matches everything. The error names the
// invalid part.
func (t *selectorTable) acquire(m *model.LabelSelector) (*intent.Selector, error) {
	t.reqs = t.reqs[:0]
	for _, l := range m.GetMatchLabels() {
		t.reqs = append(t.reqs, intent.Requirement{Key: l.GetKey(), Operator: intent.In, Values: []string{l.GetValue()}})
	}
	for _, r := range m.GetMatchExpressions() {
		t.reqs = append(t.reqs, intent.Requirement{Key: r.GetKey(), Operator: operator(r.GetOperator()), Values: r.GetValues()})
	}
	reqs, err := intent.CanonicalRequirements(t.reqs)
	if err != nil {
		return nil, err
	}
	t.text = intent.AppendRequirements(t.text[:0], reqs)
	e, ok := t.byText[string(t.text)]
	if !ok {
		if e.sel, err = intent.NewSelector(slices.Clone(reqs)); err != nil {
			return nil, err
		}
	}
	e.refs++
	t.byText[e.sel.String()] = e
	return e.sel, nil
}

func (t *selectorTable) release(sel *intent.Selector) {
	if sel == nil {
		return
	}
	e := t.byText[sel.String()]
	if e.refs--; e.refs <= 0 {
		delete(t.byText, sel.String())
		return
	}
	t.byText[sel.String()] = e
}

// releasePeer releases the selectors of a peer.
func (t *selectorTable) releasePeer(p intent.Peer) {
	t.release(p.Pods)
	t.release(p.Namespaces)
	t.release(p.Nodes)
}

// operator converts an operator. For an unknown one it returns an operator that the API does not
// have, which makes the selector invalid.
func operator(o model.LabelSelector_Operator) intent.Operator {
	switch o {
	case model.LabelSelector_OPERATOR_IN:
		return intent.In
	case model.LabelSelector_OPERATOR_NOT_IN:
		return intent.NotIn
	case model.LabelSelector_OPERATOR_EXISTS:
		return intent.Exists
	case model.LabelSelector_OPERATOR_DOES_NOT_EXIST:
		return intent.DoesNotExist
	case model.LabelSelector_OPERATOR_UNSPECIFIED:
	}
	return 255
}

// hostTable interns the node addresses in the status of pods: a pod has 4 bytes in place of a name and
// a list, some 10 MiB on L (BenchmarkWorkloadInit). Entries are reference-counted: a pod
// whose status does not have the node's addresses yet uses another entry.
type hostTable struct {
	list  []host
	index hashIndex
	free  []uint32
}

type host struct {
	name  string
	texts []string // as in the status of pods
	ips   []netip.Addr
	refs  int
}

func newHostTable() hostTable { return hostTable{} }

func hashHost(name string, texts []string) uint32 {
	h := hashString(0, name)
	for _, t := range texts {
		h = hashString(h, t)
	}
	return fold(h)
}

func (t *hostTable) acquire(name string, texts []string) uint32 {
	hash := hashHost(name, texts)
	i, ok := t.index.find(hash, func(i uint32) bool {
		return t.list[i].name == name && slices.Equal(t.list[i].texts, texts)
	})
	if !ok {
		i = alloc(&t.list, &t.free)
		t.list[i] = host{name: name, texts: slices.Clone(texts)}
		ips, _ := parseAddrs(nil, texts)
		t.list[i].ips = ips[:min(len(ips), model.MaxAddresses):min(len(ips), model.MaxAddresses)]
		t.index.insert(hash, i)
	}
	t.list[i].refs++
	return i
}

func (t *hostTable) release(i uint32) {
	h := &t.list[i]
	if h.refs--; h.refs > 0 {
		return
	}
	t.index.remove(hashHost(h.name, h.texts), i)
	*h = host{}
	t.free = append(t.free, i)
}

// parseAddrs appends the valid addresses, sorted and without duplicates, and returns the invalid
// ones.
func parseAddrs(dst []netip.Addr, texts []string) (addrs []netip.Addr, bad []string) {
	for _, t := range texts {
		a, err := netip.ParseAddr(t)
		if err != nil || a.Zone() != "" || a.IsUnspecified() {
			bad = append(bad, t)
			continue
		}
		dst = append(dst, a.Unmap())
	}
	if len(dst) > 1 {
		slices.SortFunc(dst, netip.Addr.Compare)
		dst = slices.Compact(dst)
	}
	return dst, bad
}
