package cache

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

func localAddr(i int) netip.Addr  { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
func remoteAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

// bigWorld returns pods of several kinds; pods of a kind share one list for each direction. Each
// list names three sets of 1 000 addresses, some of them local.
func bigWorld(pods, kinds int) *world {
	w := newWorld()
	lists := make([]renderer.PodConfig, kinds)
	for k := range lists {
		lists[k].Ingress, lists[k].Egress = bigList(destination, k, kinds), bigList(source, k+1, kinds)
	}
	for i := range pods {
		cfg := lists[i%kinds]
		cfg.IPs = []netip.Addr{localAddr(i)}
		w.pods[id(fmt.Sprint("p", i))] = cfg
	}
	for k := range kinds {
		members := make(map[netip.Prefix]bool)
		for i := range 1000 {
			if i%10 == 0 {
				members[prefixes.Host(localAddr((i/10+k)%pods))] = true
			} else {
				members[prefixes.Host(remoteAddr((i*7+k*1000)%60000))] = true
			}
		}
		w.sets[api.SetID(1000+k)] = members
	}
	return w
}

func bigList(peer side, k, kinds int) *renderer.RuleList {
	var rules []api.ContivRule
	for i := range 3 {
		n := api.SetNet(api.SetID(1000 + (k+i)%kinds))
		rules = append(rules,
			peer.set(api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Ports(uint16(80+k%3), 85)}, n),
			peer.set(api.ContivRule{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)}, n))
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

// benchBound closes nothing: what is measured includes what it takes to know that.
var benchBound = Bound{List: 1 << 16, Namespace: 1 << 18, Total: 1 << 20, Entries: countEntries}

func committed(w *world) *Cache {
	c := New(api.Egress, benchBound)
	w.fill(c)
	c.Compute()
	c.Acknowledge()
	return c
}

func benchSizes(b *testing.B, f func(b *testing.B, pods, kinds int)) {
	for _, pods := range []int{110, 250} {
		for _, kinds := range []int{20, pods} {
			b.Run(fmt.Sprintf("pods=%d/kinds=%d", pods, kinds), func(b *testing.B) { f(b, pods, kinds) })
		}
	}
}

func BenchmarkRemoteAddressJoinsASet(b *testing.B) {
	benchSizes(b, func(b *testing.B, pods, kinds int) {
		c := committed(bigWorld(pods, kinds))
		p := []netip.Prefix{netip.MustParsePrefix("10.200.0.1/32")}
		b.ReportAllocs()
		for b.Loop() {
			c.UpdateSet(1000, p, nil)
			if len(c.Compute().Sets) != 1 {
				b.Fatal("the set is not in the plan")
			}
			c.Acknowledge()
			c.UpdateSet(1000, nil, p)
			c.Compute()
			c.Acknowledge()
		}
	})
}

func BenchmarkLocalPodComesAndGoes(b *testing.B) {
	benchSizes(b, func(b *testing.B, pods, kinds int) {
		w := bigWorld(pods, kinds)
		c := committed(w)
		b.ReportAllocs()
		for b.Loop() {
			cfg := w.pods[id("p0")]
			c.RemovePod(id("p0"))
			c.Compute()
			c.Acknowledge()
			c.SetPod(id("p0"), cfg)
			if c.Compute().Empty() {
				b.Fatal("nothing is planned for a new pod")
			}
			c.Acknowledge()
		}
	})
}

func BenchmarkResync(b *testing.B) {
	benchSizes(b, func(b *testing.B, pods, kinds int) {
		w := bigWorld(pods, kinds)
		sets := make(map[api.SetID][]netip.Prefix)
		for id, members := range w.sets {
			for p := range members {
				sets[id] = append(sets[id], p)
			}
		}
		tables := 0
		for b.Loop() {
			c := New(api.Egress, benchBound)
			c.BeginResync()
			for id, cfg := range w.pods {
				c.SetPod(id, cfg)
			}
			for id, members := range sets {
				c.UpdateSet(id, members, nil)
			}
			c.EndResync()
			tables = len(c.Compute().Added)
			c.Acknowledge()
		}
		b.ReportMetric(float64(tables), "tables")
	})
}
