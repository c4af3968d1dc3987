package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// world is the input of an image, evaluated rule by rule, and a policy map that is changed by its
// plans only.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	image *Image
	infra []netip.Prefix

	memory  []Line
	records map[uint32]uint32
	waiting []Retired

	ends map[uint32]Endpoint
	sets map[api.SetID]map[netip.Prefix]bool
}

func newWorld(t testing.TB, seed uint64, infra ...netip.Prefix) *world {
	return &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), image: NewImage(Options{Infra: infra}), infra: infra,
		records: map[uint32]uint32{}, ends: map[uint32]Endpoint{}, sets: map[api.SetID]map[netip.Prefix]bool{},
	}
}

func (w *world) word(i uint32) uint32 { return w.memory[i/LineWords][i%LineWords] }

// poison is the content of released memory: a node that leads to itself.
const poison = kindNode | 1<<29

func (w *world) upload(p *Plan) {
	for len(w.memory) < p.Lines {
		w.memory = append(w.memory, Line{})
	}
	for _, s := range p.Fresh {
		_ = w.image.Parts(s, func(line uint32, content []Line) error { copy(w.memory[line:], content); return nil })
	}
	for _, s := range p.Stores {
		w.memory[s.Word/LineWords][s.Word%LineWords] = s.Value
	}
}

// steps returns the changes of a plan that packets can see, one by one.
func (w *world) steps(p *Plan) (steps []func()) {
	for _, id := range p.Gone {
		steps = append(steps, func() { delete(w.records, id) })
	}
	for _, f := range p.Flips {
		steps = append(steps, func() { w.records[f.ID] = f.Record })
	}
	for _, s := range p.Roots {
		steps = append(steps, func() { w.memory[s.Word/LineWords][s.Word%LineWords] = s.Value })
	}
	for _, f := range p.Joins {
		steps = append(steps, func() { w.records[f.ID] = f.Record })
	}
	return steps
}

// done acknowledges a plan, and releases what earlier ones retired.
func (w *world) done() {
	r := w.image.Done()
	for _, old := range w.waiting {
		w.image.Release(old)
		for _, s := range old.spans {
			for line := s.Line; line < s.Line+s.Lines && int(line) < len(w.memory); line++ {
				for i := range w.memory[line] {
					w.memory[line][i] = poison
				}
			}
		}
	}
	w.waiting = []Retired{r}
}

// commit carries out what is to be done, with a check after every step of some flows.
func (w *world) commit(again bool, flows []flow, before []bool) {
	p := w.image.Plan(again)
	if w.rng.IntN(8) == 0 {
		if err := w.image.check(); err != nil {
			w.t.Fatalf("%v\n%s", err, w.dump())
		}
	}
	w.upload(&p)
	after := w.wanted(flows)
	steps := w.steps(&p)
	for i, step := range steps {
		if step(); i%(1+len(steps)/50) == 0 {
			w.compare(flows, before, after)
		}
	}
	w.compare(flows, after, after)
	w.done()
}

// flow is a flow at an endpoint.
type flow struct {
	id  uint32
	dir Direction
	api.Flow
}

// verdict returns the verdict of the policy map.
func (w *world) verdict(f flow) (bool, uint32) {
	record, ok := w.records[f.id]
	if !ok {
		return true, 0
	}
	v := Reader{w.word}.Verdict(record, f.dir, f.Flow)
	return v&Allow != 0, v & SlotMask
}

func (w *world) compare(flows []flow, before, after []bool) {
	w.t.Helper()
	for i, f := range flows {
		if got, slot := w.verdict(f); got != before[i] && got != after[i] {
			w.t.Fatalf("endpoint %d direction %d flow %s: the memory says %t by slot %d, want %t or %t\n%s", f.id, f.dir, f.Flow, got, slot, before[i], after[i], w.dump())
		}
	}
}

func (w *world) dump() (s string) {
	for _, id := range slices.Sorted(maps.Keys(w.ends)) {
		e := w.ends[id]
		for d, l := range []*renderer.RuleList{e.ToPod, e.FromPod} {
			for _, r := range l.Rules() {
				s += fmt.Sprintf("%d/%d %s\n", id, d, r)
			}
		}
	}
	for id, set := range w.sets {
		s += fmt.Sprintf("%s: %v\n", id, slices.Collect(maps.Keys(set)))
	}
	return s
}

// wanted returns the desired verdict.
func (w *world) wanted(flows []flow) []bool {
	out := make([]bool, len(flows))
	for i, f := range flows {
		out[i] = w.want(f)
	}
	return out
}

func (w *world) want(f flow) bool {
	e, ok := w.ends[f.id]
	l, remote := e.ToPod, f.Src
	if f.dir == FromPod {
		l, remote = e.FromPod, f.Dst
	}
	if !ok || l == nil || slices.ContainsFunc(w.infra, func(p netip.Prefix) bool { return p.Contains(remote) }) {
		return true
	}
	for _, r := range l.Rules() {
		if r.Matches(f.Flow, w.inSet) {
			return r.Action == api.Permit
		}
	}
	return false
}

func (w *world) inSet(id api.SetID, a netip.Addr) bool {
	for p := range w.sets[id] {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (w *world) set(e Endpoint) {
	w.ends[e.ID] = e
	if err := w.image.Set(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(id uint32) {
	delete(w.ends, id)
	w.image.Remove(id)
}

// addr draws an address that is likely to be in a net.
func (w *world) addr() netip.Addr {
	if w.rng.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{10, byte(w.rng.IntN(3)), byte(w.rng.IntN(3)), byte(w.rng.IntN(64))})
	}
	b := [16]byte{0xfd, 1: byte(w.rng.IntN(2)), 5: byte(w.rng.IntN(2)), 7: byte(w.rng.IntN(3)), 8: byte(w.rng.IntN(2)), 15: byte(w.rng.IntN(64))}
	return netip.AddrFrom16(b)
}

func (w *world) prefix() netip.Prefix {
	a := w.addr()
	bits := a.BitLen()
	switch w.rng.IntN(4) {
	case 0:
		bits -= w.rng.IntN(min(bits, 40) + 1)
	case 1:
		bits -= w.rng.IntN(bits - 7)
		if w.rng.IntN(20) == 0 {
			bits = w.rng.IntN(9)
		}
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func (w *world) setID() api.SetID { return api.SetID(300 + w.rng.IntN(5)) }

func (w *world) net() api.Net {
	switch w.rng.IntN(5) {
	case 0:
		return api.Net{}
	case 1:
		return api.PrefixNet(w.prefix())
	}
	return api.SetNet(w.setID())
}

func (w *world) ports() api.PortRange {
	switch w.rng.IntN(4) {
	case 0:
		return api.AnyPort
	case 1:
		return api.Port(uint16(1 + w.rng.IntN(12)))
	case 2:
		first := uint16(1 + w.rng.IntN(65535))
		return api.Ports(first, first+uint16(w.rng.IntN(65536-int(first))))
	}
	first := uint16(1 + w.rng.IntN(10))
	return api.Ports(first, first+uint16(w.rng.IntN(5)))
}

func (w *world) list(dir Direction) *renderer.RuleList {
	if w.rng.IntN(5) == 0 {
		return nil
	}
	var rules []api.ContivRule
	bySource := w.rng.IntN(4) == 0
	n := w.rng.IntN(8)
	if w.rng.IntN(10) == 0 {
		n = 80
	}
	for range n {
		r := api.ContivRule{Action: api.Action(w.rng.IntN(2))}
		r.Protocol = []api.Protocol{api.AnyProtocol, api.TCP, api.TCP, api.UDP, api.SCTP, api.ICMP, 47, 255}[w.rng.IntN(8)]
		if r.Protocol.HasPorts() {
			r.DstPort = w.ports()
			if bySource {
				r.SrcPort = w.ports()
			}
		}
		if r.Src = w.net(); dir == FromPod {
			r.Src, r.Dst = api.Net{}, r.Src
		}
		rules = append(rules, r)
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{Action: api.Action(w.rng.IntN(2))}), nil)
}

// flows draws flows at all endpoints that there may be.
func (w *world) flows(n int) (out []flow) {
	for range n {
		f := flow{id: uint32(1 + w.rng.IntN(4)), dir: Direction(w.rng.IntN(2))}
		f.Src, f.Dst = w.addr(), w.addr()
		f.Protocol = []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP, 47, 255}[w.rng.IntN(6)]
		if f.Protocol.HasPorts() {
			f.SrcPort, f.DstPort = w.port(), w.port()
		}
		out = append(out, f)
	}
	return out
}

func (w *world) port() uint16 {
	if w.rng.IntN(2) == 0 {
		return uint16(w.rng.IntN(16))
	}
	return uint16(w.rng.IntN(65536))
}

// change makes a random change.
func (w *world) change() {
	for range 1 + w.rng.IntN(3) {
		switch w.rng.IntN(5) {
		case 0:
			id := uint32(1 + w.rng.IntN(4))
			w.set(Endpoint{ID: id, IPs: []netip.Addr{w.addr()}, ToPod: w.list(ToPod), FromPod: w.list(FromPod)})
		case 1:
			w.remove(uint32(1 + w.rng.IntN(4)))
		default:
			w.changeSet(w.setID(), w.rng.IntN(6))
		}
	}
}

// changeSet changes some members at random.
func (w *world) changeSet(id api.SetID, n int) {
	if w.sets[id] == nil {
		w.sets[id] = map[netip.Prefix]bool{}
	}
	var added, removed []netip.Prefix
	for range n {
		p := w.prefix()
		switch {
		case slices.Contains(added, p) || slices.Contains(removed, p): // changed already
		case w.sets[id][p]:
			delete(w.sets[id], p)
			removed = append(removed, p)
		default:
			w.sets[id][p] = true
			added = append(added, p)
		}
	}
	w.image.Update(id, added, removed)
}
