package endpoints_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints"
	_ "github.com/sluice-net/sluice/renderer/renderertest" // defines how much rapid draws
)

// model is the simplest implementation of a registry: a list of claims, which queries scan.
type model struct {
	links  map[uint32]*modelLink
	claims []endpoints.Claim // in the order in which they were made or changed
	pods   map[api.PodID]bool
	uids   map[api.PodID]string
}

type modelLink struct {
	link           endpoints.Link
	gaveUp         api.PodID // of the claim that was withdrawn last
	offered, known bool
	enforced       api.PodID
}

func (m *model) on(index uint32) (out []endpoints.Claim) {
	for _, c := range m.claims {
		if c.Link.Index == index {
			out = append(out, c)
		}
	}
	return out
}

// agree reports whether all claims of an interface may be for one pod with one UID.
func (m *model) agree(index uint32) bool {
	for _, a := range m.on(index) {
		for _, b := range m.on(index) {
			if a.Pod != b.Pod || a.UID != b.UID && a.UID != "" && b.UID != "" {
				return false
			}
		}
	}
	return true
}

// best returns the better one of claims: by source, then the newer.
func best(claims []endpoints.Claim) (out endpoints.Claim) {
	for _, c := range claims {
		if c.Source > out.Source || c.Source == out.Source && !c.Since.Before(out.Since) {
			out = c
		}
	}
	return out
}

// foreign reports whether an interface belongs to a UID of its pod that policy does not know.
func (m *model) foreign(index uint32) bool {
	return slices.ContainsFunc(m.on(index), func(c endpoints.Claim) bool {
		return c.UID != "" && m.uids[c.Pod] != "" && c.UID != m.uids[c.Pod]
	})
}

// pod returns the pod of an interface, and the best state that it can have.
func (m *model) pod(index uint32) (api.PodID, endpoints.State) {
	l := m.links[index]
	if len(m.on(index)) == 0 && l.gaveUp != (api.PodID{}) {
		return l.gaveUp, endpoints.StateOrphaned
	}
	if len(m.on(index)) == 0 {
		return api.PodID{}, endpoints.StateUnknown
	}
	mine := best(m.on(index))
	var others []endpoints.Claim
	for _, c := range m.claims {
		if c.Pod != mine.Pod {
			continue
		}
		if !m.agree(c.Link.Index) {
			return mine.Pod, endpoints.StateConflicting
		}
		if c.Sandbox != "" {
			others = append(others, c)
		}
	}
	if !m.agree(index) {
		return mine.Pod, endpoints.StateConflicting
	}
	if mine.Sandbox != "" && best(others).Sandbox != mine.Sandbox {
		return mine.Pod, endpoints.StateOrphaned
	}
	if m.foreign(index) && m.links[index].known {
		return mine.Pod, endpoints.StateOrphaned
	}
	if m.foreign(index) {
		return mine.Pod, endpoints.StatePending
	}
	return mine.Pod, endpoints.StateEnforced
}

func (m *model) state(index uint32) (api.PodID, endpoints.State) {
	pod, at := m.pod(index)
	l := m.links[index]
	switch {
	case at != endpoints.StateEnforced || m.pods[pod] && l.enforced == pod:
		return pod, at
	case !m.pods[pod] && l.known:
		return pod, endpoints.StateOrphaned
	}
	return pod, endpoints.StatePending
}

func (m *model) gone(index uint32) {
	delete(m.links, index)
	m.claims = slices.DeleteFunc(m.claims, func(c endpoints.Claim) bool { return c.Link.Index == index })
}

// reset makes an interface enforced only after it was requested again.
func (m *model) reset(index uint32) {
	if l := m.links[index]; l != nil {
		l.offered, l.known, l.enforced = false, false, api.PodID{}
	}
}

func (m *model) withdraw(source endpoints.Source, owner string) bool {
	i := m.owned(source, owner)
	if i < 0 {
		return false
	}
	c := m.claims[i]
	m.claims = slices.Delete(m.claims, i, i+1)
	m.reset(c.Link.Index)
	m.links[c.Link.Index].gaveUp = c.Pod
	return true
}

func (m *model) owned(source endpoints.Source, owner string) int {
	return slices.IndexFunc(m.claims, func(c endpoints.Claim) bool { return c.Source == source && c.Owner == owner })
}

func (m *model) claim(c endpoints.Claim) bool {
	l := m.links[c.Link.Index]
	if l == nil || l.link.MAC != c.Link.MAC {
		return false
	}
	c.Link = l.link
	before := m.binding(c.Link.Index)
	at := len(m.claims)
	if i := m.owned(c.Source, c.Owner); i >= 0 {
		old := m.claims[i]
		m.claims = slices.Delete(m.claims, i, i+1)
		at--
		if old.Pod == c.Pod && old.UID == c.UID && old.Sandbox == c.Sandbox && old.Link == c.Link {
			c.Since, at = old.Since, i
		}
		if old.Link != c.Link {
			m.reset(old.Link.Index)
		}
	}
	m.claims = slices.Insert(m.claims, at, c)
	if after := m.binding(c.Link.Index); after != before || after.state != endpoints.StateEnforced {
		m.reset(c.Link.Index)
	}
	return true
}

// binding returns the claim for which an interface is enforced, unless another claim contradicts
// it.
type binding struct {
	source       endpoints.Source
	owner        string
	pod          api.PodID
	uid, sandbox string
	ips          string
	state        endpoints.State
}

func (m *model) binding(index uint32) (b binding) {
	if len(m.on(index)) == 0 {
		return b
	}
	c := best(m.on(index))
	_, state := m.pod(index)
	b.source, b.owner, b.pod, b.uid, b.sandbox, b.ips, b.state = c.Source, c.Owner, c.Pod, c.UID, c.Sandbox, fmt.Sprint(c.IPs), state
	return b
}

func (m *model) offer(pod api.PodID, ips []netip.Addr) (out []uint32) {
	for index, l := range m.links {
		if p, at := m.pod(index); p != pod || at != endpoints.StateEnforced {
			continue
		}
		own := best(m.on(index)).IPs
		l.offered = len(own) == 0 || slices.ContainsFunc(own, func(a netip.Addr) bool { return slices.Contains(ips, a) })
		if l.offered {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out
}

func (m *model) identify(uids map[api.PodID]string, all bool) {
	if all {
		m.uids = map[api.PodID]string{}
	}
	maps.Copy(m.uids, uids)
	for index, l := range m.links {
		if mine := m.on(index); len(mine) > 0 && m.agree(index) && m.foreign(index) {
			l.offered, l.enforced = false, api.PodID{}
		}
	}
}

func (m *model) acknowledge(pods map[api.PodID]bool, enforced map[uint32]api.PodID) {
	m.pods = pods
	for index, l := range m.links {
		l.enforced = api.PodID{}
		if l.offered {
			l.enforced = enforced[index]
		}
		if p, at := m.pod(index); at == endpoints.StateEnforced && pods[p] {
			l.known = true
		}
	}
}

// player plays the same events to a registry and to the model.
type player struct {
	r     *endpoints.Registry
	m     model
	clock time.Time
	seen  map[uint32]endpoints.Endpoint
}

var (
	indexes = rapid.Uint32Range(1, 4)
	macs    = rapid.SampledFrom([]string{"02:00:00:00:00:01", "02:00:00:00:00:02"})
	pods    = rapid.SampledFrom([]api.PodID{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}})
	sources = rapid.SampledFrom([]endpoints.Source{endpoints.SourceNamespace, endpoints.SourceKey, endpoints.SourceRegistered})
	owners  = rapid.SampledFrom([]string{"c1/eth0", "c2/eth0", "c3/eth0"})
	uids    = rapid.SampledFrom([]string{"", "", "1", "2"})
	boxes   = rapid.SampledFrom([]string{"", "c1", "c2"})
	ips     = rapid.SliceOfN(rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}), 0, 1)
)

func (p *player) now() time.Time {
	p.clock = p.clock.Add(time.Second)
	return p.clock
}

func drawClaim(t *rapid.T, p *player) endpoints.Claim {
	return endpoints.Claim{
		Source: sources.Draw(t, "source"), Owner: owners.Draw(t, "owner"), Pod: pods.Draw(t, "pod"), UID: uids.Draw(t, "uid"),
		Sandbox: boxes.Draw(t, "sandbox"), IPs: ips.Draw(t, "ips"), Since: p.now(),
		Link: endpoints.Link{Index: indexes.Draw(t, "index"), MAC: macs.Draw(t, "mac")},
	}
}

func (p *player) Link(t *rapid.T) {
	l := endpoints.Link{Index: indexes.Draw(t, "index"), MAC: macs.Draw(t, "mac"), Name: rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "name")}
	p.r.Link(l)
	if p.m.links[l.Index] == nil {
		p.m.links[l.Index] = &modelLink{}
	}
	p.m.links[l.Index].link = l
	for i, c := range p.m.claims {
		if c.Link.Index == l.Index {
			p.m.claims[i].Link = l
		}
	}
}

func (p *player) Gone(t *rapid.T) {
	index := indexes.Draw(t, "index")
	p.r.Gone(index)
	p.m.gone(index)
}

func (p *player) Resync(t *rapid.T) {
	var all []endpoints.Link
	for index := range uint32(4) {
		if rapid.Bool().Draw(t, "there") {
			all = append(all, endpoints.Link{Index: index + 1, MAC: macs.Draw(t, "mac"), Name: "v1"})
		}
	}
	p.r.Resync(all)
	for index, l := range p.m.links {
		if !slices.ContainsFunc(all, func(o endpoints.Link) bool { return o.Index == index && o.MAC == l.link.MAC }) {
			p.m.gone(index)
		}
	}
	for _, l := range all {
		if p.m.links[l.Index] == nil {
			p.m.links[l.Index] = &modelLink{}
		}
		p.m.links[l.Index].link = l
		for i, c := range p.m.claims {
			if c.Link.Index == l.Index {
				p.m.claims[i].Link = l
			}
		}
	}
}

func (p *player) Claim(t *rapid.T) {
	c := drawClaim(t, p)
	err := p.r.Claim(c)
	if ok := p.m.claim(c); ok != (err == nil) || err != nil && !errors.Is(err, endpoints.ErrNoLink) {
		t.Fatalf("claim %+v: %v, want accepted %t", c, err, ok)
	}
}

func (p *player) Found(t *rapid.T) {
	source, like := sources.Draw(t, "source"), drawClaim(t, p)
	var claims []endpoints.Claim
	for range rapid.IntRange(0, 2).Draw(t, "n") {
		c := drawClaim(t, p)
		c.Source, c.Link = source, like.Link
		claims = append(claims, c)
	}
	ok := true
	for _, c := range claims {
		ok = p.m.claim(c) && ok
	}
	if len(claims) > 0 && ok {
		for _, c := range p.m.on(like.Link.Index) {
			if c.Source == source && !slices.ContainsFunc(claims, func(x endpoints.Claim) bool { return x.Owner == c.Owner }) {
				p.m.withdraw(source, c.Owner)
			}
		}
	}
	if err := p.r.Found(source, like.Link, claims); (err == nil) != ok {
		t.Fatalf("found %+v: %v, want accepted %t", claims, err, ok)
	}
}

func (p *player) Withdraw(t *rapid.T) {
	source, owner := sources.Draw(t, "source"), owners.Draw(t, "owner")
	if got, want := p.r.Withdraw(source, owner), p.m.withdraw(source, owner); got != want {
		t.Fatalf("withdraw %v %s: %t, want %t", source, owner, got, want)
	}
}

func (p *player) Offer(t *rapid.T) {
	pod, ips := pods.Draw(t, "pod"), ips.Draw(t, "ips")
	if got, want := p.r.Offer(pod, ips), p.m.offer(pod, ips); !slices.Equal(got, want) {
		t.Fatalf("offer %s %v: %v, want %v", pod, ips, got, want)
	}
}

func (p *player) Acknowledge(t *rapid.T) {
	known := rapid.MapOf(pods, rapid.Just(true)).Draw(t, "pods")
	enforced := rapid.MapOf(indexes, pods).Draw(t, "enforced")
	p.r.Acknowledge(known, enforced)
	p.m.acknowledge(known, enforced)
}

func (p *player) Identify(t *rapid.T) {
	known, all := rapid.MapOf(pods, uids).Draw(t, "uids"), rapid.Bool().Draw(t, "all")
	p.r.Identify(known, all)
	p.m.identify(known, all)
}

// check compares the results of all queries.
func (p *player) Check(t *rapid.T) {
	now := map[uint32]endpoints.Endpoint{}
	for _, e := range p.r.Endpoints() {
		now[e.Link.Index] = e
		l := p.m.links[e.Link.Index]
		if l == nil || l.link != e.Link {
			t.Fatalf("there is %+v, want %+v", e.Link, l)
		}
		if pod, state := p.m.state(e.Link.Index); pod != e.Pod || state != e.State || (state == endpoints.StateEnforced) != (e.Reason == "") {
			t.Fatalf("interface %d: %+v, want %s %s", e.Link.Index, e, pod, state)
		}
	}
	if len(now) != len(p.m.links) {
		t.Fatalf("there are %v, want %v", now, p.m.links)
	}
	for pod, ips := range p.r.Addresses() {
		for index := range p.m.links {
			if of, at := p.m.pod(index); of == pod && at == endpoints.StateEnforced && !subset(best(p.m.on(index)).IPs, ips) {
				t.Fatalf("pod %s has %v, and interface %d was claimed with others", pod, ips, index)
			}
		}
	}
	changes := p.r.Changes()
	for index := range uint32(5) {
		if now[index] != p.seen[index] && !slices.Contains(changes, index) {
			t.Fatalf("interface %d changed from %+v to %+v, and that is not among the changes %v", index, p.seen[index], now[index], changes)
		}
	}
	p.seen = now
}

func subset(a, b []netip.Addr) bool {
	return !slices.ContainsFunc(a, func(x netip.Addr) bool { return !slices.Contains(b, x) })
}

// TestRegistryMatchesItsModel plays random events to the registry and to the model.
func TestRegistryMatchesItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &player{m: model{links: map[uint32]*modelLink{}, uids: map[api.PodID]string{}}, seen: map[uint32]endpoints.Endpoint{}}
		p.r = endpoints.NewRegistry(p.now)
		t.Repeat(map[string]func(*rapid.T){
			"": p.Check, "link": p.Link, "gone": p.Gone, "resync": p.Resync, "claim": p.Claim, "found": p.Found,
			"withdraw": p.Withdraw, "offer": p.Offer, "acknowledge": p.Acknowledge, "identify": p.Identify,
		})
	})
}
