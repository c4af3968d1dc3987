package bench

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// pausesFor is how long pods come and go.
const pausesFor = 20 * time.Second

// load is the number of peers and sets, and the rate of joins and leaves.
type load struct {
	peers, sets int  // sets share the peers, each with a rule of its own
	rate        int  // pods that come or go in a second
	plugin      bool // Sluice's plugin enforces, instead of ACLs
}

func (l load) String() string {
	return fmt.Sprintf("%d-peers-in-%d/%d-pods-a-second", l.peers, l.sets, l.rate)
}

// BenchmarkVPPPauses has pods of other nodes come and go, as in rollouts of one set after the
// other; every second one that goes is old. It reports what traffic to a pod notices that shares
// its table with 99 others: how long packets take, what is lost, what passes that must not. It also
// reports for how much of the time VPP was paused, how long joins took until a packet got through,
// and leaves until they were in force on all interfaces. A machine without other work and a core
// for VPP make figures that mean something.
func BenchmarkVPPPauses(b *testing.B) {
	for _, peers := range []int{1_000, 5_000} {
		for _, sets := range []int{1, peers / 500} {
			for _, rate := range []int{10, 100} {
				l := load{peers, sets, rate, false}
				b.Run(l.String(), func(b *testing.B) {
					for b.Loop() {
						pauses(b, l)
					}
				})
			}
		}
	}
}

// BenchmarkVPPPluginPauses is the same with Sluice's plugin. One pod in a second shows how long
// packets take on this machine without changes.
func BenchmarkVPPPluginPauses(b *testing.B) {
	for _, peers := range []int{1_000, 10_000} {
		for _, rate := range []int{1, 100, 1_000} {
			l := load{peers: peers, sets: 1, rate: rate, plugin: true}
			b.Run(l.String(), func(b *testing.B) {
				for b.Loop() {
					pauses(b, l)
				}
			})
		}
	}
}

// enforcer is a renderer over VPP.
type enforcer interface {
	renderer.Renderer
	renderer.Inspector
	Close() error
}

// churn is a renderer with sets from which pods come and go.
type churn struct {
	load
	r        enforcer
	s        *stream
	prompted chan struct{}
	born     int // members so far
	of       map[netip.Addr]api.SetID
	old      []netip.Addr // that were there at the beginning, and are; by set
	young    []netip.Addr // that joined since, and are in force

	leaves []time.Duration
}

func pauses(b *testing.B, l load) {
	b.StopTimer()
	defer b.StartTimer() // as b.Loop wants it
	config, plugins := "", []string{"af_packet_plugin.so"}
	if l.plugin {
		name, found := vpptest.Plugin(b)
		config, plugins = found, append(plugins, name)
	}
	p := vpptest.NewNetwork(vpptest.LaunchLarge(b, config, plugins...))
	ids := make([]api.PodID, 100)
	for i := range ids {
		ids[i] = api.PodID{Namespace: "shop", Name: fmt.Sprint("p", i)}
	}
	pod, outside := p.Connect(b, "p", acl.InterfaceTag(ids[0])), p.Connect(b, "o", "outside")
	for _, id := range ids[1:] {
		p.Add(acl.InterfaceTag(id))
	}
	p.Route(podAddress(0), acl.InterfaceTag(ids[0]))
	c := &churn{load: l, of: map[netip.Addr]api.SetID{}, prompted: make(chan struct{}, 1), s: &stream{dst: podAddress(0), sent: map[uint32]probe{}, hopedAt: map[netip.Addr]time.Time{}}}
	if l.plugin {
		c.s.most = 4 // more come at once than there are packets
	}
	c.start(b, p, ids)
	c.s.allowed = []netip.Addr{c.old[0]}
	c.old = c.old[1:]
	stop, done := make(chan struct{}), make(chan struct{})
	before := c.paused()
	b.StartTimer()
	began := time.Now()
	go func() {
		defer close(done)
		c.s.run(b, outside, pod, stop)
	}()
	c.run(b)
	paused, took := c.paused()-before, time.Since(began)
	b.StopTimer()
	c.s.settle()
	close(stop)
	<-done
	b.ReportMetric(100*paused.Seconds()/took.Seconds(), "paused-%")
	for name, list := range map[string][]time.Duration{"lag": c.s.lags, "join": c.s.joins, "leave": c.leaves} {
		slices.Sort(list)
		if len(list) == 0 {
			b.Fatalf("nothing was measured of %s", name)
		}
		for of, at := range map[string]int{"p50": len(list) / 2, "p99": len(list) * 99 / 100, "max": len(list) - 1} {
			b.ReportMetric(float64(list[at].Microseconds())/1e3, name+"-"+of+"-ms")
		}
	}
	b.ReportMetric(float64(len(c.s.lags)), "arrived")
	b.ReportMetric(float64(c.s.lost), "lost")
	b.ReportMetric(float64(c.s.passed), "denied-passed")
}

func podAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}) }

// start makes the renderer with pods that share a table, and its set.
func (c *churn) start(b *testing.B, p *vpptest.Network, ids []api.PodID) {
	var err error
	if c.plugin {
		c.r, err = plugin.New(plugin.Options{Socket: p.Socket(), Memory: plugin.MemoryOptions{Directory: filepath.Join(b.TempDir(), "memory")}})
	} else {
		c.r, err = acl.New(acl.Options{
			Socket: p.Socket(),
			Log:    slog.New(slog.DiscardHandler),
			Memory: 1500 << 20,
			OnChange: func() {
				select {
				case c.prompted <- struct{}{}:
				default:
				}
			},
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.r.Close(); err != nil {
			b.Error(err)
		}
	})
	txn := renderer.Changes{Resync: true}
	var rules []api.ContivRule
	for n := range c.sets {
		set := api.SetID(n + 1)
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(set), Protocol: api.UDP, DstPort: api.Port(80)})
		var members []netip.Prefix
		for range c.peers / c.sets {
			members = append(members, addressOf(c.born))
			c.old = append(c.old, c.bear(set))
		}
		txn.UpdateSet(set, members, nil)
	}
	l := renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	for i, id := range ids {
		txn.Render(id, renderer.PodConfig{IPs: []netip.Addr{podAddress(i)}, Egress: l})
	}
	if err := c.r.Apply(b.Context(), txn); err != nil {
		b.Fatal(err)
	}
}

// paused returns for how long VPP was paused, by changes.
func (c *churn) paused() time.Duration {
	if p := c.r.State().Paused; p != nil {
		return *p
	}
	return 0
}

// bear returns a new address, which is to join a set.
func (c *churn) bear(set api.SetID) netip.Addr {
	a := addressOf(c.born).Addr()
	c.born++
	c.of[a] = set
	return a
}

// run has pods come and go. What comes while a commit runs is committed together, as by an agent.
func (c *churn) run(b *testing.B) {
	began := time.Now()
	pause := time.Second / time.Duration(c.rate)
	events := 0
	for {
		due := began.Add(time.Duration(events) * pause)
		if due.Sub(began) >= pausesFor {
			break
		}
		select {
		case <-time.After(time.Until(due)):
		case <-c.prompted:
		}
		until := max(events, int(time.Since(began)/pause)+1)
		joins, leaves := map[netip.Addr]time.Time{}, map[netip.Addr]time.Time{}
		for ; events < until; events++ {
			at := began.Add(time.Duration(events) * pause)
			if events%2 == 0 {
				joins[c.bear(c.of[c.old[0]])] = at
			} else if a, ok := c.goes(events%4 == 1); ok {
				leaves[a] = at
			}
		}
		c.commit(b, joins, leaves)
	}
}

// goes returns the next member that leaves.
func (c *churn) goes(old bool) (a netip.Addr, ok bool) {
	list := &c.young
	if old {
		list = &c.old
	}
	if len(*list) < 2 {
		return a, false
	}
	a, *list = (*list)[0], (*list)[1:]
	c.s.leaving(a)
	return a, true
}

func (c *churn) commit(b *testing.B, joins, leaves map[netip.Addr]time.Time) {
	txn := renderer.Changes{}
	for a, at := range joins {
		txn.UpdateSet(c.of[a], []netip.Prefix{netip.PrefixFrom(a, 32)}, nil)
		c.s.hope(a, at)
	}
	for a := range leaves {
		txn.UpdateSet(c.of[a], nil, []netip.Prefix{netip.PrefixFrom(a, 32)})
	}
	if err := c.r.Apply(b.Context(), txn); err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	for a, at := range leaves {
		c.leaves = append(c.leaves, now.Sub(at))
		c.s.left(a)
	}
	for a := range joins {
		c.young = append(c.young, a)
		c.s.joined(a)
	}
}

// addressOf returns an address of 16 million, in no order, as addresses of pods come
// from the blocks of many nodes.
func addressOf(member int) netip.Prefix {
	n := uint32(member) * 0x9e3779b1 >> 8 // an odd factor: no two are the same
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}
