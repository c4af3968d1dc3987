package bench

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	binapi "go.fd.io/govpp/binapi/acl"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// What a message costs a VPP, measured on 25.10: while it changes an ACL it stops, for
// every entry in the list of an interface from this ACL on, and when it changes the
// list itself, for every entry in it. Beside that it looks at all entries of the list: when
// it takes the changed ACL out and puts it in again, and for each ACL behind it
// (hash_lookup.c: hash_acl_unapply, remake_hash_applied_mask_info_vec).
const (
	stallPerEntry = 165 * time.Nanosecond
	stallPerBound = 115 * time.Nanosecond
	stallPerLook  = 16 * time.Nanosecond // for the changed ACL
	stallPerNext  = 7 * time.Nanosecond  // for each ACL behind it
)

// Sizes of messages in bytes: what precedes the rules, and a rule.
const (
	putBytes  = 82
	ruleBytes = 48
)

// wire counts what a renderer sends to a vswitch, and what it costs a VPP: the model's
// stalls, or without an embedded dataplane how long a VPP takes to answer.
type wire struct {
	adapter.VppAPI
	sw *vswitch.Switch // nil for a VPP

	mu                    sync.Mutex
	put, set, addDel, del uint16 // message ids
	messages, rules       int
	bytes                 int
	stall                 time.Duration
	asked                 map[uint32]time.Time // changes that a VPP has not answered yet, by context
}

// Connect learns the numbers of messages.
func (w *wire) Connect() error {
	if err := w.VppAPI.Connect(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, id := range map[govpp.Message]*uint16{
		&binapi.ACLAddReplace{}: &w.put, &binapi.ACLInterfaceSetACLList{}: &w.set, &binapi.ACLInterfaceAddDel{}: &w.addDel, &binapi.ACLDel{}: &w.del,
	} {
		var err error
		if *id, err = w.GetMsgID(m.GetMessageName(), m.GetCrcString()); err != nil {
			return err
		}
	}
	return nil
}

// SendMsg counts a message.
func (w *wire) SendMsg(ctx uint32, data []byte) error {
	w.mu.Lock()
	switch binary.BigEndian.Uint16(data) {
	case w.put:
		index, rules := binary.BigEndian.Uint32(data[10:]), int(binary.BigEndian.Uint32(data[78:]))
		w.rules += rules
		w.count(ctx, data, func() time.Duration { return w.replacement(index, rules) })
	case w.set:
		w.count(ctx, data, func() time.Duration {
			return time.Duration(w.bound(binary.BigEndian.Uint32(data[10:]))) * stallPerBound
		})
	case w.addDel: // two flags precede the interface
		w.count(ctx, data, func() time.Duration {
			return time.Duration(w.bound(binary.BigEndian.Uint32(data[12:]))) * stallPerBound
		})
	case w.del:
		w.count(ctx, data, func() time.Duration { return 0 })
	}
	w.mu.Unlock()
	return w.VppAPI.SendMsg(ctx, data)
}

// count counts a change. A VPP answers when it has stopped and gone on.
func (w *wire) count(ctx uint32, data []byte, model func() time.Duration) {
	w.messages++
	w.bytes += len(data)
	if w.sw != nil {
		w.stall += model()
		return
	}
	w.asked[ctx] = time.Now()
}

// SetMsgCallback looks at the answers.
func (w *wire) SetMsgCallback(cb adapter.MsgCallback) {
	w.VppAPI.SetMsgCallback(func(id uint16, data []byte) {
		w.answered(data)
		cb(id, data)
	})
}

// answered ends the time of a change. The context follows the message number of a reply.
func (w *wire) answered(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(data) < 6 || w.asked == nil {
		return
	}
	ctx := binary.BigEndian.Uint32(data[2:])
	if at, ok := w.asked[ctx]; ok {
		w.stall += time.Since(at)
		delete(w.asked, ctx)
	}
}

// replacement is how long a VPP stops to replace an ACL, which will have some rules.
func (w *wire) replacement(index uint32, rules int) (stall time.Duration) {
	sizes := map[uint32]int{}
	for _, a := range w.sw.ACLs() {
		sizes[a.Index] = a.Rules
	}
	sizes[index] = rules
	for _, n := range w.sw.Interfaces() {
		for _, list := range [2][]uint32{n.Inputs, n.Outputs} {
			at := slices.Index(list, index)
			if at < 0 {
				continue
			}
			all, behind := 0, 0
			for k, i := range list {
				all += sizes[i]
				if k >= at {
					behind += sizes[i]
				}
			}
			looks := stallPerLook + stallPerNext*time.Duration(len(list)-at-1)
			stall += stallPerEntry*time.Duration(behind) + looks*time.Duration(all)
		}
	}
	return stall
}

// bound returns how many entries are in the lists of an interface.
func (w *wire) bound(index uint32) (entries int) {
	for _, a := range w.sw.ACLs() {
		for _, bound := range [2][]uint32{a.Inputs, a.Outputs} {
			if slices.Contains(bound, index) {
				entries += a.Rules
			}
		}
	}
	return entries
}

// take returns what was counted since the last call.
func (w *wire) take() cost {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := cost{w.messages, w.rules, w.bytes, w.stall}
	w.messages, w.rules, w.bytes, w.stall = 0, 0, 0, 0
	return c
}

// cost of an event.
type cost struct {
	messages, rules, bytes int
	stall                  time.Duration
}

// whole is the cost of the same event for a renderer that replaces the whole table of some entries
// on some interfaces.
func whole(entries, interfaces int) cost {
	return cost{1, entries, putBytes + ruleBytes*entries, time.Duration(entries*interfaces) * (stallPerEntry + stallPerLook)}
}

// lifetimes are how long pods live: kinds with their share of all pods that are
// born, and their mean life. Within a kind the end comes at random.
//
// Half of all containers were found to live for less than five minutes (Sysdig,
// Container Usage Report 2019, two million containers), as jobs do and what fails to
// start; most of the rest ends with the next rollout or scaling, and a few
// are what runs for weeks. At any time nearly all that live are of these.
var lifetimes = []struct {
	share float64
	mean  time.Duration
}{{0.70, 5 * time.Minute}, {0.25, 5 * time.Hour}, {0.05, 21 * 24 * time.Hour}}

// The members of a set over the years.
type population struct {
	random *rand.Rand
	now    time.Duration
	born   int
	births time.Duration // mean time between them
	deaths []death       // a heap would be faster than it needs to be
}

type death struct {
	at     time.Duration
	member int
}

func newPopulation(members int) *population {
	mean := 0.0
	for _, l := range lifetimes {
		mean += l.share * l.mean.Seconds()
	}
	return &population{random: rand.New(rand.NewPCG(1, 1)), births: time.Duration(mean / float64(members) * float64(time.Second))}
}

// settle has as many members of every kind as there are at any time, and returns those that live
// for weeks, and the others.
func (c *population) settle() (old, others []netip.Prefix) {
	for i, l := range lifetimes {
		for range int(float64(l.mean) * l.share / float64(c.births)) {
			p := c.bear(l.mean)
			if i == len(lifetimes)-1 {
				old = append(old, p)
			} else {
				others = append(others, p)
			}
		}
	}
	return old, others
}

// bear adds a member.
func (c *population) bear(mean time.Duration) netip.Prefix {
	d := death{c.now + time.Duration(c.random.ExpFloat64()*float64(mean)), c.born}
	c.born++
	at, _ := slices.BinarySearchFunc(c.deaths, d, func(a, b death) int { return int(a.at - b.at) })
	c.deaths = slices.Insert(c.deaths, at, d)
	return addressOf(d.member)
}

// next returns the next address that joins or leaves.
func (c *population) next() (p netip.Prefix, joins bool) {
	wait := time.Duration(c.random.ExpFloat64() * float64(c.births))
	if c.now+wait > c.deaths[0].at {
		d := c.deaths[0]
		c.now, c.deaths = d.at, c.deaths[1:]
		return addressOf(d.member), false
	}
	c.now += wait
	kind, n := c.random.Float64(), 0
	for n < len(lifetimes)-1 && kind >= lifetimes[n].share {
		kind -= lifetimes[n].share
		n++
	}
	return c.bear(lifetimes[n].mean), true
}

// addressOf returns an address of 16 million, in no order, as addresses of pods come
// from the blocks of many nodes.
func addressOf(member int) netip.Prefix {
	n := uint32(member) * 0x9e3779b1 >> 8 // an odd factor: no two are the same
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}

// sharing is a renderer with pods that share a table for one set, over the embedded
// dataplane.
func sharing(b *testing.B, interfaces int) (*acl.Renderer, *wire) {
	b.Helper()
	sw := vswitchtest.New(b, vswitch.Options{})
	sw.AddInterface("uplink", acl.UplinkTag)
	w := &wire{VppAPI: sw.Adapter(), sw: sw}
	return share(b, w, interfaces, func(tag string) { sw.AddInterface(tag, tag) }), w
}

// share makes the renderer, and pods with interfaces.
func share(b *testing.B, w *wire, interfaces int, attach func(tag string)) *acl.Renderer {
	b.Helper()
	r, err := acl.New(acl.Options{Adapter: w, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	})
	l := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(1), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
	txn := renderer.Changes{Resync: true}
	for i := range interfaces {
		id := api.PodID{Namespace: "shop", Name: fmt.Sprint("p", i)}
		attach(acl.InterfaceTag(id))
		txn.Render(id, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})}, Egress: l})
	}
	if err := r.Apply(b.Context(), txn); err != nil {
		b.Fatal(err)
	}
	return r
}

func update(b *testing.B, r *acl.Renderer, added, removed []netip.Prefix) {
	txn := renderer.Changes{}
	txn.UpdateSet(1, added, removed)
	if err := r.Apply(b.Context(), txn); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStall adds addresses to a set that 100 pods share, and removes some. It reports what the
// renderer sends to a vswitch, and how long VPP's workers would pause: for joins, for leaves, and
// for a renderer that replaces the whole table instead. There is no idle time.
func BenchmarkStall(b *testing.B) {
	const interfaces = 100
	for _, members := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("%d-addresses", members), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r, w := sharing(b, interfaces)
				b.StartTimer()
				costs := live(b, r, w, members, func() cost { return whole(entriesOf(r), interfaces) })
				b.StopTimer()
				for kind, of := range costs {
					reportCosts(b, kind+":", of)
				}
				b.StartTimer()
			}
		})
	}
}

// live has pods come and go, and returns what joins and leaves cost, and what the whole
// table would have cost each time.
func live(b *testing.B, r *acl.Renderer, w *wire, members int, whole func() cost) map[string][]cost {
	b.Helper()
	const warmUp, events = 600, 1500
	c := newPopulation(members)
	old, others := c.settle()
	update(b, r, old, nil)
	update(b, r, others, nil)
	costs := map[string][]cost{}
	for i := range warmUp + events {
		p, joins := c.next()
		kind, added, removed := "leave", []netip.Prefix(nil), []netip.Prefix{p}
		if joins {
			kind, added, removed = "join", removed, added
		}
		w.take()
		update(b, r, added, removed)
		if i >= warmUp {
			costs[kind] = append(costs[kind], w.take())
			costs["whole-table"] = append(costs["whole-table"], whole())
		}
	}
	return costs
}

// entriesOf returns how many entries the fullest table has.
func entriesOf(r *acl.Renderer) (most int) {
	for _, t := range r.State().Tables {
		most = max(most, t.Entries)
	}
	return most
}

func reportCosts(b *testing.B, kind string, costs []cost) {
	var sum, most cost
	for _, c := range costs {
		sum.messages, sum.rules, sum.bytes, sum.stall = sum.messages+c.messages, sum.rules+c.rules, sum.bytes+c.bytes, sum.stall+c.stall
		most.rules, most.stall = max(most.rules, c.rules), max(most.stall, c.stall)
	}
	slices.SortFunc(costs, func(a, b cost) int { return a.rules - b.rules })
	n := float64(len(costs))
	b.ReportMetric(float64(sum.messages)/n, kind+"messages")
	b.ReportMetric(float64(sum.rules)/n, kind+"rules")
	b.ReportMetric(float64(costs[len(costs)*99/100].rules), kind+"p99-rules")
	b.ReportMetric(float64(most.rules), kind+"max-rules")
	b.ReportMetric(float64(sum.bytes)/n, kind+"bytes")
	b.ReportMetric(sum.stall.Seconds()*1e3/n, kind+"stall-ms")
	b.ReportMetric(most.stall.Seconds()*1e3, kind+"max-stall-ms")
}
